// What a fused AllReduce does with a row once it is reduced: adds a residual or a bias, and normalises by the
// root of the mean square. docs/concepts/numerics.md says what is rounded where.
#pragma once

#include <cstdint>

#include <nearlight/detail/exec/bits.hpp>
#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/fn.hpp>
#include "algorithm/reduce.hpp"
#include "base/types.hpp"

namespace nearlight::algorithm {

// The type of what is written: that of the rows, or one of 8 bits.
enum class RowOutput : std::uint32_t { same = 0, f8e4m3 = 1, i8 = 2 };

// Rows of `vecs` vectors of 16 bytes, one behind the other; a rank's own buffers, at multiples of 16 bytes.
struct FusedRows {
  const void* input;
  // Added to the reduced row; null: nothing is. `added_step`: vectors from what one row gets to the next
  // one's, so 0 where all rows get the same.
  const void* added;
  std::uint32_t added_step;
  void* sum;  // reduced and added, in the type of the input
  // With `normalises` alone: the row times `weight`, divided by the root of its mean square, in
  // `output_type`.
  bool normalises;
  RowOutput output_type;
  const void* weight;  // one row
  void* output;
  const float* scale;  // of an output of 8 bits, which is divided by it
  float eps;
  float inverse_hidden;  // 1 / elements of a row
  std::uint32_t rows, vecs;
  std::uint32_t at_once;  // rows that a group sends before it waits for the first of them, at least 1
  std::uint32_t spread;   // groups that share a row
};

// T: of the elements, 16 bits each.
template <class S, class T>
class RowFinish {
 public:
  using L = Lanes<S, T>;
  static_assert(L::kPerPack == 4);
  using Vec = exec::Vec;

  // Sums of squares, one for each place in a pack: short chains of additions.
  struct Squares {
    float of[4] = {0, 0, 0, 0};
    NL_FN float all() const { return (of[0] + of[1]) + (of[2] + of[3]); }
  };
  // What all vectors of a row are multiplied by.
  struct Scales {
    float root, inverse;
  };

  NL_FN explicit RowFinish(const FusedRows& rows) : rows_(rows) {}

  NL_FN const FusedRows& rows() const { return rows_; }
  // Where vector `at` of a row lies. Byte offsets fit 32 bits for none of these.
  NL_FN const char* input_place(std::uint32_t row, std::uint32_t at) const {
    return static_cast<const char*>(rows_.input) + place(row, rows_.vecs, at);
  }
  NL_FN Vec load_input(std::uint32_t row, std::uint32_t at) const {
    return S::load_vec(input_place(row, at));
  }
  NL_FN Vec load_added(std::uint32_t row, std::uint32_t at) const {
    if (rows_.added == nullptr) return {{0, 0}};
    return S::load_vec(static_cast<const char*>(rows_.added) + place(row, rows_.added_step, at));
  }
  NL_FN Vec load_weight(std::uint32_t at) const {
    if (!rows_.normalises) return {{0, 0}};
    return S::load_vec(static_cast<const char*>(rows_.weight) + place(0, 0, at));
  }
  NL_FN Vec load_sum(std::uint32_t row, std::uint32_t at) const { return S::load_vec(sum_place(row, at)); }
  NL_FN void store_sum(std::uint32_t row, std::uint32_t at, const Vec& sum) const {
    S::store_vec(sum_place(row, at), sum);
  }
  // 1 / scale, rounded.
  NL_FN float load_inverse_scale() const {
    if (rows_.output_type == RowOutput::same || !rows_.normalises) return 1;
    return S::divide(1.0f,
                     exec::as_float(S::load_element(reinterpret_cast<const std::uint32_t*>(rows_.scale))));
  }

  // What was reduced plus what is added, in f32, rounded once; its squares are counted.
  NL_FN Vec add(const Vec& reduced, const Vec& added, Squares& squares) const {
    Vec sum;
    NL_UNROLL
    for (int half = 0; half < 2; ++half) {
      sum.pack[half] = reduced.pack[half];
      float value[4];
      if (rows_.added != nullptr) {
        float more[4];
        L::widen(reduced.pack[half], value);
        L::widen(added.pack[half], more);
        NL_UNROLL
        for (int i = 0; i < 4; ++i) value[i] += more[i];
        sum.pack[half] = L::narrow(value);
      }
      // The squares are those of what is written.
      L::widen(sum.pack[half], value);
      NL_UNROLL
      for (int i = 0; i < 4; ++i) squares.of[i] += S::multiply(value[i], value[i]);
    }
    return sum;
  }

  NL_FN float root_of(float squares) const {
    return S::reciprocal_root(S::multiply(squares, rows_.inverse_hidden) + rows_.eps);
  }

  NL_FN void store_output(std::uint32_t row, std::uint32_t at, const Vec& sum, const Vec& weight,
                          const Scales& scales) const {
    Vec result;
    NL_UNROLL
    for (int half = 0; half < 2; ++half) {
      float value[4], by[4];
      L::widen(sum.pack[half], value);
      L::widen(weight.pack[half], by);
      NL_UNROLL
      for (int i = 0; i < 4; ++i) value[i] = S::multiply(S::multiply(value[i], scales.root), by[i]);
      result.pack[half] = L::narrow(value);
    }
    char* const output = static_cast<char*>(rows_.output);
    if (rows_.output_type == RowOutput::same) {
      S::store_vec(output + place(row, rows_.vecs, at), result);
    } else {
      S::store_pack(output + place(row, rows_.vecs, at) / 2, quantised(result, scales.inverse));
    }
  }

 private:
  static NL_FN std::uint64_t place(std::uint32_t row, std::uint32_t step, std::uint32_t at) {
    return (std::uint64_t{row} * step + at) * sizeof(Vec);
  }
  NL_FN char* sum_place(std::uint32_t row, std::uint32_t at) const {
    return static_cast<char*>(rows_.sum) + place(row, rows_.vecs, at);
  }
  NL_FN exec::Pack quantised(const Vec& result, float inverse) const {
    std::uint32_t word[2];
    NL_UNROLL
    for (int half = 0; half < 2; ++half) {
      float value[4];
      L::widen(result.pack[half], value);
      NL_UNROLL
      for (int i = 0; i < 4; ++i) value[i] = S::multiply(value[i], inverse);
      word[half] = rows_.output_type == RowOutput::f8e4m3
                       ? S::to_e4m3_pair(value[0], value[1]) | S::to_e4m3_pair(value[2], value[3]) << 16
                       : S::to_i8(value[0]) | S::to_i8(value[1]) << 8 | S::to_i8(value[2]) << 16 |
                             S::to_i8(value[3]) << 24;
    }
    return exec::join_halves(word[0], word[1]);
  }

  FusedRows rows_;
};

}  // namespace nearlight::algorithm
