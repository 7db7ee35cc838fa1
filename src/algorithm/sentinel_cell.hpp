// What a protocol without flags must know of a type: which cell can stand for "not arrived yet", and how a
// cell of data that looks the same is sent instead.
//
// The sentinel is all ones in every bit: a NaN in each element of the cell, whatever float type it holds, and
// what a byte-wise fill of 0xff makes. No reduction gives it (their one NaN has no sign, see Lanes), so only
// inputs have to be rewritten: two-shot forwards what it has reduced as it is (the test
// SentinelCell.IsNoResult).
#pragma once

#include <cstdint>
#include <type_traits>

#include <nearlight/detail/exec/fn.hpp>
#include "algorithm/kinds.hpp"
#include "base/types.hpp"

namespace nearlight::algorithm {

// A type has a sentinel when it has NaNs: integers have not, every bit pattern of theirs is data.
template <class T>
inline constexpr bool kHasSentinel = !std::is_integral_v<T>;

// Cells are 32 bits, for f64 64: what is compared, and what is stored in one piece.
template <class T>
struct SentinelCell {
  static_assert(kHasSentinel<T>, "a type without NaN has no sentinel");
  using Cell = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  static constexpr int kPerCell = static_cast<int>(sizeof(Cell) / sizeof(T));
  static constexpr Cell kSentinel = ~Cell{0};

  // The comparison is one of integers: as floats a NaN equals nothing, and subnormals may be flushed.
  static NL_FN bool is_sentinel(Cell cell) { return cell == kSentinel; }

  // The cell as it may be sent: the sentinel with the sign of its lowest element cleared, which leaves that
  // one another NaN and touches nothing else; any other cell as it is.
  static NL_FN Cell to_send(Cell cell) { return is_sentinel(cell) ? kRewritten : cell; }

 private:
  static constexpr Cell kRewritten = kSentinel ^ (Cell{1} << (8 * sizeof(T) - 1));
};

}  // namespace nearlight::algorithm
