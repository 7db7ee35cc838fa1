// Status and Result<T>: how every internal function reports failure. No exceptions, no errno left to read.
#pragma once

#include <cassert>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace nearlight {

// Values 0..8 are NCCL's for NCCL's meanings; ours start at 100.
enum class Code : int {
  ok = 0,
  cuda_error = 1,        // a CUDA call failed; the text names the call and CUDA's own text
  system_error = 2,      // a system call failed; the text names the call and errno
  internal_error = 3,    // a broken invariant of nearlight
  invalid_argument = 4,  // the text names the argument
  invalid_usage = 5,     // the arguments are fine, the moment or the state is not
  remote_error = 6,      // a peer failed or left
  in_progress = 7,
  timeout = 8,
  unsupported = 100,  // this machine, driver or library version cannot do it; the text says why
  aborted = 101,      // the communicator was told to stop
};

// The name of a code as it stands in messages and in docs, e.g. "invalid argument".
const char* code_name(Code code);

// The outcome of a call: a code and, unless ok, a text for a person. Cheap to return when ok.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string text) : code_(code), text_(std::move(text)) { assert(code != Code::ok); }

  static Status success() { return {}; }

  bool ok() const { return code_ == Code::ok; }
  explicit operator bool() const { return ok(); }
  Code code() const { return code_; }
  const std::string& text() const { return text_; }
  // "<code name>: <text>", or "ok".
  std::string to_string() const;
  // The same failure with "<context>: " in front of its text; ok stays ok.
  Status with_context(std::string_view context) const;

 private:
  Code code_ = Code::ok;
  std::string text_;
};

// printf-style construction, e.g. failure(Code::timeout, "rank %d did not answer in %.0f ms", r, ms).
[[nodiscard]] [[gnu::format(printf, 2, 3)]] Status failure(Code code, const char* format, ...);
// A failed system call: "<what>: <strerror(error_number)>" with Code::system_error.
[[nodiscard]] Status system_failure(std::string_view what, int error_number);

// A T, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}                         // NOLINT: implicit on purpose
  Result(Status status) : state_(std::move(status)) { assert(!ok()); }  // NOLINT: implicit on purpose

  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

 private:
  std::variant<T, Status> state_;
};

// Returns the failure to the caller, else goes on. For functions that return Status or Result<T>.
#define NL_TRY(expression)                                                               \
  do {                                                                                   \
    if (::nearlight::Status nl_status = (expression); !nl_status.ok()) return nl_status; \
  } while (false)

// NL_TRY_ASSIGN(auto x, call()): x is the value, or the function returns the failure.
#define NL_TRY_ASSIGN(target, expression) NL_TRY_ASSIGN_1(target, expression, __COUNTER__)
#define NL_TRY_ASSIGN_1(target, expression, n) NL_TRY_ASSIGN_2(target, expression, n)
#define NL_TRY_ASSIGN_2(target, expression, n)            \
  auto nl_result_##n = (expression);                      \
  if (!nl_result_##n.ok()) return nl_result_##n.status(); \
  target = std::move(nl_result_##n).value()

}  // namespace nearlight
