// The two concepts a protocol is written against: where it executes (ExecSpace) and by how many threads
// (Coop).
//
// A protocol names patterns (a line that carries its own arrival, a flag that publishes plain payload), not
// fences: the host cannot promise 16-byte atomicity, and the checkers must see every ordering.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace nearlight::exec {

enum class Order { relaxed, acquire, release };
enum class Scope { block, device, system };

// A group of threads that run one protocol call together. NCCL's ncclCoopCta and ncclCoopWarp satisfy it
// unchanged. Optional: `bool sync_any(bool)`, a sync that tells whether any thread said true; where it is
// missing, a sync and a load serve.
template <class C>
concept Coop = requires(C coop, const C const_coop) {
  { const_coop.thread_rank() } -> std::convertible_to<int>;
  { const_coop.size() } -> std::convertible_to<int>;
  coop.sync();
};

// 8 bytes of payload: what an LL line carries.
using Pack = std::uint64_t;
// 16 bytes of payload: what one vector access moves.
struct alignas(16) Vec {
  Pack pack[2];
};

// What the elements of a wide line are when they are added, and the integers of models, which no GPU adds so.
enum class Adds { f32, f16, bf16, i32 };

// The packs of a wide line that one thread stores, loads or adds.
template <int kPacks>
struct LinePart {
  static_assert(kPacks >= 2);
  Pack pack[kPacks];
};

template <class S>
concept ExecSpace = requires(typename S::Line& line, const typename S::Line& const_line,
                             typename S::Word& word, const typename S::Word& const_word,
                             typename S::Cell& cell, const typename S::Cell& const_cell,
                             typename S::Packet& packet, const typename S::Packet& const_packet, Pack pack,
                             typename S::Wide& wide, const typename S::Wide& const_wide,
                             const typename S::Part& part, const Vec& vec, std::uint32_t value, Pack& out,
                             std::uint32_t& seen, std::uint32_t spins) {
  // Line: 8 bytes of payload that carry their own arrival. Stores both, relaxed or stronger, system scope.
  S::store_line(line, pack, value);
  // True only when `out` is the pack that was stored with exactly this flag. `seen` is a flag found in the
  // line.
  { S::try_load_line(const_line, value, out, seen) } -> std::same_as<bool>;
  // Word: a flag. Plain payload written before a release store is seen after the acquire load that reads it.
  S::template store<Order::release, Scope::system>(word, value);
  { S::template load<Order::acquire, Scope::system>(const_word) } -> std::convertible_to<std::uint32_t>;
  // 0 -> 1; true for the one caller that made the change. relaxed, device scope.
  { S::claim(word) } -> std::same_as<bool>;
  // Cell: 16 bytes of plain payload, ordered only by the flag beside it.
  S::store_cell(cell, vec);
  { S::load_cell(const_cell) } -> std::same_as<Vec>;
  // Packet: 16 bytes of payload that say by their value that they have arrived. Relaxed or stronger, system
  // scope, each half in one piece, the halves in any order.
  S::store_packet(packet, vec);
  { S::load_packet(const_packet) } -> std::same_as<Vec>;
  // Wide line: packs of payload and, last, a word of 8 bytes that tells of their arrival. kLineThreads
  // neighbouring threads share it, a part of S::Part each; all that run in lockstep, of several lines, call
  // these together. System scope, relaxed or stronger. *Whole*: a load that gets the word of a store, or of
  // an add, gets all that was stored or added with it. That is more than PTX promises; a test at
  // creation (probe/line_test.hpp) decides where it holds.
  { S::kLineThreads } -> std::convertible_to<int>;
  S::store_part(wide, 0, part);
  { S::load_part(const_wide, 0) } -> std::same_as<typename S::Part>;
  // Element by element, all threads' of all ranks one after the other in some order.
  S::template add_part<Adds::f32>(wide, 0, part);
  // All bits 0, as at rest. Not a message: its order is the caller's ([A3], [E2]).
  S::zero_part(wide, 0);
  // One thread's affair: a look at the word, for reports, and the word as it was before all epochs.
  { S::load_word(const_wide) } -> std::same_as<Pack>;
  S::clear_word(wide);
  // Full fence, system scope. Rare: where the epoch wraps, between the rounds of a long sentinel message.
  S::fence_system();
  // Between two polls; `spins` counts the polls of this wait.
  S::relax(spins);
  // Nanoseconds of a clock that all threads of this rank share; in a model, a count of calls.
  { S::now_ns() } -> std::convertible_to<std::uint64_t>;
  // Threads that execute in step, in runs of neighbouring ranks of the group (a warp); 1 where every thread
  // is on its own.
  { S::kLockstep } -> std::convertible_to<int>;
  // Whether all of them say true; all of them call it.
  { S::all_in_lockstep(true) } -> std::same_as<bool>;
  // Polls between two looks at the clock and the abort word: looking costs more than polling.
  { S::kPollsPerCheck } -> std::convertible_to<std::uint32_t>;
  // The epoch after which numbering starts again at kFirstWrapped; smaller in a model.
  { S::kLastEpoch } -> std::convertible_to<std::uint32_t>;
};

}  // namespace nearlight::exec
