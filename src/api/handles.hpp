// What a nearlightComm_t stands for. A handle is a number that is looked up in a table, never a pointer that
// is followed: a destroyed one, or any other value, is found out without touching what it seems to point at.
// A child made by fork has none of its parent's.
#pragma once

#include <memory>

#include <nearlight/nearlight.h>
#include "base/status.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::api {

struct Slot;

// A new live handle. Code::system_error when 65 535 are live.
Result<nearlightComm_t> add_handle(std::unique_ptr<runtime::Communicator> communicator);

// Ends a handle and gives back what it stood for. Code::invalid_argument: it is not live;
// Code::invalid_usage: a collective call is running on it.
Result<std::unique_ptr<runtime::Communicator>> remove_handle(nearlightComm_t handle);

// The right of one thread to make a collective call on a communicator, for the life of this object. One
// atomic operation, because calls on a CPU take some hundred nanoseconds.
class Call {
 public:
  explicit Call(nearlightComm_t handle);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call();

  explicit operator bool() const { return slot_ != nullptr; }
  // Code::invalid_argument: no live handle; Code::invalid_usage: another thread is in a call.
  Status status() const;
  int rank() const { return rank_; }
  runtime::Communicator& operator*() const { return *communicator_; }
  runtime::Communicator* operator->() const { return communicator_; }

 private:
  nearlightComm_t handle_;
  int rank_ = -1;
  Slot* slot_ = nullptr;  // null: no right
  runtime::Communicator* communicator_ = nullptr;
};

// A look at a communicator by any thread, for calls that never wait; it is not destroyed meanwhile.
class Visit {
 public:
  explicit Visit(nearlightComm_t handle);
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  ~Visit();

  Status status() const;  // Code::invalid_argument: no live handle
  runtime::Communicator& operator*() const { return *communicator_; }
  runtime::Communicator* operator->() const { return communicator_; }

 private:
  nearlightComm_t handle_;
  Slot* slot_ = nullptr;
  runtime::Communicator* communicator_ = nullptr;
};

}  // namespace nearlight::api
