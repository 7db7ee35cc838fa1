// A region: the part of every rank's scratch that belongs to one CTA index (on the CPU: to the rank's one
// driver).
//
//   flags    [bank 2][source rank]          one 128-byte line each, for the simple protocol
//   lines    [bank 2][source rank][slot]    16 bytes each, for LL
//   payload  [bank 2][source rank][cell]    16 bytes each, for the simple protocol
//   packets  [bank 2][source rank][packet]  16 bytes each, for the sentinel protocol; at rest all bits set
//   wide     [bank 2][source rank][line]    128 bytes each, for LL128
//   sums     [bank 2][line]                 128 bytes each, to which all ranks add; at rest zero
//
// The places depend on the number of ranks and on the configured sizes only, never on a message: a flag that
// moved with the message size would be overwritten by another message's payload. LL lines, payload,
// packets, wide lines and sums share no byte for the same reason. The epoch and the failure word are the
// rank's own and lie outside (RegionState).
#pragma once

#include <cstddef>
#include <cstdint>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>

namespace nearlight::protocol {

inline constexpr int kBanks = 2;
inline constexpr std::size_t kFlagStride = 128;  // bytes; one flag a cache line, of GPU and CPU
inline constexpr int kMaxRanks = 8;
inline constexpr std::size_t kWideBytes = 128;
inline constexpr std::uint32_t kWideStep = 4;  // the lines of a warp

struct RegionLayout {
  std::int32_t nranks = 0;
  std::uint32_t slots = 0;    // LL lines per bank and source
  std::uint32_t cells = 0;    // 16-byte payload cells per bank and source
  std::uint32_t packets = 0;  // likewise, packets of the sentinel protocol
  std::uint32_t wide = 0;     // likewise, lines of LL128; a multiple of kWideStep
  std::uint32_t sums = 0;     // lines per bank that are added to; likewise

  NL_HOST_FN std::size_t flags_bytes() const {
    return kFlagStride * kBanks * static_cast<std::size_t>(nranks);
  }
  NL_HOST_FN std::size_t lines_bytes() const {
    return std::size_t{16} * kBanks * static_cast<std::size_t>(nranks) * slots;
  }
  NL_HOST_FN std::size_t payload_bytes() const {
    return std::size_t{16} * kBanks * static_cast<std::size_t>(nranks) * cells;
  }
  NL_HOST_FN std::size_t packets_bytes() const {
    return std::size_t{16} * kBanks * static_cast<std::size_t>(nranks) * packets;
  }
  // Where the packets begin in a region.
  NL_HOST_FN std::size_t packets_at() const { return flags_bytes() + lines_bytes() + payload_bytes(); }
  // Where the wide lines begin, and behind them the sums.
  NL_HOST_FN std::size_t wide_at() const {
    return (packets_at() + packets_bytes() + kWideBytes - 1) / kWideBytes * kWideBytes;
  }
  NL_HOST_FN std::size_t wide_bytes() const {
    return kWideBytes * kBanks * static_cast<std::size_t>(nranks) * wide;
  }
  NL_HOST_FN std::size_t sums_bytes() const { return kWideBytes * kBanks * sums; }
  // A multiple of kFlagStride.
  NL_HOST_FN std::size_t region_bytes() const { return wide_at() + wide_bytes() + sums_bytes(); }
};

// What a protocol asks of a region; the model checker has its own.
template <class V>
concept RegionView = requires(const V& view, int peer, int bank, int source, std::uint32_t index) {
  typename V::Space;
  { view.rank() } -> std::convertible_to<int>;
  { view.nranks() } -> std::convertible_to<int>;
  { view.slots() } -> std::convertible_to<std::uint32_t>;
  { view.cells() } -> std::convertible_to<std::uint32_t>;
  { view.packets() } -> std::convertible_to<std::uint32_t>;
  { view.wide_lines() } -> std::convertible_to<std::uint32_t>;
  { view.sum_lines() } -> std::convertible_to<std::uint32_t>;
  { view.line(peer, bank, source, index) } -> std::same_as<typename V::Space::Line&>;
  { view.flag(peer, bank, source) } -> std::same_as<typename V::Space::Word&>;
  { view.cell(peer, bank, source, index) } -> std::same_as<typename V::Space::Cell&>;
  { view.packet(peer, bank, source, index) } -> std::same_as<typename V::Space::Packet&>;
  { view.wide(peer, bank, source, index) } -> std::same_as<typename V::Space::Wide&>;
  { view.sum(peer, bank, index) } -> std::same_as<typename V::Space::Wide&>;
};

// The number of ranks where it is a constant of the view's type, else 0.
template <RegionView V>
NL_FN constexpr int known_ranks() {
  if constexpr (requires { V::kKnownRanks; }) return V::kKnownRanks;
  return 0;
}
// The rank `hop` places after one's own, round the circle. 0 < hop < nranks.
template <RegionView V>
NL_FN int rank_after(int hop, const V& view) {
  const int rank = view.rank() + hop;
  return rank >= view.nranks() ? rank - view.nranks() : rank;
}
// The rank that stands at place `index` when one's own rank is left out.
NL_FN constexpr int other_rank(int index, int rank) { return index < rank ? index : index + 1; }

// A region of a symmetric heap: base + peer * stride + offset, no table to read.
// kRanks: the number of ranks where it is known at compile time, else 0.
template <exec::ExecSpace S, int kRanks = 0>
class FlatRegion {
 public:
  using Space = S;
  static constexpr int kKnownRanks = kRanks;

