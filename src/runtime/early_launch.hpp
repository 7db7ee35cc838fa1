// Who lets the kernel after a call's in early. Such a kernel may take all the room of its GPU while the call
// waits for the others, so nobody may wait for what has to get in after it. Two ranks on one GPU do, and so
// may two communicators, one of which comes first on one GPU and the other on another. Of those that a
// process has on a GPU one may do it, and only if it is the one on all of its GPUs (its ranks agree on that
// at creation): then the calls of two such never meet on a GPU, and any other one's lets others in.
#pragma once

#include <atomic>
#include <optional>

namespace nearlight::runtime {

// One communicator's answer, for as long as it lives.
class EarlyLaunch {
 public:
  EarlyLaunch() = default;
  // `wish`: what configuration or variable say, which is done; unset: this process's first on the CUDA device
  // of this index, if it is `alone` there, with no other rank of its group.
  EarlyLaunch(std::optional<bool> wish, int device, bool alone);
  EarlyLaunch(EarlyLaunch&& other) noexcept;
  EarlyLaunch& operator=(EarlyLaunch&& other) noexcept;
  ~EarlyLaunch() { leave(); }

  bool is_on() const { return device_ >= 0; }

 private:
  void leave();
  std::atomic<int> device_ = -1;  // it is counted there; -1: not early
};

}  // namespace nearlight::runtime
