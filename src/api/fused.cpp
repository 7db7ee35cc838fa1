// The fused calls.
#include <algorithm>
#include <cstring>

#include "api/arguments.hpp"
#include "api/handles.hpp"
#include "api/result.hpp"
#include "runtime/fused_call.hpp"
#include "runtime/gemv_call.hpp"

namespace nearlight::api {

static_assert(sizeof(nearlightRmsNorm_t) >= kFirstRmsNormBytes);

namespace {

Result<runtime::FusedCall> to_call(const nearlightRmsNorm_t* given) {
  NL_TRY(check_sized("norm", given, kFirstRmsNormBytes));
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  if (std::any_of(bytes + sizeof *given, bytes + std::max(given->size, sizeof *given),
                  [](unsigned char byte) { return byte != 0; })) {
    return failure(Code::unsupported, "norm: a field is set that this version does not know (size is %zu)",
                   given->size);
  }
  if (given->reserved != 0) return failure(Code::invalid_argument, "norm->reserved is %u", given->reserved);
  runtime::FusedCall call;
  NL_TRY_ASSIGN(call.type, to_type(given->type));
  const auto output_type = to_type(given->out_type);
  NL_TRY(output_type.status().with_context("out_type"));
  call.output_type = *output_type;
  call.collective = Collective::all_reduce_rms_norm;
  call.input = given->input;
  call.output = given->out;
  call.tokens = given->tokens;
  call.hidden = given->hidden;
  call.residual = given->residual;
  call.residual_out = given->residual_out;
  call.weight = given->weight;
  call.eps = given->eps;
  call.scale = given->scale;
  return call;
}

}  // namespace

}  // namespace nearlight::api

using namespace nearlight;       // NOLINT: the entry points below are C's
using namespace nearlight::api;  // NOLINT

nearlightResult_t nearlightAllReduceRmsNorm(const nearlightRmsNorm_t* norm, nearlightComm_t comm,
                                            struct CUstream_st* stream) {
  return guarded(__func__, [=](Where& where) -> Status {
    const Call call(comm);
    if (!call) return call.status();
    where.rank = call.rank();
    NL_TRY_ASSIGN(const runtime::FusedCall fused, to_call(norm));
    return call->fused(fused, stream);
  });
}

nearlightResult_t nearlightAllReduceBias(const void* input, const void* bias, void* out, size_t tokens,
                                         size_t hidden, nearlightDataType_t type, nearlightComm_t comm,
                                         struct CUstream_st* stream) {
  return guarded(__func__, [=](Where& where) -> Status {
    const Call call(comm);
    if (!call) return call.status();
    where.rank = call.rank();
    runtime::FusedCall fused;
    NL_TRY_ASSIGN(fused.type, to_type(type));
    fused.collective = Collective::all_reduce_bias;
    fused.input = input;
    fused.output = out;
    fused.bias = bias;
    fused.tokens = tokens;
    fused.hidden = hidden;
    return call->fused(fused, stream);
  });
}

namespace {

nearlightResult_t multiply(const char* name, const runtime::GemvCall& sizes, nearlightDataType_t type,
                           nearlightComm_t comm, struct CUstream_st* stream) {
  return guarded(name, [=](Where& where) -> Status {
    const Call call(comm);
    if (!call) return call.status();
    where.rank = call.rank();
    runtime::GemvCall gemv = sizes;
    NL_TRY_ASSIGN(gemv.type, to_type(type));
    return call->gemv(gemv, stream);
  });
}

}  // namespace

nearlightResult_t nearlightGemvAllReduce(const void* input, const void* weight, void* out, size_t tokens,
                                         size_t in_size, size_t out_size, nearlightDataType_t type,
                                         nearlightComm_t comm, struct CUstream_st* stream) {
  return multiply(__func__, {Collective::gemv_all_reduce, input, weight, out, tokens, in_size, out_size},
                  type, comm, stream);
}

nearlightResult_t nearlightAllGatherGemv(const void* input, const void* weight, void* out, size_t tokens,
                                         size_t in_size, size_t out_size, nearlightDataType_t type,
                                         nearlightComm_t comm, struct CUstream_st* stream) {
  return multiply(__func__, {Collective::all_gather_gemv, input, weight, out, tokens, in_size, out_size},
                  type, comm, stream);
}
