// The rank's own input and output, read and written in packs and vectors whatever their alignment and length.
#pragma once

#include <cstdint>
#include <type_traits>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include "base/types.hpp"

namespace nearlight::algorithm {

// `count` elements of T at an address aligned to sizeof(T). Elements past the end read as 0 and are never
// written. Alignment is this rank's own affair: it changes how the buffer is accessed, never what is sent.
template <class S, class T>
class Buffer {
 public:
  // Integer with T's size: the kernels move bits.
  using Bits = std::conditional_t<
      sizeof(T) == 1, std::uint8_t,
      std::conditional_t<sizeof(T) == 2, std::uint16_t,
                         std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;
  static_assert(sizeof(Bits) == sizeof(T));
  static constexpr std::uint64_t kPerPack = sizeof(exec::Pack) / sizeof(T);
  static constexpr std::uint64_t kPerVec = sizeof(exec::Vec) / sizeof(T);

  NL_FN Buffer(void* data, std::uint64_t count)
      : data_(static_cast<Bits*>(data)),
        count_(count),
        pack_aligned_(S::kUnalignedAccess ||
                      reinterpret_cast<std::uintptr_t>(data) % sizeof(exec::Pack) == 0),
        vec_aligned_(S::kUnalignedAccess || reinterpret_cast<std::uintptr_t>(data) % sizeof(exec::Vec) == 0) {
  }

  // A buffer of `count` of its elements, from `at` on.
  NL_FN Buffer part(std::uint64_t at, std::uint64_t count) const { return {data_ + at, count}; }
  NL_FN const void* place() const { return data_; }

  NL_FN std::uint64_t packs() const { return (count_ + kPerPack - 1) / kPerPack; }
  NL_FN std::uint64_t vecs() const { return (count_ + kPerVec - 1) / kPerVec; }
  // Vectors with no element past the end, and where vector `index` begins.
  NL_FN std::uint64_t whole_vecs() const { return count_ / kPerVec; }
  NL_FN char* vec_place(std::uint64_t index) const {
    return reinterpret_cast<char*>(data_ + index * kPerVec);
  }

  // Where a pack lies, and how many of its elements are in the buffer; may be worked out long before the
  // access.
  struct Place {
    Bits* at;
    std::uint32_t elements;  // kWhole: one access of 8 bytes gets them all
  };
  static constexpr std::uint32_t kWhole = ~std::uint32_t{0};
  NL_FN Place place_of_pack(std::uint64_t index) const {
    const std::uint64_t first = index * kPerPack;
    const std::uint64_t left = first < count_ ? count_ - first : 0;
    const auto elements = static_cast<std::uint32_t>(left < kPerPack ? left : kPerPack);
    return {data_ + first, pack_aligned_ && elements == kPerPack ? kWhole : elements};
  }
  NL_FN exec::Pack load_pack(Place place) const {
    return place.elements == kWhole ? S::load_pack(place.at) : gather(place.at, place.elements);
  }
  NL_FN void store_pack(Place place, exec::Pack pack) const {
    if (place.elements == kWhole) {
      S::store_pack(place.at, pack);
    } else {
      scatter(place.at, place.elements, pack);
    }
  }

  NL_FN exec::Vec load_vec(std::uint64_t index) const {
    const std::uint64_t first = index * kPerVec;
    if (vec_aligned_ && first + kPerVec <= count_) return S::load_vec(data_ + first);
    return {{load_pack(place_of_pack(2 * index)), load_pack(place_of_pack(2 * index + 1))}};
  }
  NL_FN void store_vec(std::uint64_t index, const exec::Vec& vec) const {
    const std::uint64_t first = index * kPerVec;
    if (vec_aligned_ && first + kPerVec <= count_) {
      S::store_vec(data_ + first, vec);
    } else {
      store_pack(place_of_pack(2 * index), vec.pack[0]);
      store_pack(place_of_pack(2 * index + 1), vec.pack[1]);
    }
  }

 private:
  // Element by element: at the end of the buffer, or all along where the address does not allow more. Out of
  // line: the straight path has no room for it.
  NL_COLD_FN static exec::Pack gather(const Bits* at, std::uint32_t elements) {
    exec::Pack pack = 0;
    for (std::uint32_t i = 0; i < elements; ++i) {
      pack |= static_cast<exec::Pack>(S::load_element(at + i)) << (8 * sizeof(T) * i);
    }
    return pack;
  }
  NL_COLD_FN static void scatter(Bits* at, std::uint32_t elements, exec::Pack pack) {
    for (std::uint32_t i = 0; i < elements; ++i) at[i] = static_cast<Bits>(pack >> (8 * sizeof(T) * i));
  }

  Bits* data_;
  std::uint64_t count_;
  bool pack_aligned_;
  bool vec_aligned_;
};

}  // namespace nearlight::algorithm
