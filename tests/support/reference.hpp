// What an AllReduce must give, worked out without the library's arithmetic: element by element, from the
// definition of each format, in double and 128-bit integers.
#pragma once

#include <cstdint>
#include <span>

#include "base/types.hpp"

namespace nearlight::test {

// Where the input of a rank comes from: a function of (seed, rank, index), so every rank knows everyone's.
enum class Values : int {
  pattern,  // small whole numbers whose sum over 8 ranks is exact in every type, cheap to make
  numbers,  // finite numbers of mixed size and sign
  bits,     // any bits at all
  special,  // NaNs with payloads, both zeros, infinities, subnormals, the ends of the range; few others
};

struct Source {
  Values values = Values::pattern;
  std::uint64_t seed = 0;
};

// The bits of one element, in the lower bytes. So are all bits here.
std::uint64_t input_bits(const Source& source, DataType type, int rank, std::uint64_t index);

// What a rank multiplies its contribution by in a pre-multiplied sum of `source`: differs from rank to rank.
std::uint64_t factor_bits(const Source& source, DataType type, int rank);
// The operator as the rank passes it: with its factor where it needs one.
Reduction reduction_of(const Source& source, DataType type, ReduceOp op, int rank);

// The reduction of `inputs`, one a rank, in rank order; `factors` likewise, for premul_sum only.
//   f32, f64: rounded after each rank. Floats of 8 and 16 bits: the same in f32, and then rounded once.
//   integers wrap; avg divides what has wrapped, towards zero. avg of floats: one more rounded division.
//   premul_sum: each product is rounded to f32 (f64: to f64) and to the type before it is added.
//   max, min: a NaN loses to a number, +0 beats -0 in max, -0 beats +0 in min.
// A result that is NaN is the type's NaN of all ones without a sign. One rank keeps its bits.
std::uint64_t reduce_reference(DataType type, ReduceOp op, std::span<const std::uint64_t> inputs,
                               std::span<const std::uint64_t> factors = {});

// The value as a double: exact, but for integers above 2^53.
double value_of(DataType type, std::uint64_t bits);
// Floats: to nearest even; NaN is all ones without a sign; what is too large is infinity, in fp8 the largest
// number.
std::uint64_t round_to(DataType type, double value);
// One unit in the last place of a float at `value`.
double ulp_at(DataType type, double value);

bool is_nan(DataType type, std::uint64_t bits);
std::uint64_t nan_of(DataType type);

// Bits of the exponent and of the mantissa of a float type.
struct Format {
  int exponent_bits, mantissa_bits;
  bool
      infinities;  // the largest exponent is for infinities and NaNs; else only the code of all ones is a NaN
  bool saturates;  // rounding gives the largest number instead of an infinity
};
Format format_of(DataType type);

std::uint64_t load_bits(DataType type, const void* data, std::uint64_t index);
void store_bits(DataType type, void* data, std::uint64_t index, std::uint64_t bits);

}  // namespace nearlight::test
