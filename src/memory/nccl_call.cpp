#include "memory/nccl_call.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "memory/cuda_driver.hpp"

namespace nearlight::memory {

namespace {

struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  bool given_up = false;  // the caller has left
  Status status;
};

Status run(const Nccl& nccl, ncclComm* comm, int device, const std::function<Status()>& call,
           Progress& progress) {
  NL_TRY(cuda_status(cudaSetDevice(device), "cudaSetDevice"));
  Status status = call();
  while (status.code() == Code::in_progress) {
    {
      std::unique_lock lock(progress.mutex);
      progress.changed.wait_for(lock, std::chrono::milliseconds(1));
      if (progress.given_up) return status;
    }
    status = nccl.comm_async_error(comm);
  }
  return status;
}

}  // namespace

Status nccl_call(const Nccl& nccl, ncclComm* comm, int device, const char* what, std::function<Status()> call,
                 Deadline deadline) {
  auto progress = std::make_shared<Progress>();
  std::thread worker;
  try {
    worker = std::thread([&nccl, comm, device, call = std::move(call), progress] {
      Status status = run(nccl, comm, device, call, *progress);
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
  progress->given_up = true;
  lock.unlock();
  worker.detach();
  return failure(Code::timeout,
                 "%s: not all ranks came in time; %s still waits for them until the communicator is aborted",
                 what, nccl.describe().c_str());
}

}  // namespace nearlight::memory
