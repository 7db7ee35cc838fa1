// Which algorithm, protocol and grid a call takes, from facts that are equal on all ranks, and why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "algorithm/kinds.hpp"
#include "base/status.hpp"
#include "base/types.hpp"
#include "route/table.hpp"

namespace nearlight::route {

using algorithm::Algorithm;
using algorithm::Protocol;

// Equal on all ranks. Pointers are not among them: alignment and in-place are one rank's own.
struct Facts {
  bool gpu = false;
  int nranks = 1;
  std::size_t count = 0;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  std::uint32_t regions = 1;         // the largest grid
  std::uint32_t slots = 1;           // LL slots a region
  std::uint32_t cells = 1;           // 16-byte cells of a simple chunk
  std::uint32_t packets = 0;         // 16-byte packets of a sentinel round
  const Table* table = nullptr;      // null: kH200Table, kCpuTable
  std::optional<Protocol> forced{};  // NEARLIGHT_FORCE_PATH: for all calls that it can carry
};

struct Route {
  Algorithm algorithm = Algorithm::one_shot;
  Protocol protocol = Protocol::ll;
  std::uint32_t grid = 1;     // CTAs
  std::uint32_t threads = 1;  // per CTA
  std::uint32_t held = 0;     // packs (LL) or packets (sentinel) a thread holds in registers
  const char* reason = "";    // one line for a person; static storage
};

Route all_reduce(const Facts& facts);
// The same, with the protocol given by the caller. Code::invalid_argument, naming protocol: sentinel with a
// type that has no NaN, which could stand for "nothing has arrived".
Result<Route> forced(const Facts& facts, Protocol protocol);

}  // namespace nearlight::route
