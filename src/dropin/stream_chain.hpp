// The order of one communicator's operations on several streams.
#pragma once

#include <cuda_runtime_api.h>

#include <span>
#include <vector>

#include "base/deadline.hpp"
#include "base/status.hpp"

namespace nearlight::dropin {

// NCCL's operations of one communicator run one after another, on whatever streams they are; nearlight's must
// be made to. So an event stands behind each, and an operation on another stream than the one before waits
// for it. It stands there before it is known whether another stream comes: by then the first stream may be
// gone. Captured operations are ordered within their capture; a graph that is replayed beside other
// operations is the program's to order. One thread at a time, with the device current.
class StreamChain {
 public:
  StreamChain() = default;
  StreamChain(const StreamChain&) = delete;
  ~StreamChain();

  // Once, before the others.
  Status begin();
  // Around an operation on `stream`.
  Status before(cudaStream_t stream);
  Status after(cudaStream_t stream);
  // What is enqueued on any of the streams waits for what all have.
  Status join(std::span<void* const> streams);
  // Waits until the operations have ended that no capture has.
  Status drain(Deadline deadline) const;

 private:
  // Which stream it is. The handle of one that is gone is given again, and the one of the thread's own stream
  // is the same in all threads; the number is that of no other stream. Within a capture no stream goes.
  struct Place {
    unsigned long long capture = 0;  // 0: none
    unsigned long long id = 0;       // within a capture the handle's bits
    bool is_before(const Place& next) const;
  };
  struct Link {
    cudaEvent_t event = nullptr;
    bool recorded = false;
    Place place;
  };
  static Result<Place> place_of(cudaStream_t stream);
  Link eager_, captured_;
  std::vector<cudaEvent_t> joints_;
};

}  // namespace nearlight::dropin
