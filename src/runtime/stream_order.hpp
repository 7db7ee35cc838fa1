// Check mode: calls of one communicator on several streams.
#pragma once

#include <cuda_runtime_api.h>

#include "base/status.hpp"

namespace nearlight::runtime {

// What a communicator enqueues must be ordered: one stream, or streams joined by events. Whether an event
// joins two streams cannot be asked. So what can be seen is reported: a call on another stream while the one
// before has not ended. And since it may be a mistake, such a call is made to wait for the one before, which
// changes nothing where it was none. Calls that are captured are left out: there the graph has the order. One
// thread at a time, the rank's device current.
class StreamOrder {
 public:
  StreamOrder() = default;
  StreamOrder(const StreamOrder&) = delete;
  ~StreamOrder();

  // From here on it looks.
  Status begin();
  // Around a call on `stream` that is not captured.
  Status before(cudaStream_t stream, int rank);
  Status after(cudaStream_t stream);

 private:
  cudaEvent_t event_ = nullptr;  // after the last call; null: it does not look
  cudaStream_t last_ = nullptr;
  bool recorded_ = false;
  bool reported_ = false;  // once for a communicator
};

}  // namespace nearlight::runtime
