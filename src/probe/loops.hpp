// The two loops that every figure comes from, written once for GPU and CPU.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/protocol/fault.hpp>
#include <nearlight/detail/protocol/poll.hpp>

namespace nearlight::probe {

// `timed` must make a loop long beside the tick of the clock, which is up to 1 us on a GPU.
struct Laps {
  std::uint32_t warmup;
  std::uint32_t timed;
};

// Loads `line`, whose words are all 0, again and again, each load at an address that the one before gave.
// Returns the nanoseconds of the timed laps.
template <exec::ExecSpace S>
NL_FN std::uint64_t chase(const typename S::Word* line, Laps laps) {
  std::uint32_t at = 0;
  for (std::uint32_t lap = 0; lap < laps.warmup; ++lap) {
    at = S::template load<exec::Order::relaxed, exec::Scope::system>(line[at]);
  }
  const std::uint64_t start_ns = S::now_ns();
  for (std::uint32_t lap = 0; lap < laps.timed; ++lap) {
    at = S::template load<exec::Order::relaxed, exec::Scope::system>(line[at]);
  }
  return S::now_ns() - start_ns + at;  // at is 0; so the last load counts, too
}

// How a poll makes sure that what the other side stored before the word is seen after it. Nothing does not:
// it is enough where the word is all that is passed on, or carries the data itself.
enum class Arrival : std::uint32_t {
  relaxed,
  acquire,
  fence
};  // acquire: in every poll; fence: one, behind the last

// One side of a ping-pong: `first` stores into `theirs` and waits for the answer in `mine`; the other side
// answers. A value is never used twice in a line: the laps store base + 1, base + 2, ... `elapsed_ns` is the
// time of the timed laps, there and back. The stores are relaxed: nothing but the word itself is passed on.
template <exec::ExecSpace S, Arrival arrival = Arrival::relaxed>
NL_FN protocol::Wait ping_pong(const protocol::Control<S>& control, typename S::Word& mine,
                               typename S::Word& theirs, bool first, std::uint32_t base, Laps laps,
                               std::uint64_t& elapsed_ns) {
  constexpr exec::Order order = arrival == Arrival::acquire ? exec::Order::acquire : exec::Order::relaxed;
  std::uint64_t start_ns = 0;
  for (std::uint32_t lap = 1; lap <= laps.warmup + laps.timed; ++lap) {
    if (lap == laps.warmup + 1) start_ns = S::now_ns();
    if (first) S::template store<exec::Order::relaxed, exec::Scope::system>(theirs, base + lap);
    const protocol::Wait outcome = protocol::poll<S>(
        control, [&] { return S::template load<order, exec::Scope::system>(mine) == base + lap; });
    if (outcome != protocol::Wait::ok) return outcome;
    if constexpr (arrival == Arrival::fence) S::fence_system();
    if (!first) S::template store<exec::Order::relaxed, exec::Scope::system>(theirs, base + lap);
  }
  elapsed_ns = S::now_ns() - start_ns;
  return protocol::Wait::ok;
}

}  // namespace nearlight::probe
