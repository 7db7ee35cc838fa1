// The rank's own input and output, read and written in packs and vectors whatever their alignment and length.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/types.hpp"
#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>

namespace nearlight::algorithm {

// `count` elements of T at an address aligned to sizeof(T). Elements past the end read as 0 and are never written.
// Alignment is this rank's own affair: it changes how the buffer is accessed, never what is sent.
template <class S, class T>
class Buffer {
 public:
  // Integer with T's size: the kernels move bits.
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;
  static constexpr std::uint64_t kPerPack = sizeof(exec::Pack) / sizeof(T);
  static constexpr std::uint64_t kPerVec = sizeof(exec::Vec) / sizeof(T);

  NL_FN Buffer(void* data, std::uint64_t count)
      : data_(static_cast<Bits*>(data)),
        count_(count),
        pack_aligned_(S::kUnalignedAccess || reinterpret_cast<std::uintptr_t>(data) % sizeof(exec::Pack) == 0),
        vec_aligned_(S::kUnalignedAccess || reinterpret_cast<std::uintptr_t>(data) % sizeof(exec::Vec) == 0) {}

  NL_FN std::uint64_t packs() const { return (count_ + kPerPack - 1) / kPerPack; }
  NL_FN std::uint64_t vecs() const { return (count_ + kPerVec - 1) / kPerVec; }

  NL_FN exec::Pack load_pack(std::uint64_t index) const {
    const std::uint64_t first = index * kPerPack;
    if (pack_aligned_ && first + kPerPack <= count_) return S::load_pack(data_ + first);
    return gather(first);
  }
  NL_FN void store_pack(std::uint64_t index, exec::Pack pack) const {
    const std::uint64_t first = index * kPerPack;
    if (pack_aligned_ && first + kPerPack <= count_) {
      S::store_pack(data_ + first, pack);
    } else {
      scatter(first, pack);
    }
  }

  NL_FN exec::Vec load_vec(std::uint64_t index) const {
    const std::uint64_t first = index * kPerVec;
    if (vec_aligned_ && first + kPerVec <= count_) return S::load_vec(data_ + first);
    return {{gather(first), gather(first + kPerPack)}};
  }
  NL_FN void store_vec(std::uint64_t index, const exec::Vec& vec) const {
    const std::uint64_t first = index * kPerVec;
    if (vec_aligned_ && first + kPerVec <= count_) {
      S::store_vec(data_ + first, vec);
    } else {
      scatter(first, vec.pack[0]);
      scatter(first + kPerPack, vec.pack[1]);
    }
  }

 private:
  NL_FN exec::Pack gather(std::uint64_t first) const {
    exec::Pack pack = 0;
    NL_UNROLL
    for (std::uint64_t i = 0; i < kPerPack; ++i) {
      if (first + i < count_) {
        pack |= static_cast<exec::Pack>(S::load_element(data_ + first + i)) << (8 * sizeof(T) * i);
      }
    }
    return pack;
  }
  NL_FN void scatter(std::uint64_t first, exec::Pack pack) const {
    NL_UNROLL
    for (std::uint64_t i = 0; i < kPerPack; ++i) {
      if (first + i < count_) data_[first + i] = static_cast<Bits>(pack >> (8 * sizeof(T) * i));
    }
  }

  Bits* data_;
  std::uint64_t count_;
  bool pack_aligned_;
  bool vec_aligned_;
};

}  // namespace nearlight::algorithm
