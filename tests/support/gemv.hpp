// What a GEMV with its AllReduce, or with an AllGather in front, must give, worked out from its definition.
// Small whole numbers, whose products and sums are exact in f32 in whatever order: every bit is compared.
// With `real` values the result must lie as near to the exact one as docs/concepts/numerics.md says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/gemv_call.hpp"
#include "tests/support/one_way.hpp"

namespace nearlight::test {

struct GemvProblem {
  using Call = runtime::GemvCall;
  int nranks = 2;
  std::size_t tokens = 1, in = 256, out = 64;
  DataType type = DataType::bf16;
  bool real = false;
  bool gathers = false;  // `in` is what each rank has of a vector; every rank has a matrix of its own
  bool uneven = false;   // rank r has 8 * r columns more; not where vectors are gathered
  bool special = false;  // a NaN or an infinity in some rows of the matrix
  std::uint64_t seed = 1;

  std::size_t in_of(int rank) const {
    return in + (uneven && !gathers ? 8 * static_cast<std::size_t>(rank) : 0);
  }
  // Of a rank's matrix.
  std::size_t columns_of(int rank) const {
    return gathers ? in * static_cast<std::size_t>(nranks) : in_of(rank);
  }
  std::string in_words() const;

  // Element by element, of `type`.
  std::vector<std::uint16_t> input_of(int rank) const;
  std::vector<std::uint16_t> weight_of(int rank) const;

  // "" when right. Of many outputs some, the first and the last among them. `rank`: whose output it is.
  std::string check(const void* output, int rank = 0) const;

  // The sizes of a rank's call; its buffers are the caller's.
  runtime::GemvCall call(int rank) const;

  // See OneWayProblem.
  std::vector<ProblemBuffer> buffers_of(int rank) const;
  runtime::GemvCall call_on(std::span<void* const> memory, int rank, bool in_place) const;
  std::vector<Written> written_by(const runtime::GemvCall& call) const {
    return {{call.output, tokens * out * 2}};
  }
  std::string check_results(std::span<const void* const> results, int rank) const {
    return check(results[0], rank);
  }
  bool same_on_all() const { return !gathers; }

 private:
  std::uint16_t input_at(int rank, std::size_t token, std::size_t k) const;
  std::uint16_t weight_at(int rank, std::size_t row, std::size_t k) const;
  std::uint16_t number(std::uint64_t random, int largest) const;
  // All ranks' parts, one behind the other: of a token, and of a row of the matrices that make `rank`'s
  // output.
  std::vector<double> vector_of(std::size_t token) const;
  std::vector<double> row_of(int rank, std::size_t row) const;
};
static_assert(OneWayProblem<GemvProblem>);

}  // namespace nearlight::test
