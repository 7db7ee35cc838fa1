// Somebody else who can do a call: the NCCL communicator that ours is attached to.
#pragma once

#include <cstddef>
#include <span>

#include "base/deadline.hpp"
#include "base/exchange.hpp"
#include "base/status.hpp"
#include "base/types.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::runtime {

class Fallback {
 public:
  virtual ~Fallback() = default;

  // As NCCL_VERSION_CODE; the same on all ranks, which is checked at creation.
  virtual int version() const = 0;
  // What NCCL would set up at its first call: connections and memory, which must not happen beside a kernel
  // of ours that waits for another rank. Collective, over `exchange` as well; for messages from `first_bytes`
  // on.
  virtual Status prepare(Exchange& exchange, std::size_t first_bytes, Deadline deadline) = 0;
  // Enqueues. `type` and `op` are those that route::kept_from_nccl lets through. `capturing`: whether the
  // stream is. The deadline is for the host's part, in which the first call of a kind waits for the other
  // ranks' (in a capture without a limit: what connects should have been called before); what is enqueued
  // waits for them as long as NCCL does. After Code::timeout NCCL may still use buffers and stream until its
  // communicator is aborted.
  virtual Status all_reduce(const void* send, void* recv, std::size_t count, DataType type, ReduceOp op,
                            Stream stream, bool capturing, Deadline deadline) = 0;
  // The same of a collective that goes by parts.
  virtual Status collective(const CollectiveCall& call, int nranks, Stream stream, bool capturing,
                            Deadline deadline) = 0;
  // The same of sends and receives that go together; none of them is empty. `rest`, unless it is null: is set
  // where the call would wait for the other ranks, and waits in its place, with the device of now current.
  virtual Status messages(std::span<const MessageCall> group, Stream stream, bool capturing,
                          Deadline deadline, Rest* rest) = 0;
};

}  // namespace nearlight::runtime
