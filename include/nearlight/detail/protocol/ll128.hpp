// LL128: lines of 128 bytes, 120 of payload and a word of 8 that tells of its arrival. Any data, no reset, no
// fence, where a line is whole: who sees the word sees the payload that came with it (ExecSpace, S::Wide).
//
// Two uses of a line. A *message* is stored by one rank and its word is the epoch, in both halves: as LL, and
// reused by the same rule (E1). A *sum* is added to by all ranks and its word is the sum of 2^rank, which is
// exact in every type that is added, and says who is missing.
//
// Orderings: [W1] store_part pairs with [W2] load_part of the same line and epoch; [A1] add_part with [A2]
// load_part of the same sum. None but the line's own. [A3] The owner sets a sum to zero once it has read it:
// our zeros < fence, or the end of our session < our next send, of whatever protocol < the peer hears it <
// the peer's fence, or the end of its session < the peer's next add. That is the sentinel's [N3] word for
// word: a sum of epoch e is next added to in epoch e+2, by a rank that has heard our e+1.
//
// The work goes by units: the lines of all threads in lockstep, in one access (a warp: four lines).
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/bits.hpp>
#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include <nearlight/detail/exec/small_float.hpp>
#include <nearlight/detail/protocol/epoch.hpp>
#include <nearlight/detail/protocol/fault.hpp>
#include <nearlight/detail/protocol/region.hpp>

namespace nearlight::protocol {

// A thread's place in a unit, and the sizes of one.
template <exec::ExecSpace S>
class LineSeat {
 public:
  using Part = typename S::Part;
  static constexpr int kPartPacks = static_cast<int>(sizeof(Part) / sizeof(exec::Pack));
  static constexpr std::uint32_t kLinePacks = S::kLineThreads * kPartPacks - 1;  // of payload
  static constexpr std::uint32_t kUnitLines = S::kLockstep / S::kLineThreads;
  static constexpr std::uint32_t kUnitPacks = kUnitLines * kLinePacks;
  static_assert(S::kLockstep % S::kLineThreads == 0);

  // `lane`: of the group; units are shared out to runs of threads in lockstep.
  NL_FN explicit LineSeat(std::uint32_t lane)
      : line_(lane % S::kLockstep / S::kLineThreads), part_(static_cast<int>(lane % S::kLineThreads)) {}

  NL_FN std::uint32_t line_of(std::uint32_t unit) const { return unit * kUnitLines + line_; }
  NL_FN int part() const { return part_; }
  // The thread whose part ends with the word.
  NL_FN bool has_word() const { return part_ == S::kLineThreads - 1; }
  // Whether the i-th pack of the part is payload, and which of the unit's.
  NL_FN bool is_payload(int i) const { return i < kPartPacks - 1 || !has_word(); }
  NL_FN std::uint32_t pack(int i) const {
    return line_ * kLinePacks + static_cast<std::uint32_t>(part_ * kPartPacks + i);
  }
  NL_FN Part with_word(Part part, exec::Pack word) const {
    if (has_word()) part.pack[kPartPacks - 1] = word;
    return part;
  }
  // Whether the part says that the line has come; without the word it says nothing against it.
  NL_FN bool has_come(const Part& part, exec::Pack word) const {
    return !has_word() | (part.pack[kPartPacks - 1] == word);
  }

