// What the environment says about routes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.hpp"
#include "route/route.hpp"
#include "route/table.hpp"

namespace nearlight::runtime {

struct Steering {
  route::Forced forced;               // NEARLIGHT_FORCE_PATH; the same on all ranks
  std::optional<route::Table> table;  // NEARLIGHT_ROUTE_TABLE, if it is for so many ranks; likewise
  bool left_aside = false;            // that variable is set, and its table is for other groups
  bool log = false;                   // NEARLIGHT_DEBUG=route; a rank's own
};

// Code::invalid_argument names the variable and what it takes.
// Without a target (`known` is false) no table is read.
Result<Steering> read_steering(const route::Target& target, bool known = true);
// Nothing: the variable is not set, or its table is for another number of ranks.
Result<std::optional<route::Table>> read_route_table(const route::Target& target);

// Code::invalid_argument, beginning with `what`: NCCL is asked for, and none is attached; or the CPU,
// although one is.
Status check_forced(const route::Forced& forced, bool attached, const char* what);

// A path by its name, as NEARLIGHT_FORCE_PATH takes it; "" is none: the route's own choice.
// Code::invalid_argument, beginning with `what`, says what there is.
Result<route::Forced> forced_of(const std::string& text, const char* what);
// As one number, to be compared between ranks, and back in words.
std::uint64_t number_of(const route::Forced& forced);
std::string forced_in_words(std::uint64_t number);
route::Forced forced_of(std::uint64_t number);
std::uint64_t number_of(const std::optional<route::Table>& table);
std::string table_in_words(std::uint64_t number);

}  // namespace nearlight::runtime
