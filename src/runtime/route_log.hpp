// NEARLIGHT_DEBUG=route: which route calls take, as lines on stderr.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "base/collective.hpp"
#include "base/types.hpp"
#include "route/placement.hpp"
#include "route/route.hpp"

namespace nearlight::runtime {

// Says a route once for each type, operator, protocol and power of two of the bytes. One thread at a time.
class RouteLog {
 public:
  RouteLog() = default;
  // `on`: of one rank of a group, as the others take the same routes.
  explicit RouteLog(bool on) : on_(on) {}

  bool on() const { return on_; }
  // Of a communicator: what its routes are chosen by.
  void begin(const route::Table& table, const route::Target& target, bool left_aside) const;
  void note(const route::Placement& placement) const;
  // Where the memory is, and why; says nothing where there was no choice.
  void note_memory(const std::string& memory, const std::string& reason) const;
  void note(Collective collective, std::size_t count, DataType type, ReduceOp op, int nranks,
            const route::Route& route) {
    if (on_) say_once(collective, count, type, op, nranks, route);
  }

 private:
  void say_once(Collective collective, std::size_t count, DataType type, ReduceOp op, int nranks,
                const route::Route& route);

  bool on_ = false;
  std::set<std::uint64_t> said_;
};

}  // namespace nearlight::runtime
