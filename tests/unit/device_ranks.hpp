// Ranks of threads that run a kernel's body on channels, without a communicator.
#pragma once

#include <barrier>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include <nearlight/device_host.hpp>

namespace nearlight::test {

using device::host::Lane;
using device::host::LocalRanks;

// Runs body(memory, lane) in `lanes` threads of each rank and returns when all have ended. `peers_of`, where
// there is one: each rank's peers.
inline void run_ranks(LocalRanks& ranks, int nranks, int lanes,
                      const std::function<void(const device::Memory&, Lane)>& body,
                      const std::function<std::uint32_t(int rank)>& peers_of = {}) {
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<std::barrier<>>> groups;
  for (int rank = 0; rank < nranks; ++rank) {
    groups.push_back(std::make_unique<std::barrier<>>(lanes));
    const device::Memory memory = ranks.memory(rank, peers_of ? peers_of(rank) : 0);
    for (int lane = 0; lane < lanes; ++lane) {
      threads.emplace_back(
          [&body, memory, member = Lane{lane, lanes, groups.back().get()}] { body(memory, member); });
    }
  }
  for (std::thread& thread : threads) thread.join();
}

// Sets the epoch that a channel begins after.
inline void set_epoch(const device::Memory& memory, std::uint32_t channel, std::uint32_t epoch) {
  reinterpret_cast<protocol::RegionState<exec::HostSpace>*>(memory.own_of(channel))->epoch = epoch;
}
inline std::uint32_t epoch_of(const device::Memory& memory, std::uint32_t channel) {
  return reinterpret_cast<protocol::RegionState<exec::HostSpace>*>(memory.own_of(channel))->epoch;
}

}  // namespace nearlight::test
