// What a GEMV with its AllReduce must give, worked out from its definition. Small whole numbers, whose
// products and sums are exact in f32 in whatever order: every bit is compared. With `real` values the result
// must lie as near to the exact one as docs/concepts/numerics.md says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/gemv_call.hpp"

namespace nearlight::test {

struct GemvProblem {
  int nranks = 2;
  std::size_t tokens = 1, in = 256, out = 64;
  DataType type = DataType::bf16;
  bool real = false;
  bool uneven = false;   // rank r has 8 * r columns more
  bool special = false;  // a NaN or an infinity in some rows of the matrix
  std::uint64_t seed = 1;

  std::size_t in_of(int rank) const { return in + (uneven ? 8 * static_cast<std::size_t>(rank) : 0); }
  std::string in_words() const;

  // Element by element, of `type`.
  std::vector<std::uint16_t> input_of(int rank) const;
  std::vector<std::uint16_t> weight_of(int rank) const;

  // "" when right. Of many outputs some, the first and the last among them.
  std::string check(const void* output) const;

  // The sizes of a rank's call; its buffers are the caller's.
  runtime::GemvCall call(int rank) const;

 private:
  std::uint16_t input_at(int rank, std::size_t token, std::size_t k) const;
  std::uint16_t weight_at(int rank, std::size_t row, std::size_t k) const;
  std::uint16_t number(std::uint64_t random, int largest) const;
};

}  // namespace nearlight::test
