#include "runtime/route_log.hpp"

#include <bit>
#include <cinttypes>
#include <cstdio>

#include "base/log.hpp"

namespace nearlight::runtime {

void RouteLog::begin(const route::Table& table, const route::Target& target, bool left_aside) const {
  if (!on_) return;
  log::note("route: " + std::to_string(target.nranks) + " ranks, table " + route::describe(table, target) +
            (left_aside ? "; NEARLIGHT_ROUTE_TABLE is for another number of ranks" : ""));
}

void RouteLog::note(const route::Placement& placement) const {
  if (on_) log::note("route: fastest slots: " + placement.in_words());
}

void RouteLog::note_memory(const std::string& memory, const std::string& reason) const {
  if (on_ && !reason.empty()) log::note("route: memory " + memory + ": " + reason);
}

void RouteLog::say_once(Collective collective, std::size_t count, DataType type, ReduceOp op, int nranks,
                        const route::Route& route) {
  const std::size_t bytes = count * size_of(type);
  std::uint64_t what = 0;
  for (const int part : {static_cast<int>(collective), static_cast<int>(type), static_cast<int>(op),
                         static_cast<int>(route.algorithm), static_cast<int>(route.protocol),
                         static_cast<int>(std::bit_width(bytes))}) {
    what = what << 8 | static_cast<std::uint64_t>(part);
  }
  if (!said_.insert(what).second) return;
  char line[400];
  std::snprintf(line, sizeof line,
                "route: %s of %zu %s, %s (%zu bytes), %d ranks: %s %s, %" PRIu32 " x %" PRIu32 ": %s",
                name_of(collective), count, nearlight::name_of(type), nearlight::name_of(op), bytes, nranks,
                algorithm::name_of(route.algorithm), route::protocol_name(route), route.grid,
                route.run_threads, route.reason);
  log::note(line);
}

}  // namespace nearlight::runtime
