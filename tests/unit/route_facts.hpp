// What a route is chosen from, as most tests of it begin with.
#pragma once

#include <cstddef>

#include "route/route.hpp"

namespace nearlight::route {

inline probe::LineReport whole_lines() {
  probe::LineReport report;
  report.path = probe::PathType::nvl;
  report.stores = probe::LineVerdict::whole;
  return report;
}

inline Facts facts(bool gpu, int nranks, std::size_t bytes, DataType type = DataType::bf16) {
  return {.gpu = gpu,
          .nranks = nranks,
          .count = bytes / size_of(type),
          .type = type,
          .op = ReduceOp::sum,
          .regions = 64,
          .slots = 2048,
          .cells = 4096,
          .packets = 8192,
          .lines = 64,
          .whole = whole_lines()};
}

}  // namespace nearlight::route
