// Tiles of a matrix times a few vectors, worked out by the calling thread (exec/tile_product.hpp).
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/bits.hpp>
#include <nearlight/detail/exec/concepts.hpp>
#include "algorithm/reduce.hpp"
#include "exec/tile_product.hpp"

namespace nearlight::algorithm::host {

template <class S, class T>
class SoloTileProduct {
 public:
  explicit SoloTileProduct(const exec::TileMatrices& what) : what_(what) {}

  std::uint32_t team() const { return 0; }
  std::uint32_t teams() const { return 1; }
  void start(std::uint32_t) {}
  void take_tokens() {}
  template <class Emit>
  void work_out(std::uint32_t tile, std::uint32_t /*next*/, Emit&& emit) const {
    constexpr std::uint32_t kQuarters = exec::kTilePackets;
    for (std::uint32_t packet = 0; packet < what_.tokens * kQuarters; ++packet) {
      const std::uint32_t row = tile * exec::kTileRows + packet % kQuarters * 4;
      std::uint32_t bits[4];
      for (std::uint32_t i = 0; i < 4; ++i) bits[i] = exec::as_bits(product(row + i, packet / kQuarters));
      emit(packet, exec::Vec{{exec::join_halves(bits[0], bits[1]), exec::join_halves(bits[2], bits[3])}});
    }
  }

 private:
  using L = Lanes<S, T>;
  static_assert(L::kPerPack == 4);

  // A sum for each place in a vector of eight elements, and then those.
  float product(std::uint32_t row, std::uint32_t token) const {
    const char* const from =
        static_cast<const char*>(what_.matrix) + std::uint64_t{row} * what_.row_vecs * 16;
    const char* const with =
        static_cast<const char*>(what_.tokens_at) + std::uint64_t{token} * what_.row_vecs * 16;
    float sum[8] = {};
    for (std::uint32_t vec = 0; vec < what_.row_vecs; ++vec) {
      const exec::Vec a = S::load_vec(from + std::uint64_t{vec} * 16),
                      b = S::load_vec(with + std::uint64_t{vec} * 16);
      for (int half = 0; half < 2; ++half) {
        float left[4], right[4];
        L::widen(a.pack[half], left);
        L::widen(b.pack[half], right);
        for (int i = 0; i < 4; ++i) sum[4 * half + i] += left[i] * right[i];
      }
    }
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
  }

  exec::TileMatrices what_;
};

}  // namespace nearlight::algorithm::host
