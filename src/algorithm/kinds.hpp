// The algorithms and protocols there are, by name.
#pragma once

#include <cstdint>

#include "base/types.hpp"

namespace nearlight::algorithm {

// nccl: the call is handed to the NCCL communicator that ours is attached to. staged: the CPU makes it, on
// copies in host memory.
enum class Algorithm { copy, one_shot, two_shot, two_shot_atomic, nccl, staged };
// Those of our own that several ranks can be told to take; one rank copies.
inline constexpr Algorithm kAlgorithms[] = {Algorithm::one_shot, Algorithm::two_shot,
                                            Algorithm::two_shot_atomic};
// The same with the hand-over.
inline constexpr Algorithm kAlgorithmsAndNccl[] = {Algorithm::one_shot, Algorithm::two_shot,
                                                   Algorithm::two_shot_atomic, Algorithm::nccl};
enum class Protocol { ll, simple, sentinel, ll128 };
inline constexpr Protocol kProtocols[] = {Protocol::ll, Protocol::simple, Protocol::sentinel,
                                          Protocol::ll128};

// Whether the type has NaNs, one of which can stand for "nothing has arrived": integers have no value to
// spare.
constexpr bool has_sentinel(DataType type) { return !is_integer(type); }
// Whether the protocol can carry the type.
constexpr bool carries(Protocol protocol, DataType type) {
  return protocol != Protocol::sentinel || has_sentinel(type);
}

// Whether the GPUs' own way has nothing to do with it: somebody else makes the call.
constexpr bool is_elsewhere(Algorithm algorithm) {
  return algorithm == Algorithm::nccl || algorithm == Algorithm::staged;
}

// Whether there is code for the two together.
constexpr bool go_together(Algorithm algorithm, Protocol protocol) {
  switch (algorithm) {
    case Algorithm::two_shot:
      return protocol == Protocol::ll || protocol == Protocol::sentinel;
    case Algorithm::two_shot_atomic:
      return protocol == Protocol::ll128;
    case Algorithm::nccl:    // chooses its own
    case Algorithm::staged:  // the CPU's affair
      return false;
    case Algorithm::copy:
    case Algorithm::one_shot:
      break;
  }
  return true;
}
// Whether the algorithm can reduce so: lines are added to by what adds whole ones, which are sums of these
// types.
constexpr bool reduces(Algorithm algorithm, DataType type, ReduceOp op) {
  if (algorithm != Algorithm::two_shot_atomic) return true;
  return (type == DataType::f32 || type == DataType::f16 || type == DataType::bf16) &&
         (op == ReduceOp::sum || op == ReduceOp::avg);
}
// The same in words.
inline constexpr const char* kAtomicCode = "float, half and bfloat16 with sum or avg";

// What inference lives on has code made for its one operator; everything else shares code that takes the
// operator as an argument, one pack a thread, without loops inside a kernel and without test delays.
constexpr bool has_own_code(DataType type, ReduceOp op) {
  if (op == ReduceOp::sum) {
    return type == DataType::f32 || type == DataType::bf16 || type == DataType::f16 || type == DataType::i32;
  }
  return op == ReduceOp::max && (type == DataType::f32 || type == DataType::bf16 || type == DataType::i32);
}
// The same in words, for error texts and help.
inline constexpr const char* kOwnCode =
    "float, bfloat16, int32 and half with sum, float, bfloat16 and int32 with max";

// Packs of LL that a thread holds at most where the type and operator have code of their own; else one.
constexpr std::uint32_t max_held(int nranks) { return nranks <= 2 ? 4 : nranks <= 4 ? 2 : 1; }

// CTAs on a GPU of all but the largest messages, at most. Of more of them two must fit an SM: so many
// threads, unless a kernel has few registers (algorithm/fit.hpp).
inline constexpr std::uint32_t kFewCtas = 64, kSharedSmThreads = 256;
// Of a CTA.
inline constexpr std::uint32_t kMaxThreads = 512;

// One-shot all-reduces of which the GPU can tell when their steps were (NEARLIGHT_TRACE).
constexpr bool is_traced(DataType type, ReduceOp op, Protocol protocol) {
  return op == ReduceOp::sum && (type == DataType::bf16 || type == DataType::f32) &&
         protocol != Protocol::ll128;
}

const char* name_of(Algorithm algorithm);
const char* name_of(Protocol protocol);

}  // namespace nearlight::algorithm
