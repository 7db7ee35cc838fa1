// Why a communicator was stopped on purpose: by abort(), by a peer's end, by a reset that is under way.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include <nearlight/detail/protocol/fault.hpp>
#include "base/status.hpp"

namespace nearlight::runtime {

// Any thread. The first reason stays until a reset forgets it.
class StopNote {
 public:
  struct Reason {
    Status status;
    int peer = -1;       // whose end it was, or -1
    bool of_all = true;  // whether it ends every way of making calls, not only the ranks' own
  };

  // `act` makes the waits end; no reset comes in between. Returns how often somebody has stopped it by now.
  std::uint64_t add(Reason reason, const std::function<void()>& act);
  std::uint64_t add(Status reason, int peer, const std::function<void()>& act) {
    return add({std::move(reason), peer}, act);
  }
  Reason first() const;
  // The first that was `of_all`; ok: none.
  Reason first_of_all() const;
  // `read` gets the first reason and sees what `forget` may clear as a whole.
  void look(const std::function<void(const Reason&)>& read) const;
  // How often somebody has stopped it by now.
  std::uint64_t count() const;
  // Forgets the reason and runs `clear`, unless somebody has stopped it since it was stopped for the
  // `count`-th time: then that reason.
  Status forget(std::uint64_t count, const std::function<void()>& clear);

 private:
  mutable std::mutex mutex_;
  Reason first_, first_of_all_, last_;
  std::uint64_t count_ = 0;
};

}  // namespace nearlight::runtime
