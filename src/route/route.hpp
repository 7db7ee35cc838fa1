// Which algorithm, protocol and grid a call takes, from facts that are equal on all ranks, and why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "algorithm/kinds.hpp"
#include "base/status.hpp"
#include "base/types.hpp"
#include "probe/lines.hpp"
#include "route/nccl.hpp"
#include "route/table.hpp"

namespace nearlight::route {

using algorithm::Algorithm;
using algorithm::Protocol;

// What NEARLIGHT_FORCE_PATH, or nearlightCommSetPath later, asks of all calls that can do so: one-shot by a
// protocol, one of the two-shots by the protocol that the type takes, or the attached NCCL.
struct Forced {
  std::optional<Algorithm> algorithm;
  std::optional<Protocol> protocol;
  // Every call goes to whoever else can make it: the attached NCCL, else the CPU.
  bool fallback = false;
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
  std::uint32_t max_ctas = 0;  // no more CTAs than that; 0: as many as regions
  AttachedNccl nccl{};         // what a call can be handed to
  bool staged = false;         // GPUs: whether the CPU can make calls
  std::uint32_t lines = 0;     // 128-byte lines of LL128 a region, bank and rank; 0: not for this call
  std::uint32_t sums = 0;      // such lines that are added to, a bank
  bool adds_lines = true;      // GPUs: whether all have the instruction
  bool deterministic = true;   // two runs must give the same bits
  bool clusters = false;       // GPUs: whether the CTAs of all can form clusters
  bool large_shared = false;   // GPUs: whether a CTA of each may have algorithm::kGemvLargeShared
  probe::LineReport whole{};   // whether lines are known to arrive whole; CPUs: not looked at
};

struct Route {
  Algorithm algorithm = Algorithm::one_shot;
  Protocol protocol = Protocol::ll;
  std::uint32_t grid = 1;         // CTAs
  std::uint32_t threads = 1;      // per CTA, by which the message is cut
  std::uint32_t run_threads = 1;  // of them, those that run where both buffers begin at multiples of 16 bytes
  std::uint32_t held = 0;         // packs (LL) or packets (sentinel) a thread holds in registers
  std::uint32_t first_region = 0;  // GPU: the region of CTA 0; the communicator's placement says it
  const char* reason = "";         // one line for a person; static storage
};
// "none" where NCCL or the CPU has the call: they choose their own, as they do grid and threads, which are 0.
const char* protocol_name(Algorithm algorithm, Protocol protocol);
inline const char* protocol_name(const Route& route) {
  return protocol_name(route.algorithm, route.protocol);
}

Route all_reduce(const Facts& facts);
// Whether two-shot can cut the message so that every rank owns something of every round. LL128: the one that
// adds.
bool two_shot_fits(const Facts& facts, Protocol protocol);
// Two-shot, asked for by the caller. One-shot, with that as its reason, where two_shot_fits() does not hold.
// Code::invalid_argument: a protocol that does not go with it or does not carry the type (naming protocol),
// or a call that there is no code of it for (naming algorithm).
Result<Route> forced_two_shot(const Facts& facts, Protocol protocol);
// The same for the two-shot that adds, which is LL128's. Code::invalid_argument, naming deterministic: it is
// not, and the facts ask for it. Else as above.
Result<Route> forced_two_shot_atomic(const Facts& facts);
// Whether lines are known to be whole, so that LL128 (or, with `adds`, the two-shot that adds) is one of the
// choices: GPUs with NVLink between all of them, and a test that found none torn.
bool lines_are_whole(const Facts& facts, bool adds = false);
// What a person should know who forces LL128 or that two-shot all the same; "" where they are.
std::string doubt_about_lines(const Facts& facts, Algorithm algorithm);
// The same, with the protocol given by the caller. Code::invalid_argument, naming protocol: sentinel with a
// type that has no NaN, which could stand for "nothing has arrived"; ll128 where there is no memory for it.
Result<Route> forced(const Facts& facts, Protocol protocol);
// NCCL, asked for by the caller. Code::invalid_argument, naming algorithm: none is attached.
// Code::unsupported: NCCL has no such call, or this one has faults there.
Result<Route> forced_nccl(const Facts& facts);
// Why no call of these ranks takes the path that is asked for, in words (static storage); null: some do, or
// it is not known to be so.
const char* left_aside_for_all(const Facts& facts, const Forced& forced);
// The CPU, asked for by the caller. Code::unsupported, naming algorithm: it cannot be.
Result<Route> forced_staged(const Facts& facts);
// The same facts where nothing is handed over or staged, whatever the table and NEARLIGHT_FORCE_PATH say.
Facts without_nccl(Facts facts);
// Route::run_threads of a route whose grid or threads were changed.
std::uint32_t threads_that_run(const Facts& facts, const Route& route);

}  // namespace nearlight::route
