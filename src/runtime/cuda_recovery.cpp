// How GPU ranks come back after a failure.
#include <chrono>
#include <memory>
#include <utility>

#include "base/bounded_call.hpp"
#include "runtime/cuda_call.hpp"
#include "runtime/cuda_communicator.hpp"
#include "runtime/recovery.hpp"

namespace nearlight::runtime {

namespace {

// cudaDeviceSynchronize with a limit; left behind, it ends when the device's work has. Everything that the
// device has been given counts, the program's own kernels too: nothing less says that a kernel's stores have
// arrived everywhere.
Status wait_until_idle(int device, Deadline deadline) {
  const auto wait = [device](LeftAlone&) -> Status {
    NL_TRY_CUDA(cudaSetDevice(device));
    NL_TRY_CUDA(cudaDeviceSynchronize());
    return {};
  };
  return bounded_call(wait, deadline,
                      failure(Code::timeout, "the work of device %d has not ended in time", device));
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
  health_.set(Health::resetting);
  const ResetSteps steps{.end_own =
                             [&](Deadline until) {
                               return guard.status().ok() ? wait_until_idle(device_, until) : guard.status();
                             },
                         .last_epoch = [&] { return control_->highest_epoch(regions_); },
                         .rest = [&](std::uint32_t epoch) -> Status {
                           if (ledger_ != nullptr) ledger_->clear();
                           NL_TRY(clear_regions());
                           NL_TRY(empty_packets());
                           NL_TRY(rest_pipes(0));
                           NL_TRY(retire_channels(channels_));
                           return control_->rearm(regions_, epoch);
                         }};
  NL_TRY(reset_together(*exchange_, steps, deadline));
  if (staged_ != nullptr) NL_TRY(staged_->rest(deadline));
  return stop_note_.forget(count, [&] {
    compared_ = 0;
    told_.store(false, std::memory_order_relaxed);
    control_->clear_host_words();
    health_.forget();
    health_.set(Health::well);
    if (staged_ != nullptr) staged_->clear();
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
  early_ = {};  // the smaller one's, now
  Options options = wish_.options;
  options.create_timeout = deadline.left_or_1_ms();
  NL_TRY_ASSIGN(auto smaller, create(exchange_, device_, wish_.heap, options));
  exchange_.reset();
  return smaller;
}

}  // namespace nearlight::runtime
