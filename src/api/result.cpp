#include "api/result.hpp"

#include <cstdio>

namespace nearlight::api {

namespace {

// A text longer than this is cut.
constexpr std::size_t kTextBytes = 1024;
thread_local char last_error[kTextBytes] = "";

static_assert(static_cast<int>(Code::ok) == nearlightSuccess);
static_assert(static_cast<int>(Code::cuda_error) == nearlightCudaError);
static_assert(static_cast<int>(Code::system_error) == nearlightSystemError);
static_assert(static_cast<int>(Code::internal_error) == nearlightInternalError);
static_assert(static_cast<int>(Code::invalid_argument) == nearlightInvalidArgument);
static_assert(static_cast<int>(Code::invalid_usage) == nearlightInvalidUsage);
static_assert(static_cast<int>(Code::remote_error) == nearlightRemoteError);
static_assert(static_cast<int>(Code::in_progress) == nearlightInProgress);
static_assert(static_cast<int>(Code::timeout) == nearlightTimeout);
static_assert(static_cast<int>(Code::unsupported) == nearlightUnsupported);
static_assert(static_cast<int>(Code::aborted) == nearlightAborted);

}  // namespace

nearlightResult_t to_result(const Where& where, Code code, const char* text) noexcept {
  if (code == Code::ok) return nearlightSuccess;
  // The text may be the one that is kept: it is put together elsewhere first.
  char line[kTextBytes];
  if (where.rank >= 0) {
    std::snprintf(line, sizeof line, "%s on rank %d: %s", where.function, where.rank, text);
  } else {
    std::snprintf(line, sizeof line, "%s: %s", where.function, text);
  }
  std::snprintf(last_error, sizeof last_error, "%s", line);
  return static_cast<nearlightResult_t>(code);
}

nearlightResult_t to_result(const Where& where, const Status& status) noexcept {
  return to_result(where, status.code(), status.text().c_str());
}

}  // namespace nearlight::api

const char* nearlightGetErrorString(nearlightResult_t result) {
  return nearlight::code_name(static_cast<nearlight::Code>(result));
}

const char* nearlightGetLastError(void) { return nearlight::api::last_error; }
