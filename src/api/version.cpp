// Which library this is, and whether it fits a header.
#include "api/result.hpp"

using namespace nearlight;       // NOLINT: the entry points below are C's
using namespace nearlight::api;  // NOLINT

nearlightResult_t nearlightGetVersion(int* version) {
  return guarded(__func__, [=](Where&) -> Status {
    if (version == nullptr) return failure(Code::invalid_argument, "version is NULL");
    *version = NEARLIGHT_VERSION_CODE;
    return {};
  });
}

nearlightResult_t nearlightCheckVersion(int header_version) {
  return guarded(__func__, [=](Where&) -> Status {
    const int major = header_version / 10000, minor = header_version / 100 % 100;
    const bool same_series = major == NEARLIGHT_MAJOR && (major > 0 || minor == NEARLIGHT_MINOR);
    if (same_series && header_version <= NEARLIGHT_VERSION_CODE) return {};
    return failure(
        Code::unsupported,
        "header_version: the program was compiled with nearlight %d.%d.%d, the library is %d.%d.%d", major,
        minor, header_version % 100, NEARLIGHT_MAJOR, NEARLIGHT_MINOR, NEARLIGHT_PATCH);
  });
}
