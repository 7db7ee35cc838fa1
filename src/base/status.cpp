#include "base/status.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace nearlight {

const char* code_name(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::cuda_error:
      return "CUDA error";
    case Code::system_error:
      return "system error";
    case Code::internal_error:
      return "internal error";
    case Code::invalid_argument:
      return "invalid argument";
    case Code::invalid_usage:
      return "invalid usage";
    case Code::remote_error:
      return "remote error";
    case Code::in_progress:
      return "in progress";
    case Code::timeout:
      return "timeout";
    case Code::unsupported:
      return "unsupported";
    case Code::aborted:
      return "aborted";
  }
  return "unknown code";
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return std::string(code_name(code_)) + ": " + text_;
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return Status(code_, std::string(context) + ": " + text_);
}

Status failure(Code code, const char* format, ...) {
  std::va_list args;
  va_start(args, format);
  std::va_list again;
  va_copy(again, args);
  const int length = std::vsnprintf(nullptr, 0, format, args);
  va_end(args);
  std::string text(length > 0 ? static_cast<std::size_t>(length) : 0, '\0');
  if (length > 0) std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  return Status(code, std::move(text));
}

Status system_failure(std::string_view what, int error_number) {
  char buffer[256] = {};
  const char* message = strerror_r(error_number, buffer, sizeof buffer);
  return Status(Code::system_error, std::string(what) + ": " + message);
}

}  // namespace nearlight
