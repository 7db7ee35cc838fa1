// What stands beside an NCCL communicator and takes calls in its place.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/deadline.hpp"
#include "base/status.hpp"
#include "dropin/operation.hpp"

struct ncclComm;

namespace nearlight::dropin {

class Companion {
 public:
  virtual ~Companion() = default;

  virtual Verdict decide(const Operation& operation) const = 0;
  // Enqueues an operation that decide() takes; may be captured. Ordered behind all that was enqueued before
  // on any stream, as NCCL's operations of one communicator are. One thread at a time.
  virtual Status run(const Operation& operation) = 0;
  // The same of messages that are under way at once, on the stream of the first.
  virtual Status run_together(std::span<const Operation> messages) = 0;
  // Around an operation of the communicator that NCCL enqueues on this stream: it is ordered with those of
  // run(). One thread at a time.
  virtual Status before_other(void* stream) = 0;
  virtual Status after_other(void* stream) = 0;
  // What is enqueued on any of the streams from now on waits for what all of them have: what NCCL promises of
  // a group whose operations of a communicator are on several streams.
  virtual Status join(std::span<void* const> streams) = 0;
  // Ok, or the first failure known by now. Any thread.
  virtual Status status() const = 0;
  // Ends every wait, now and later. Any thread.
  virtual void abort() = 0;
  // Waits until what was enqueued has ended.
  virtual Status drain(Deadline deadline) = 0;
  // NCCL's communicator is gone, or going: nothing of it may be touched any more.
  virtual void communicator_is_gone() = 0;
};

// What a communicator was asked for, as far as it matters here. One rank's own: the ranks compare it.
struct Wish {
  // Why this rank wants no companion; null: it wants one. Static storage.
  const char* refusal = nullptr;
  std::uint32_t takes = 0;  // functions, see takes.hpp
  // The part of the refusal that is the configuration's, or null. Static storage.
  const char* limits = nullptr;
  bool blocking = true;  // unless NCCL says that it is in progress
};

// Null with the reason, or a companion: the same on all ranks.
struct Attached {
  std::unique_ptr<Companion> companion;
  std::string reason;
};

// Makes the companion. Collective over the communicator, which must be idle; waits at most until the
// deadline. A failure means that the ranks may not agree about it, so that the communicator must not be used.
Result<Attached> attach(ncclComm* comm, const Wish& wish, Deadline deadline);

// What attach() is given for it.
std::int64_t attach_limit_ms();

// In front of an operation by NCCL on this stream, whichever its communicator: nothing of it may begin before
// what a companion has enqueued there last has ended. Some nanoseconds where there is nothing. Any thread,
// whichever its device.
Status before_nccl(ncclComm* comm, void* stream);

}  // namespace nearlight::dropin
