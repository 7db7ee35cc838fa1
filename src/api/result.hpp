// The way out of the library: a Status becomes a code and a text of this thread, an exception becomes a
// Status.
#pragma once

#include <exception>
#include <new>

#include <nearlight/nearlight.h>
#include "base/status.hpp"

namespace nearlight::api {

// Which call, by which rank: stands in front of the text.
struct Where {
  const char* function;
  int rank = -1;  // -1: none is known
};

// Keeps "<function> on rank <rank>: <text>" for nearlightGetLastError and returns the code; ok leaves the
// text as it was. Allocates nothing, so that it can tell that memory is short.
nearlightResult_t to_result(const Where& where, const Status& status) noexcept;
nearlightResult_t to_result(const Where& where, Code code, const char* text) noexcept;

// Runs body(where) -> Status, which may fill in the rank, and lets no exception out.
template <class Body>
nearlightResult_t guarded(const char* function, const Body& body) noexcept {
  Where where{function};
  try {
    return to_result(where, body(where));
  } catch (const std::bad_alloc&) {
    return to_result(where, Code::system_error, "out of memory");
  } catch (const std::exception& error) {
    return to_result(where, Code::system_error, error.what());
  } catch (...) {
    return to_result(where, Code::internal_error, "an exception of unknown type");
  }
}

}  // namespace nearlight::api