 private:
  std::uint32_t line_;
  int part_;
};

NL_FN exec::Pack message_word(std::uint32_t epoch) { return exec::join_halves(epoch, epoch); }

// The calling thread's part of unit `unit`, to one other rank. All threads in lockstep call it.
template <RegionView V, class Seat>
NL_FN void ll128_send(const V& view, int peer, std::uint32_t unit, const Seat& seat,
                      const typename V::Space::Part& part, std::uint32_t epoch) {
  V::Space::store_part(view.wide(peer, bank_of(epoch), view.rank(), seat.line_of(unit)), seat.part(),
                       seat.with_word(part, message_word(epoch)));  // [W1]
}
// One look at it, from one other rank: whether nothing this thread sees is missing. What all threads in
// lockstep got in one look in which none misses anything is the message.
template <RegionView V, class Seat>
NL_FN bool ll128_try_receive(const V& view, int source, std::uint32_t unit, const Seat& seat,
                             std::uint32_t epoch, typename V::Space::Part& got) {
  got = V::Space::load_part(view.wide(view.rank(), bank_of(epoch), source, seat.line_of(unit)),
                            seat.part());  // [W2]
  return seat.has_come(got, message_word(epoch));
}

// The same to, and from, every other rank; got[i] is the one of other_rank(i, rank).
template <int kMax, RegionView V, class Seat>
NL_FN void ll128_broadcast(const V& view, std::uint32_t unit, const Seat& seat,
                           const typename V::Space::Part& part, std::uint32_t epoch) {
  NL_UNROLL
  for (int hop = 1; hop < kMax; ++hop) {
    if (hop >= view.nranks()) break;
    ll128_send(view, rank_after(hop, view), unit, seat, part, epoch);
  }
}
template <int kMax, RegionView V, class Seat>
NL_FN bool ll128_try_gather(const V& view, std::uint32_t unit, const Seat& seat, std::uint32_t epoch,
                            typename V::Space::Part (&got)[kMax - 1]) {
  bool all = true;
  NL_UNROLL
  for (int i = 0; i < kMax - 1; ++i) {
    if (i >= view.nranks() - 1) break;
    all &= ll128_try_receive(view, other_rank(i, view.rank()), unit, seat, epoch, got[i]);
  }
  return all;
}

// The word of a sum to which the ranks in `mask` (bit r: rank r) have added; others' elements of it are 0.
template <exec::Adds adds>
NL_FN exec::Pack sum_word(std::uint32_t mask) {
  const auto number = static_cast<float>(mask);
  if constexpr (adds == exec::Adds::i32) return mask;
  if constexpr (adds == exec::Adds::f16) return exec::HalfFormat::narrow(number);
  return exec::as_bits(number) >> (adds == exec::Adds::bf16 ? 16 : 0);
}
// And back.
template <exec::Adds adds>
NL_FN std::uint32_t ranks_in(exec::Pack word) {
  const std::uint32_t low = exec::low_half(word);
  if constexpr (adds == exec::Adds::i32) return low;
  float number = exec::as_float(adds == exec::Adds::bf16 ? low << 16 : low);
  if constexpr (adds == exec::Adds::f16) number = exec::HalfFormat::widen(low & 0xffffu);
  return static_cast<std::uint32_t>(number);
}

// Adds the calling thread's part to a sum of `owner`, which may be the rank itself.
template <exec::Adds adds, RegionView V, class Seat>
NL_FN void sum_add(const V& view, int owner, std::uint32_t unit, const Seat& seat,
                   const typename V::Space::Part& part, std::uint32_t epoch) {
  V::Space::template add_part<adds>(view.sum(owner, bank_of(epoch), seat.line_of(unit)), seat.part(),
                                    seat.with_word(part, sum_word<adds>(1u << view.rank())));  // [A1]
}
// One look at an own sum: whether all have added theirs, as ll128_try_receive.
template <exec::Adds adds, RegionView V, class Seat>
NL_FN bool sum_try_take(const V& view, std::uint32_t unit, const Seat& seat, std::uint32_t epoch,
                        typename V::Space::Part& got) {
  got = V::Space::load_part(view.sum(view.rank(), bank_of(epoch), seat.line_of(unit)), seat.part());  // [A2]
  return seat.has_come(got, sum_word<adds>((1u << view.nranks()) - 1));
}
// After it was read: the next but one epoch finds it at rest. [A3] is the caller's.
template <RegionView V, class Seat>
NL_FN void sum_zero(const V& view, std::uint32_t unit, const Seat& seat, std::uint32_t epoch) {
  V::Space::zero_part(view.sum(view.rank(), bank_of(epoch), seat.line_of(unit)), seat.part());
}

// For the fault record: who is missing in a unit's line of this thread, of `source` alone or (-1) of all
// others.
template <RegionView V, class Seat>
struct Ll128Missing {
  V view;
  Seat seat;
  std::uint32_t epoch, unit;
  int source;

  NL_FN void operator()(FaultRecord& fault) const {
    fault.slot = seat.line_of(unit);
    fault.expected = fault.seen = epoch;
    for (int one = 0; one < view.nranks(); ++one) {
      if (one == view.rank() || (source >= 0 && one != source)) continue;
      const exec::Pack word = V::Space::load_word(view.wide(view.rank(), bank_of(epoch), one, fault.slot));
      if (word == message_word(epoch)) continue;
      fault.peer = one;
      fault.seen = exec::low_half(word);
      return;
    }
  }
};
// The same of a sum. There is no number in it: `seen` is 0.
template <exec::Adds adds, RegionView V, class Seat>
struct SumMissing {
  V view;
  Seat seat;
  std::uint32_t epoch, unit;

  NL_FN void operator()(FaultRecord& fault) const {
    fault.slot = seat.line_of(unit);
    fault.expected = fault.seen = epoch;
    const std::uint32_t there =
        ranks_in<adds>(V::Space::load_word(view.sum(view.rank(), bank_of(epoch), fault.slot)));
    for (int one = 0; one < view.nranks(); ++one) {
      if ((there >> one & 1u) != 0) continue;
      fault.peer = one;
      fault.seen = 0;
      return;
    }
  }
};

}  // namespace nearlight::protocol
