// The collectives by number, as they stand in fault records.
#pragma once

#include <cstdint>

namespace nearlight {

enum class Collective : std::uint32_t { all_reduce = 1, barrier = 2, channel = 100 };

// As in result files: "all_reduce"; "invalid" for anything else.
constexpr const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::barrier:
      return "barrier";
    case Collective::channel:  // a kernel of somebody's own
      return "channel";
  }
  return "invalid";
}

}  // namespace nearlight
