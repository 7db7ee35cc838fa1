// A call of a fused AllReduce: what the caller gives, what is wrong with it, and what the algorithm gets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "algorithm/row_finish.hpp"
#include "base/collective.hpp"
#include "base/status.hpp"
#include "base/types.hpp"
#include "route/fused.hpp"
#include "runtime/named_buffer.hpp"

namespace nearlight::runtime {

// Matrices of `tokens` rows of `hidden` elements, row by row without gaps.
//   all_reduce_rms_norm: residual_out = all_reduce(input) + residual; output = rms_norm(residual_out) *
//   weight all_reduce_bias: output = all_reduce(input) + bias, the same row for all tokens
struct FusedCall {
  Collective collective = Collective::all_reduce_rms_norm;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t tokens = 0, hidden = 0;
  DataType type = DataType::bf16;
  const void* bias = nullptr;
  // all_reduce_rms_norm alone, from here on.
  const void* residual = nullptr;  // null: nothing is added
  void* residual_out = nullptr;
  const void* weight = nullptr;
  float eps = 1e-6f;
  DataType output_type = DataType::bf16;
  const float* scale = nullptr;  // of an output of 8 bits
};

inline constexpr std::size_t kLeastHidden = 1024, kMostHidden = 16384, kHiddenStep = 8;
inline constexpr std::size_t kMostTokens = std::size_t{1} << 20;

// What a communicator asks of every call that has one way (runtime/one_way.hpp); nothing of a fused one
// depends on the number of ranks.
std::size_t count_of(const FusedCall& call);
Status check_call(const FusedCall& call, int nranks);
Status check_shape(const FusedCall& call, int nranks);
std::array<NamedBuffer, 7> buffers_of(const FusedCall& call, int nranks);
bool can_repeat(const FusedCall& call);

algorithm::FusedRows rows_of(const FusedCall& call, const route::FusedRoute& route);
route::FusedFacts facts_of(const FusedCall& call);

}  // namespace nearlight::runtime
