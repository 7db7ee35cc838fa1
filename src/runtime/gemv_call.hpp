// A call of a GEMV with its AllReduce, or with an AllGather in front: what the caller gives, what is wrong
// with it, and what the algorithm gets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "algorithm/gemv.hpp"
#include "base/collective.hpp"
#include "base/status.hpp"
#include "base/types.hpp"
#include "route/gemv.hpp"
#include "runtime/named_buffer.hpp"

namespace nearlight::runtime {

// gemv_all_reduce: output[tokens][out] = the sum over the ranks of input[tokens][in] * weight[out][in]
// transposed: each rank has some columns of a matrix, not necessarily as many as another, and the elements
// that go with them.
// all_gather_gemv: output[tokens][out] = (all ranks' input[tokens][in], side by side) * weight[out][in of all
// ranks] transposed: each rank has some rows of a matrix, as many as every other, and a part of the tokens.
// Matrices row by row without gaps.
struct GemvCall {
  Collective collective = Collective::gemv_all_reduce;
  const void* input = nullptr;
  const void* weight = nullptr;
  void* output = nullptr;
  std::size_t tokens = 0, in = 0, out = 0;
  DataType type = DataType::bf16;
};

// Of the columns of a rank's matrix, and of `out`.
inline constexpr std::size_t kGemvStep = 8;
static_assert(kGemvStep == exec::kTileRows);
inline constexpr std::size_t kMostGemvIn = 65536, kMostGemvOut = std::size_t{1} << 20;
inline constexpr std::size_t kMostGemvTokens = exec::kMostTokens;

// What a communicator asks of every call that has one way (runtime/one_way.hpp).
std::size_t count_of(const GemvCall& call);
Status check_call(const GemvCall& call, int nranks);
Status check_shape(const GemvCall& call, int nranks);
std::array<NamedBuffer, 3> buffers_of(const GemvCall& call, int nranks);
inline bool can_repeat(const GemvCall&) { return true; }  // no output is in the place of an input

algorithm::Gemv gemv_of(const GemvCall& call, int nranks);
route::GemvFacts facts_of(const GemvCall& call, int nranks);

}  // namespace nearlight::runtime
