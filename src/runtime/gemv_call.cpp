#include "runtime/gemv_call.hpp"

namespace nearlight::runtime {

namespace {

constexpr std::size_t kAlignment = 16;  // bytes

Status check_size(const char* name, std::size_t size, std::size_t most) {
  if (size != 0 && size <= most && size % kGemvStep == 0) return {};
  return failure(Code::invalid_argument, "%s: %zu is no multiple of %zu from %zu to %zu", name, size,
                 kGemvStep, kGemvStep, most);
}

bool gathers(const GemvCall& call) { return call.collective == Collective::all_gather_gemv; }
// Of the matrix of a rank. Sizes have not been checked.
std::size_t columns_of(const GemvCall& call, int nranks) {
  return gathers(call) ? call.in * static_cast<std::size_t>(nranks) : call.in;
}

}  // namespace

Status check_shape(const GemvCall& call, int nranks) {
  if (call.type != DataType::bf16 && call.type != DataType::f16) {
    return failure(Code::invalid_argument, "type: %s is neither bfloat16 nor half", name_of(call.type));
  }
  NL_TRY(check_size(
      "in_size", call.in,
      gathers(call) ? kMostGemvIn / static_cast<std::size_t>(nranks) / kGemvStep * kGemvStep : kMostGemvIn));
  NL_TRY(check_size("out_size", call.out, kMostGemvOut));
  if (call.tokens > kMostGemvTokens)
    return failure(Code::invalid_argument, "tokens: %zu are more than %zu", call.tokens, kMostGemvTokens);
  return {};
}

std::size_t count_of(const GemvCall& call) { return call.tokens * (gathers(call) ? call.in : call.out); }

std::array<NamedBuffer, 3> buffers_of(const GemvCall& call, int nranks) {
  const std::size_t element = size_of(call.type);
  return {{{"input", "the end of input", call.input, call.tokens * call.in * element},
           {"weight", "the end of weight", call.weight, call.out * columns_of(call, nranks) * element},
           {"out", "the end of out", call.output, call.tokens * call.out * element}}};
}

Status check_call(const GemvCall& call, int nranks) {
  NL_TRY(check_shape(call, nranks));
  if (call.tokens == 0) return {};
  const auto buffers = buffers_of(call, nranks);
  const char* const sizes[] = {"in_size", "out_size", "out_size"};
  for (std::size_t i = 0; i < buffers.size(); ++i) NL_TRY(check_buffer(buffers[i], kAlignment, sizes[i]));
  for (std::size_t other = 0; other < 2; ++other) {
    if (!overlap(buffers[2], buffers[other])) continue;
    return failure(Code::invalid_argument, "out (%p) and %s (%p) overlap", buffers[2].data,
                   buffers[other].name, buffers[other].data);
  }
  return {};
}

algorithm::Gemv gemv_of(const GemvCall& call, int nranks) {
  algorithm::Gemv gemv{};
  gemv.input = call.input;
  gemv.weight = call.weight;
  gemv.output = call.output;
  gemv.tokens = static_cast<std::uint32_t>(call.tokens);
  gemv.in_vecs = static_cast<std::uint32_t>(columns_of(call, nranks) / kGemvStep);
  gemv.tiles = static_cast<std::uint32_t>(call.out / exec::kTileRows);
  return gemv;
}

route::GemvFacts facts_of(const GemvCall& call, int nranks) {
  route::GemvFacts facts;
  facts.tokens = static_cast<std::uint32_t>(call.tokens);
  facts.tiles = static_cast<std::uint32_t>(call.out / exec::kTileRows);
  if (gathers(call)) facts.gathered_vecs = static_cast<std::uint32_t>(columns_of(call, nranks) / kGemvStep);
  return facts;
}

}  // namespace nearlight::runtime
