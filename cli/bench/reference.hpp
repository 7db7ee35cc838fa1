// Inputs whose reduction is known, and the comparison of a result with it.
//
// Every input is chosen so that the reduction over 8 ranks is exact in fp32 in any order (but for the
// division of avg): a result must match to the last bit, a float of 8 or 16 bits must be the exact one
// rounded once (nearest even). A library that adds in the type itself rounds at every step; it is given
// `roundings` of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/collective.hpp"
#include "base/types.hpp"

namespace nearlight::bench {

inline constexpr std::size_t kGuardBytes = 256;

// Element `index` of rank `rank`, widened; integers of 64 bits lose their lowest bits. Integers: any bits;
// f32 and f64: multiples of 2^-16 in [-8, 8); other floats: +-[1, 2) in all the steps that the type has. For
// prod floats are +-1/2, 1 and 2.
double input_value(DataType type, ReduceOp op, std::uint64_t seed, int rank, std::size_t index);

// The operator as rank `rank` calls it: mulsum with its factor, 1 or 2.
Reduction reduction_of(DataType type, ReduceOp op, int rank);

// Fills `out`, count * size_of(type) bytes.
void fill_input(std::span<std::byte> out, DataType type, ReduceOp op, std::uint64_t seed, int rank);

// What an output holds before the operation: all ones, so NaN for floats.
void fill_poison(std::span<std::byte> out);
void fill_guard(std::span<std::byte> out);
// Bytes of a guard that were changed.
std::size_t changed_guard_bytes(std::span<const std::byte> guard);

struct Verdict {
  std::size_t wrong = 0;  // elements
  std::string first;      // the first wrong element, in words; empty when there is none
};

// Compares one rank's result with the all-reduce of everybody's inputs. `roundings`: how often the sum may
// have been rounded to the type on its way; 1 asks for the exact result rounded once, to the bit. Ignored
// where nothing needs rounding.
Verdict compare(std::span<const std::byte> result, DataType type, ReduceOp op, std::uint64_t seed, int nranks,
                int roundings = 1);
// The same of another collective: what this rank's output must hold. `count`: as Operation::count.
struct Part {
  Collective collective;
  int rank, nranks, root;
  std::size_t count;
};
Verdict compare(std::span<const std::byte> result, DataType type, ReduceOp op, std::uint64_t seed,
                const Part& part, int roundings = 1);
// The same for an input that nobody may have changed.
Verdict compare_input(std::span<const std::byte> input, DataType type, ReduceOp op, std::uint64_t seed,
                      int rank);

}  // namespace nearlight::bench