  // `base`: where rank 0's region lies; `stride`: bytes from one rank's heap to the next.
  NL_HOST_FN FlatRegion(char* base, std::size_t stride, int rank, const RegionLayout& layout)
      : base_(base), stride_(stride), rank_(rank), layout_(layout) {}

  NL_FN int rank() const { return rank_; }
  NL_FN int nranks() const {
    if constexpr (kRanks > 0) return kRanks;
    return layout_.nranks;
  }
  NL_FN std::uint32_t slots() const { return layout_.slots; }
  NL_FN std::uint32_t cells() const { return layout_.cells; }
  NL_FN std::uint32_t packets() const { return layout_.packets; }
  NL_FN std::uint32_t wide_lines() const { return layout_.wide; }
  NL_FN std::uint32_t sum_lines() const { return layout_.sums; }

  NL_FN typename S::Word& flag(int peer, int bank, int source) const {
    return *reinterpret_cast<typename S::Word*>(of(peer) + kFlagStride * row(bank, source));
  }
  NL_FN typename S::Line& line(int peer, int bank, int source, std::uint32_t slot) const {
    return reinterpret_cast<typename S::Line*>(
        of(peer) + layout_.flags_bytes())[row(bank, source) * layout_.slots + slot];
  }
  NL_FN typename S::Cell& cell(int peer, int bank, int source, std::uint32_t index) const {
    return reinterpret_cast<typename S::Cell*>(
        of(peer) + layout_.flags_bytes() + layout_.lines_bytes())[row(bank, source) * layout_.cells + index];
  }
  NL_FN typename S::Packet& packet(int peer, int bank, int source, std::uint32_t index) const {
    return reinterpret_cast<typename S::Packet*>(
        of(peer) + layout_.packets_at())[row(bank, source) * layout_.packets + index];
  }

  NL_FN typename S::Wide& wide(int peer, int bank, int source, std::uint32_t line) const {
    return reinterpret_cast<typename S::Wide*>(of(peer) +
                                               layout_.wide_at())[row(bank, source) * layout_.wide + line];
  }
  NL_FN typename S::Wide& sum(int peer, int bank, std::uint32_t line) const {
    return reinterpret_cast<typename S::Wide*>(
        of(peer) + layout_.wide_at() +
        layout_.wide_bytes())[static_cast<std::size_t>(bank) * layout_.sums + line];
  }

 private:
  NL_FN char* of(int peer) const { return base_ + static_cast<std::size_t>(peer) * stride_; }
  NL_FN std::size_t row(int bank, int source) const {
    return static_cast<std::size_t>(bank * nranks() + source);
  }

  static_assert(sizeof(typename S::Wide) == kWideBytes);

  char* base_;
  std::size_t stride_;
  int rank_;
  RegionLayout layout_;
};

}  // namespace nearlight::protocol
