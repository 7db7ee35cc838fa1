// What a fused AllReduce must give, worked out from its definition: inputs of any rank, and a check of what
// came out. Bits of the sum are compared; what is normalised must lie as near to the exact result as f32
// statistics and the roundings of docs/concepts/numerics.md allow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/fused_call.hpp"
#include "tests/support/one_way.hpp"

namespace nearlight::test {

struct FusedProblem {
  using Call = runtime::FusedCall;
  Collective collective = Collective::all_reduce_rms_norm;
  int nranks = 2;
  std::size_t tokens = 1, hidden = 1024;
  DataType type = DataType::bf16, output_type = DataType::bf16;
  bool residual = true;
  float eps = 1e-5f;
  float scale = 0.03f;
  std::uint64_t seed = 1;
  bool special = false;  // NaNs, infinities and the sentinel's bits here and there

  std::size_t count() const { return tokens * hidden; }
  bool normalises() const { return collective == Collective::all_reduce_rms_norm; }
  std::string in_words() const;

  // Element by element, of `type`.
  std::vector<std::uint16_t> input_of(int rank) const;
  std::vector<std::uint16_t> residual_values() const;
  std::vector<std::uint16_t> weights() const;  // or the bias
  std::size_t output_bytes() const;

  // "" when right. `sum`: what residual_out holds (of a bias: out); `output`: of rms_norm alone.
  std::string check(const void* sum, const void* output) const;

  // The sizes of a call; its buffers are the caller's.
  runtime::FusedCall call() const;

  // See OneWayProblem.
  std::vector<ProblemBuffer> buffers_of(int rank) const;
  runtime::FusedCall call_on(std::span<void* const> memory, int rank, bool in_place) const;
  std::vector<Written> written_by(const runtime::FusedCall& call) const;
  std::string check_results(std::span<const void* const> results, int /*rank*/) const {
    return check(results[0], results[1]);
  }
  bool same_on_all() const { return true; }
};
static_assert(OneWayProblem<FusedProblem>);

}  // namespace nearlight::test
