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

// What NEARLIGHT_FORCE_PATH, or nearlightCommSetPath later, asks of all calls that can do so: one-shot by a
// protocol, or two-shot by the protocol that the type takes.
struct Forced {
  bool two_shot = false;
  std::optional<Protocol> protocol;
};

// Equal on all ranks. Pointers are not among them: alignment and in-place are one rank's own.
struct Facts {
  bool gpu = false;
  int nranks = 1;
  std::size_t count = 0;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  std::uint32_t regions = 1;     // the largest grid
  std::uint32_t slots = 1;       // LL slots a region
  std::uint32_t cells = 1;       // 16-byte cells of a simple chunk
  std::uint32_t packets = 0;     // 16-byte packets of a sentinel round
  bool two_shot = true;          // whether there is code of it for this call
  const Table* table = nullptr;  // null: kH200Table, kCpuTable
  Forced forced{};
};

struct Route {
  Algorithm algorithm = Algorithm::one_shot;
  Protocol protocol = Protocol::ll;
  std::uint32_t grid = 1;          // CTAs
  std::uint32_t threads = 1;       // per CTA
  std::uint32_t held = 0;          // packs (LL) or packets (sentinel) a thread holds in registers
  std::uint32_t first_region = 0;  // GPU: the region of CTA 0; the communicator's placement says it
  const char* reason = "";         // one line for a person; static storage
};

Route all_reduce(const Facts& facts);
// Whether two-shot can cut the message so that every rank owns something of every round.
bool two_shot_fits(const Facts& facts, Protocol protocol);
// Two-shot, asked for by the caller. One-shot, with that as its reason, where two_shot_fits() does not hold.
// Code::invalid_argument: simple, or a protocol that does not carry the type (naming protocol), or a call
// that there is no code of it for (naming algorithm).
Result<Route> forced_two_shot(const Facts& facts, Protocol protocol);
// The same, with the protocol given by the caller. Code::invalid_argument, naming protocol: sentinel with a
// type that has no NaN, which could stand for "nothing has arrived".
Result<Route> forced(const Facts& facts, Protocol protocol);

}  // namespace nearlight::route
