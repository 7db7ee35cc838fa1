// How GPU ranks come back after a failure.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/cuda_call.hpp"
#include "runtime/cuda_communicator.hpp"
#include "runtime/recovery.hpp"

namespace nearlight::runtime {

namespace {

struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  Status status;
};

// cudaDeviceSynchronize with a limit: it has none, so it runs on a thread of its own, which is left behind at
// the deadline and ends when the device's work has. Everything that the device has been given counts, the
// program's own kernels too: nothing less says that a kernel's stores have arrived everywhere.
Status wait_until_idle(int device, Deadline deadline) {
  const auto progress = std::make_shared<Progress>();
  std::thread worker;
  try {
    worker = std::thread([device, progress] {
      Status status = cuda_status("cudaSetDevice", cudaSetDevice(device));
      if (status.ok()) status = cuda_status("cudaDeviceSynchronize", cudaDeviceSynchronize());
      const std::lock_guard lock(progress->mutex);
      progress->status = std::move(status);
      progress->done = true;
      progress->changed.notify_all();
    });
  } catch (const std::system_error& error) {
    return system_failure("starting a thread", error.code().value());
  }
  std::unique_lock lock(progress->mutex);
  while (!progress->done && !deadline.passed()) {
    progress->changed.wait_for(lock,
                               std::min<std::chrono::nanoseconds>(deadline.left(), std::chrono::hours(1)));
  }
  if (progress->done) {
    lock.unlock();
    worker.join();
    return progress->status;
  }
  lock.unlock();
  worker.detach();
  return failure(Code::timeout, "the work of device %d has not ended in time", device);
}

}  // namespace

Status CudaCommunicator::reset(std::optional<std::chrono::milliseconds> limit) {
  const auto time = limit.value_or(wish_.options.create_timeout);
  NL_TRY(check_limit("limit", time));
  const Deadline deadline = Deadline::after(time);
  NL_TRY(survivors_.check_all(nranks()));
  const DeviceGuard guard(device_);
  // Failed from here on, unless all goes well; and the kernels' waits end.
  const std::uint64_t count =
      stop(failure(Code::aborted, "a reset of rank %d has not been completed", rank_), -1);
  const ResetSteps steps{.end_own =
                             [&](Deadline until) {
                               return guard.status().ok() ? wait_until_idle(device_, until) : guard.status();
                             },
                         .last_epoch = [&] { return control_->highest_epoch(regions_); },
                         .rest = [&](std::uint32_t epoch) -> Status {
                           if (ledger_ != nullptr) ledger_->clear();
                           NL_TRY(clear_regions());
                           NL_TRY(empty_packets());
                           return control_->rearm(regions_, epoch);
                         }};
  NL_TRY(reset_together(*exchange_, steps, deadline));
  return stop_note_.forget(count, [&] {
    compared_ = 0;
    told_.store(false, std::memory_order_relaxed);
    control_->clear_host_words();
    stopped_.store(false, std::memory_order_relaxed);
  });
}

Result<std::unique_ptr<Communicator>> CudaCommunicator::shrink(
    std::span<const int> members, std::optional<std::chrono::milliseconds> limit) {
  const auto time = limit.value_or(wish_.options.create_timeout);
  NL_TRY(check_limit("limit", time));
  const Deadline deadline = Deadline::after(time);
  NL_TRY(check_members(members, rank_, nranks()));
  NL_TRY(survivors_.check_shrink(exchange_.get()));
  // Kernels that still run store into memory that the smaller communicator does not have; they end soon, so
  // that its creation does not wait for them.
  stop(failure(Code::aborted, "rank %d goes on in a smaller communicator", rank_), -1);
  NL_TRY(survivors_.regroup(*exchange_, members, deadline));
  Options options = wish_.options;
  options.create_timeout = deadline.left_or_1_ms();
  NL_TRY_ASSIGN(auto smaller,
                create(exchange_, device_, wish_.one_rank_per_gpu, wish_.make_heap, wish_.context, options));
  exchange_.reset();
  return smaller;
}

}  // namespace nearlight::runtime
