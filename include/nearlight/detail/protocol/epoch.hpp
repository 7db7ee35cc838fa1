// Epochs number the uses of a region. Flag 0 means "never written", so an epoch is never 0; banks alternate
// by parity, so numbering goes on after the last (odd) epoch with the first even one.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/fn.hpp>

namespace nearlight::protocol {

inline constexpr std::uint32_t kFirstWrapped = 2;

template <class S>
NL_FN constexpr std::uint32_t next_epoch(std::uint32_t epoch) {
  static_assert(S::kLastEpoch % 2 == 1, "parity must alternate across the wrap");
  return epoch == S::kLastEpoch ? kFirstWrapped : epoch + 1;
}

NL_FN constexpr int bank_of(std::uint32_t epoch) { return static_cast<int>(epoch & 1u); }

// The epochs at whose end a bank is cleared (two) or the peer's clearing must be ordered before our next
// store (the third).
template <class S>
NL_FN constexpr bool touches_wrap(std::uint32_t epoch) {
  return epoch >= S::kLastEpoch - 1 || epoch == kFirstWrapped;
}

}  // namespace nearlight::protocol
