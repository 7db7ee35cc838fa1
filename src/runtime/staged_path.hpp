// Calls of GPU ranks that the CPU makes: the data are copied to pinned host memory, a kernel asks for the
// call and waits, a thread of this process makes it among the hosts of the same ranks, and the result is
// copied back. For when the GPUs' own way is sick or suspected, and no NCCL is attached. Why so:
// docs/dev/decisions.md.
//
// Nothing here calls CUDA, so that the thread never waits for a kernel that waits for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "algorithm/host_turn.hpp"
#include "base/deadline.hpp"
#include "base/status.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::runtime {

using HostTurnWords = algorithm::HostTurn<std::uint32_t>;

class StagedPath {
 public:
  // `host`: the same ranks as CPU ranks. `turn` and `staging` (`bytes`) are reached by the device as well,
  // and outlive this.
  StagedPath(std::unique_ptr<Communicator> host, HostTurnWords* turn, char* staging, std::size_t bytes);
  StagedPath(const StagedPath&) = delete;
  ~StagedPath();

  // Starts the thread that answers, unless it runs. It then runs to the end: graphs may have captured calls.
  Status start();

  char* staging() const { return staging_; }
  std::size_t bytes() const { return bytes_; }
  HostTurnWords* turn() const { return turn_; }

  // Ok, or why it has failed. Never blocks for long.
  Status status() const;
  std::optional<Fault> fault() const;
  // Ends all waits; nothing is asked any more. Any thread.
  void stop();

  // The first half of a reset, collective: waits until this rank's call is over, and resets the CPU ranks.
  // The device asks for nothing meanwhile (it is idle, and `stopped` is set).
  Status rest(Deadline deadline);
  // The second, which lets calls in again.
  void clear();

 private:
  void serve();
  Status run(const algorithm::HostRequest& request);

  std::unique_ptr<Communicator> host_;
  HostTurnWords* const turn_;
  char* const staging_;
  const std::size_t bytes_;
  std::mutex calling_;        // while a request is looked for and served
  std::uint32_t served_ = 0;  // under it
  mutable std::mutex mutex_;
  Status failure_;  // under mutex_
  std::atomic<bool> ending_{false};
  std::mutex starting_;
  std::thread thread_;
};

}  // namespace nearlight::runtime
