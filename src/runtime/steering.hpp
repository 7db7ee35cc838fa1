// What the environment says about routes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.hpp"
#include "route/route.hpp"

namespace nearlight::runtime {

struct Steering {
  std::optional<route::Protocol> forced;  // NEARLIGHT_FORCE_PATH; the same on all ranks
  bool log = false;                       // NEARLIGHT_DEBUG=route; a rank's own
};

// Code::invalid_argument names the variable and what it takes.
Result<Steering> read_steering();

// As one number, to be compared between ranks, and back in words.
std::uint64_t number_of(const std::optional<route::Protocol>& forced);
std::string forced_in_words(std::uint64_t number);

}  // namespace nearlight::runtime
