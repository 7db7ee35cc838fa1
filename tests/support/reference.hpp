// What an AllReduce must give, worked out without the library's arithmetic: element by element, in double and
// 64-bit integers.
#pragma once

#include <cstdint>
#include <span>

#include "base/types.hpp"

namespace nearlight::test {

// Where the input of a rank comes from: a function of (seed, rank, index), so every rank knows everyone's.
enum class Values : int {
  pattern,  // small whole numbers, exact in every type, cheap to make
  numbers,  // finite numbers of mixed size and sign
  bits,     // any bits at all
  special,  // NaNs with payloads, both zeros, infinities, subnormals, the ends of the range; few others
};

struct Source {
  Values values = Values::pattern;
  std::uint64_t seed = 0;
};

// The bits of one element, bf16 in the lower 16.
std::uint32_t input_bits(const Source& source, DataType type, int rank, std::uint64_t index);

// The reduction of `inputs`, one a rank, in rank order.
//   sum: f32 is rounded to f32 after each rank; bf16 likewise, and then once to bf16; integers wrap.
//   max: a NaN loses to a number, +0 beats -0.
// A result that is NaN has no certain payload: then `any_nan` is set and the value says nothing more.
struct Expected {
  std::uint32_t bits = 0;
  bool any_nan = false;

  bool matches(DataType type, std::uint32_t got) const;
};
Expected reduce_reference(DataType type, ReduceOp op, std::span<const std::uint32_t> inputs);

// The value of an f32 or bf16 as a double, exactly.
double value_of(DataType type, std::uint32_t bits);
// Nearest even; NaN stays some NaN.
std::uint32_t round_to(DataType type, double value);
// Bits of one bf16 or f32 unit in the last place at `value`, as a double.
double ulp_at(DataType type, double value);

bool is_nan(DataType type, std::uint32_t bits);

std::uint32_t load_bits(DataType type, const void* data, std::uint64_t index);
void store_bits(DataType type, void* data, std::uint64_t index, std::uint32_t bits);

}  // namespace nearlight::test
