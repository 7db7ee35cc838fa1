// Why a communicator was stopped on purpose: by abort(), by a peer's end, by a reset that is under way.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include <nearlight/detail/protocol/fault.hpp>
#include "base/status.hpp"

namespace nearlight::runtime {

// Any thread. The first reason stays until a reset forgets it.
class StopNote {
 public:
  struct Reason {
    Status status;
    int peer = -1;  // whose end it was, or -1
  };

  // `act` makes the waits end; no reset comes in between. Returns how often somebody has stopped it by now.
  std::uint64_t add(Status reason, int peer, const std::function<void()>& act);
  Reason first() const;
  // `read` sees what `forget` may clear as a whole.
  Reason first(const std::function<void()>& read) const;
  // Forgets the reason and runs `clear`, unless somebody has stopped it since it was stopped for the
  // `count`-th time: then that reason.
  Status forget(std::uint64_t count, const std::function<void()>& clear);

 private:
  mutable std::mutex mutex_;
  Reason first_, last_;
  std::uint64_t count_ = 0;
};

}  // namespace nearlight::runtime
