// Inputs whose all-reduce is known, and the comparison of a result with it.
//
// Every input is chosen so that the sum over 8 ranks is exact in fp32 in any order: a float result must match
// to the last bit, a bfloat16 result must be that sum rounded once (nearest even). A library that adds in
// bfloat16 rounds at every step; it is given `roundings` of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/types.hpp"

namespace nearlight::bench {

inline constexpr std::size_t kGuardBytes = 256;

// Element `index` of rank `rank`: as the type holds it, widened. i32: any 32 bits; f32: multiples of 2^-16 in
// [-8, 8); bf16: +-[1, 2) in steps of 2^-7.
double input_value(DataType type, std::uint64_t seed, int rank, std::size_t index);

// Fills `out`, count * size_of(type) bytes.
void fill_input(std::span<std::byte> out, DataType type, std::uint64_t seed, int rank);

// What an output holds before the operation: NaN for floats, -1 for integers.
void fill_poison(std::span<std::byte> out);
void fill_guard(std::span<std::byte> out);
// Bytes of a guard that were changed.
std::size_t changed_guard_bytes(std::span<const std::byte> guard);

struct Verdict {
  std::size_t wrong = 0;  // elements
  std::string first;      // the first wrong element, in words; empty when there is none
};

// Compares one rank's result with the all-reduce of everybody's inputs. `roundings`: how often the sum may
// have been rounded to bfloat16 on its way; 1 asks for the sum rounded once, to the bit. Ignored for other
// types and for max.
Verdict compare(std::span<const std::byte> result, DataType type, ReduceOp op, std::uint64_t seed, int nranks,
                int roundings = 1);
// The same for an input that nobody may have changed.
Verdict compare_input(std::span<const std::byte> input, DataType type, std::uint64_t seed, int rank);

}  // namespace nearlight::bench
