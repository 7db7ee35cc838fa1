// The rank's own input and output where elements are moved and not looked at: bytes, at any address. One
// piece of code for all types.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>

namespace nearlight::algorithm {

// As Buffer, see there: packs and vectors, whatever the alignment and the length; nothing but its bytes is
// ever written, so that the neighbour of an odd end may be another rank's part.
template <class S>
class ByteBuffer {
 public:
  NL_FN ByteBuffer(void* data, std::uint64_t bytes)
      : data_(static_cast<char*>(data)),
        bytes_(bytes),
        pack_aligned_(S::kUnalignedAccess ||
                      reinterpret_cast<std::uintptr_t>(data) % sizeof(exec::Pack) == 0),
        vec_aligned_(S::kUnalignedAccess || reinterpret_cast<std::uintptr_t>(data) % sizeof(exec::Vec) == 0) {
  }

  NL_FN ByteBuffer part(std::uint64_t at, std::uint64_t bytes) const { return {data_ + at, bytes}; }
  NL_FN const void* place() const { return data_; }

  NL_FN std::uint64_t packs() const { return (bytes_ + sizeof(exec::Pack) - 1) / sizeof(exec::Pack); }
  NL_FN std::uint64_t vecs() const { return (bytes_ + sizeof(exec::Vec) - 1) / sizeof(exec::Vec); }
  NL_FN std::uint64_t whole_vecs() const { return bytes_ / sizeof(exec::Vec); }
  NL_FN char* vec_place(std::uint64_t index) const { return data_ + index * sizeof(exec::Vec); }

  struct Place {
    char* at;
    std::uint32_t bytes;  // kWhole: one access of 8 bytes gets them all
  };
  static constexpr std::uint32_t kWhole = ~std::uint32_t{0};
  NL_FN Place place_of_pack(std::uint64_t index) const {
    const std::uint64_t first = index * sizeof(exec::Pack);
    const std::uint64_t left = first < bytes_ ? bytes_ - first : 0;
    const auto bytes = static_cast<std::uint32_t>(left < sizeof(exec::Pack) ? left : sizeof(exec::Pack));
    return {data_ + first, pack_aligned_ && bytes == sizeof(exec::Pack) ? kWhole : bytes};
  }
  NL_FN exec::Pack load_pack(Place place) const {
    return place.bytes == kWhole ? S::load_pack(place.at) : gather(place.at, place.bytes);
  }
  NL_FN void store_pack(Place place, exec::Pack pack) const {
    if (place.bytes == kWhole) {
      S::store_pack(place.at, pack);
    } else {
      scatter(place.at, place.bytes, pack);
    }
  }

  NL_FN exec::Vec load_vec(std::uint64_t index) const {
    const std::uint64_t first = index * sizeof(exec::Vec);
    if (vec_aligned_ && first + sizeof(exec::Vec) <= bytes_) return S::load_vec(data_ + first);
    return {{load_pack(place_of_pack(2 * index)), load_pack(place_of_pack(2 * index + 1))}};
  }
  NL_FN void store_vec(std::uint64_t index, const exec::Vec& vec) const {
    const std::uint64_t first = index * sizeof(exec::Vec);
    if (vec_aligned_ && first + sizeof(exec::Vec) <= bytes_) {
      S::store_vec(data_ + first, vec);
    } else {
      store_pack(place_of_pack(2 * index), vec.pack[0]);
      store_pack(place_of_pack(2 * index + 1), vec.pack[1]);
    }
  }

 private:
  // The largest piece, in bytes, that both the address and the length are multiples of.
  static NL_FN std::uint32_t piece_of(const char* at, std::uint32_t bytes) {
    const auto bits = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(at)) | bytes | 8u;
    return bits & (~bits + 1u);
  }
  // Out of line: the straight path has no room for it.
  NL_COLD_FN static exec::Pack gather(const char* at, std::uint32_t bytes) {
    const std::uint32_t piece = piece_of(at, bytes);
    exec::Pack pack = 0;
    NL_NO_UNROLL
    for (std::uint32_t i = 0; i < bytes; i += piece) {
      const char* const from = at + i;
      exec::Pack one = 0;
      if (piece == 1) {
        one = S::load_element(reinterpret_cast<const std::uint8_t*>(from));
      } else if (piece == 2) {
        one = S::load_element(reinterpret_cast<const std::uint16_t*>(from));
      } else if (piece == 4) {
        one = S::load_element(reinterpret_cast<const std::uint32_t*>(from));
      } else {
        one = S::load_pack(from);
      }
      pack |= one << (8 * i);
    }
    return pack;
  }
  NL_COLD_FN static void scatter(char* at, std::uint32_t bytes, exec::Pack pack) {
    const std::uint32_t piece = piece_of(at, bytes);
    NL_NO_UNROLL
    for (std::uint32_t i = 0; i < bytes; i += piece) {
      char* const to = at + i;
      const exec::Pack one = pack >> (8 * i);
      if (piece == 1) {
        *reinterpret_cast<std::uint8_t*>(to) = static_cast<std::uint8_t>(one);
      } else if (piece == 2) {
        *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(one);
      } else if (piece == 4) {
        *reinterpret_cast<std::uint32_t*>(to) = static_cast<std::uint32_t>(one);
      } else {
        S::store_pack(to, one);
      }
    }
  }

  char* data_;
  std::uint64_t bytes_;
  bool pack_aligned_;
  bool vec_aligned_;
};

}  // namespace nearlight::algorithm
