// Bringing communicators back from a failure, and moving their calls to another path.
#include <chrono>
#include <cinttypes>
#include <optional>
#include <span>
#include <utility>

#include "api/handles.hpp"
#include "api/result.hpp"

namespace nearlight::api {

namespace {

// A limit that cannot be is refused further down.
std::optional<std::chrono::milliseconds> limit_of(std::int64_t timeout_ms) {
  if (timeout_ms == 0) return std::nullopt;
  return std::chrono::milliseconds(timeout_ms);
}

}  // namespace

}  // namespace nearlight::api

using namespace nearlight;       // NOLINT: the entry points below are C's
using namespace nearlight::api;  // NOLINT

nearlightResult_t nearlightCommReset(nearlightComm_t comm, int64_t timeout_ms) {
  return guarded(__func__, [=](Where& where) -> Status {
    const Call call(comm);
    if (!call) return call.status();
    where.rank = call.rank();
    return call->reset(limit_of(timeout_ms));
  });
}

nearlightResult_t nearlightCommShrink(nearlightComm_t comm, const int* members, int nmembers,
                                      int64_t timeout_ms, nearlightComm_t* shrunk) {
  return guarded(__func__, [=](Where& where) -> Status {
    if (members == nullptr) return failure(Code::invalid_argument, "members is NULL");
    if (shrunk == nullptr) return failure(Code::invalid_argument, "shrunk is NULL");
    if (nmembers < 1) return failure(Code::invalid_argument, "nmembers: %d is no number of ranks", nmembers);
    const Call call(comm);
    if (!call) return call.status();
    where.rank = call.rank();
    if (nmembers > call->nranks()) {
      return failure(Code::invalid_argument, "nmembers: %d are more than the %d ranks there are", nmembers,
                     call->nranks());
    }
    NL_TRY_ASSIGN(auto smaller,
                  call->shrink(std::span(members, static_cast<std::size_t>(nmembers)), limit_of(timeout_ms)));
    NL_TRY_ASSIGN(*shrunk, add_handle(std::move(smaller)));
    return {};
  });
}

nearlightResult_t nearlightCommSetPath(nearlightComm_t comm, const char* path) {
  return guarded(__func__, [=](Where& where) -> Status {
    const Call call(comm);
    if (!call) return call.status();
    where.rank = call.rank();
    return call->set_path(path == nullptr ? "" : path);
  });
}
