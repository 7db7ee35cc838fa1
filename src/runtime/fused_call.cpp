#include "runtime/fused_call.hpp"

#include <cmath>
#include <limits>

namespace nearlight::runtime {

namespace {

constexpr std::size_t kAlignment = 16;  // bytes

bool normalises(const FusedCall& call) { return call.collective == Collective::all_reduce_rms_norm; }

}  // namespace

std::size_t count_of(const FusedCall& call) { return call.tokens * call.hidden; }

Status check_shape(const FusedCall& call, int /*nranks*/) {
  if (call.type != DataType::bf16 && call.type != DataType::f16) {
    return failure(Code::invalid_argument, "type: %s is neither bfloat16 nor half", name_of(call.type));
  }
  if (call.hidden < kLeastHidden || call.hidden > kMostHidden || call.hidden % kHiddenStep != 0) {
    return failure(Code::invalid_argument, "hidden: %zu is no multiple of %zu from %zu to %zu", call.hidden,
                   kHiddenStep, kLeastHidden, kMostHidden);
  }
  if (call.tokens > kMostTokens)
    return failure(Code::invalid_argument, "tokens: %zu are more than %zu", call.tokens, kMostTokens);
  if (!normalises(call)) return {};
  const bool small = call.output_type == DataType::f8e4m3 || call.output_type == DataType::i8;
  if (!small && call.output_type != call.type) {
    return failure(Code::invalid_argument, "out_type: %s is none of %s, fp8_e4m3 and int8",
                   name_of(call.output_type), name_of(call.type));
  }
  if (!std::isfinite(call.eps) || call.eps < 0)
    return failure(Code::invalid_argument, "eps: %g is not a finite number from 0 on",
                   static_cast<double>(call.eps));
  return {};
}

std::array<NamedBuffer, 7> buffers_of(const FusedCall& call, int /*nranks*/) {
  const std::size_t row = call.hidden * size_of(call.type), all = row * call.tokens;
  if (!normalises(call)) {
    return {{{"input", "the end of input", call.input, all},
             {"out", "the end of out", call.output, all},
             {"bias", "the end of bias", call.bias, row},
             {}}};
  }
  return {{{"input", "the end of input", call.input, all},
           {"out", "the end of out", call.output, call.hidden * call.tokens * size_of(call.output_type)},
           {"residual_out", "the end of residual_out", call.residual_out, all},
           {"residual", "the end of residual", call.residual, all},
           {"weight", "the end of weight", call.weight, row},
           {"scale", "the end of scale", call.scale, sizeof(float)},
           {}}};
}

Status check_call(const FusedCall& call, int nranks) {
  NL_TRY(check_shape(call, nranks));
  if (call.tokens == 0) return {};
  const auto buffers = buffers_of(call, nranks);
  const bool scaled = normalises(call) && call.output_type != call.type;
  for (const NamedBuffer& buffer : buffers) {
    if (buffer.name == nullptr) continue;
    const bool is_scale = buffer.bytes == sizeof(float);
    if (buffer.data == nullptr && &buffer == &buffers[3] && normalises(call)) continue;  // no residual
    if (is_scale && !scaled) {
      if (buffer.data == nullptr) continue;
      return failure(Code::invalid_argument, "scale: it goes with an out_type of 8 bits, not with %s",
                     name_of(call.output_type));
    }
    NL_TRY(check_buffer(buffer, is_scale ? alignof(float) : kAlignment, "tokens"));
  }
  // Outputs stand apart from everything, but for what is read where it is written.
  for (std::size_t out = 1; out <= (normalises(call) ? 2u : 1u); ++out) {
    for (std::size_t other = 0; other < buffers.size(); ++other) {
      if (other == out || !overlap(buffers[out], buffers[other])) continue;
      const bool same =
          buffers[out].data == buffers[other].data && buffers[out].bytes == buffers[other].bytes;
      const bool output_in_input = out == 1 && other == 0;
      const bool sum_in_place = out == 2 && (other == 0 || other == 3);
      if (same && (output_in_input || sum_in_place)) continue;
      return failure(Code::invalid_argument, "%s (%p) and %s (%p) overlap", buffers[out].name,
                     buffers[out].data, buffers[other].name, buffers[other].data);
    }
  }
  return {};
}

bool can_repeat(const FusedCall& call) {
  return call.input != call.output && call.input != call.residual_out &&
         (call.residual == nullptr || call.residual != call.residual_out);
}

route::FusedFacts facts_of(const FusedCall& call) {
  return {.rows = static_cast<std::uint32_t>(call.tokens),
          .vecs = static_cast<std::uint32_t>(call.hidden / kHiddenStep),
          .normalises = normalises(call)};
}

algorithm::FusedRows rows_of(const FusedCall& call, const route::FusedRoute& route) {
  using algorithm::RowOutput;
  const auto vecs = static_cast<std::uint32_t>(call.hidden / kHiddenStep);
  algorithm::FusedRows rows{};
  rows.input = call.input;
  rows.added = normalises(call) ? call.residual : call.bias;
  rows.added_step = normalises(call) ? vecs : 0;
  rows.sum = normalises(call) ? call.residual_out : call.output;
  rows.normalises = normalises(call);
  if (rows.normalises) {
    rows.output_type = call.output_type == DataType::f8e4m3 ? RowOutput::f8e4m3
                       : call.output_type == DataType::i8   ? RowOutput::i8
                                                            : RowOutput::same;
    rows.weight = call.weight;
    rows.output = call.output;
    rows.scale = call.scale;
    rows.eps = call.eps;
    rows.inverse_hidden = 1.0f / static_cast<float>(call.hidden);
  }
  rows.rows = static_cast<std::uint32_t>(call.tokens);
  rows.vecs = vecs;
  rows.at_once = route.at_once;
  rows.spread = route.spread;
  return rows;
}

}  // namespace nearlight::runtime
