// Channels on the CPU: the same source as in a kernel, run by threads, so that a kernel's communication is
// tested without a GPU. Needs C++20 and no CUDA; not for .cu files.
//
// Write what a kernel does as a template over its channel:
//
//   template <class Channel> NEARLIGHT_DEVICE_FN bool sum_of_ranks(Channel& ch, float& value) { ... }
//
// and call it from a __global__ function with nearlight::device::Channel, and from a thread a rank with
// nearlight::device::host::Channel. docs/guide/device-api.md shows both.
#ifndef NEARLIGHT_DEVICE_HOST_HPP
#define NEARLIGHT_DEVICE_HOST_HPP

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/exec/host_space.hpp>
#include <nearlight/detail/exec/lane_coop.hpp>
#include <nearlight/detail/protocol/channel.hpp>

// In front of a function that kernels and threads call.
#define NEARLIGHT_DEVICE_FN NL_FN

namespace nearlight::device::host {

// A group of one thread; a thread of a group of several (all share a std::barrier).
using Thread = exec::SoloCoop;
using Lane = exec::LaneCoop;

// See nearlight::protocol::Channel, MessageChannel and PutChannel.
template <class Protocol, class Coop = Thread, bool kChecks = NEARLIGHT_DEVICE_CHECKS != 0, int kRanks = 0>
using Channel = protocol::Channel<exec::HostSpace, Protocol, Coop, kChecks, kRanks>;

// The memory of all ranks of a group of threads in this process, without a communicator.
class LocalRanks {
 public:
  // `timeout_ns`: of one wait. Throws std::invalid_argument that names the field of `shape`, and
  // std::bad_alloc.
  explicit LocalRanks(const Shape& shape, std::uint64_t timeout_ns = 10'000'000'000)
      : shape_(shape), plan_(plan(shape)), timeout_ns_(timeout_ns), controls_(ranks()) {
    shared_.resize(plan_.shared_bytes / sizeof(Line) * ranks());
    own_.resize(plan_.own_bytes / sizeof(Line) * ranks());
    for (std::size_t rank = 0; rank < ranks(); ++rank) put_at_rest(static_cast<int>(rank));
  }
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  // What rank `rank`'s kernel gets. `peers`: see Memory::peers.
  Memory memory(int rank, std::uint32_t peers = 0) {
    Control& control = controls_.at(static_cast<std::size_t>(rank));
    Memory memory;
    memory.base = reinterpret_cast<char*>(shared_.data());
    memory.stride = plan_.shared_bytes;
    memory.own = reinterpret_cast<char*>(own_.data()) + plan_.own_bytes * static_cast<std::size_t>(rank);
    memory.abort = &control.abort;
    memory.claim = &control.claim;
    memory.valid = &control.valid;
    memory.record = &control.record;
    memory.timeout_ns = timeout_ns_;
    memory.rank = rank;
    memory.peers = peers;
    memory.shape = shape_;
    return memory;
  }

  // Rank `rank`'s first failure; null while there is none. Any thread.
  const Fault* fault(int rank) const {
    const Control& control = controls_.at(static_cast<std::size_t>(rank));
    // [F1]
    const bool valid = exec::HostSpace::load<exec::Order::acquire, exec::Scope::system>(control.valid) != 0;
    return valid ? &control.record : nullptr;
  }
  // Ends all waits of rank `rank`, now and later. Any thread.
  void abort(int rank) {
    exec::HostSpace::store<exec::Order::relaxed, exec::Scope::system>(
        controls_.at(static_cast<std::size_t>(rank)).abort, 1u);
  }

 private:
  struct Line {
    alignas(128) std::byte bytes[128];
  };
  struct alignas(128) Control {
    std::uint32_t abort = 0, claim = 0, valid = 0;
    Fault record{};
  };
  std::size_t ranks() const { return static_cast<std::size_t>(shape_.nranks); }
  void put_at_rest(int rank) {
    char* const part =
        reinterpret_cast<char*>(shared_.data()) + plan_.shared_bytes * static_cast<std::size_t>(rank);
    const protocol::RegionLayout layout = shape_.layout();
    for (std::uint32_t channel = 0; channel < shape_.channels; ++channel)
      std::memset(part + channel * layout.region_bytes() + layout.packets_at(), 0xff, layout.packets_bytes());
  }

  Shape shape_;
  Plan plan_;
  std::uint64_t timeout_ns_;
  std::vector<Line> shared_, own_;
  std::vector<Control> controls_;
};

}  // namespace nearlight::device::host

#endif  // NEARLIGHT_DEVICE_HOST_HPP
