// The NCCL that stands behind the drop-in: a table of its functions.
#pragma once

#include <cstdint>
#include <string>

#include "dropin/nccl_header.hpp"

namespace nearlight::dropin {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // a function that goes is passed on until it has
// A pointer is null where this copy has no such function.
struct RealNccl {
  void* library = nullptr;  // of dlopen
  std::string path;
  int version = 0;  // as NCCL_VERSION_CODE
  // Where its code and data are in memory.
  std::uintptr_t begin = 0, end = 0;
#define NL_FORWARDED(type, name, parameters, names) decltype(&::name) name = nullptr;
#define NL_INTERCEPTED NL_FORWARDED
#include "dropin/nccl_functions.def"
#undef NL_INTERCEPTED
#undef NL_FORWARDED
};
#pragma GCC diagnostic pop

// The copy that all calls of this process go to, found by the first of them: the one that NEARLIGHT_NCCL_LIB
// names, else the one that the program would have called (the next in its search order, else the first that
// is loaded), else libnccl.so.2 as the system finds it. Null when there is none; the reason has been told on
// stderr then, once, and is text_without_nccl().
const RealNccl* real_nccl();
const char* text_without_nccl();

// This thread is inside NCCL. What NCCL calls there by the name of its own function comes to the drop-in, as
// the loader binds it, and is passed on as it is.
class InsideNccl {
 public:
  InsideNccl() { ++depth(); }
  InsideNccl(const InsideNccl&) = delete;
  ~InsideNccl() { --depth(); }
  static bool now() { return depth() != 0; }

 private:
  static int& depth();
};

// Whether a function that returns to `address` was called by NCCL itself, in whatever thread: for what NCCL
// asks in calls that the program did not make.
bool called_by_nccl(const RealNccl& nccl, const void* address);

// Tells on stderr, once, when the process has several copies: which they are, and which one has the calls.
// Returns that text, or "" where there is one copy.
std::string report_copies();

// A function that the copy does not have: told on stderr, once a function, and ncclInvalidUsage.
ncclResult_t missing(const char* name);

}  // namespace nearlight::dropin
