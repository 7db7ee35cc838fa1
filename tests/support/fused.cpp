#include "tests/support/fused.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "tests/support/reference.hpp"

namespace nearlight::test {

namespace {

std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

// Between 1/16 and 4 of both signs, now and then a large one; `smaller`: powers of two.
std::uint16_t number(DataType type, std::uint64_t seed, std::uint64_t index, int smaller = 0) {
  const std::uint64_t random = mixed(seed * 0x10001 + index);
  const Format format = format_of(type);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int exponent =
      bias - smaller - 4 + static_cast<int>(random % 6) + ((random >> 8 & 0x3ff) == 0 ? 5 : 0);
  const std::uint64_t mantissa = random >> 20 & ((1u << format.mantissa_bits) - 1);
  return static_cast<std::uint16_t>((random >> 60 & 1) << 15 |
                                    static_cast<std::uint64_t>(exponent) << format.mantissa_bits | mantissa);
}

std::uint16_t special_bits(DataType type, std::uint64_t bits) {
  const std::uint16_t infinity = type == DataType::bf16 ? 0x7f80 : 0x7c00;
  switch (bits % 4) {
    case 0:
      return 0xffff;  // two of these look like the sentinel
    case 1:
      return infinity;
    case 2:
      return static_cast<std::uint16_t>(infinity | 0x8001);  // a NaN with a payload
    default:
      return 0x8000;
  }
}

float as_number(DataType type, std::uint64_t bits) { return static_cast<float>(value_of(type, bits)); }

// What the output of 8 bits is of a normalised value.
double quantised(DataType output, DataType type, double normalised, float scale) {
  const float inverse = 1.0f / scale;
  const float value = as_number(type, round_to(type, normalised)) * inverse;
  if (output == DataType::f8e4m3) return value_of(output, round_to(output, value));
  return std::nearbyint(std::fmin(std::fmax(value, -128.0f), 127.0f));
}

}  // namespace

std::string FusedProblem::in_words() const {
  char text[200];
  std::snprintf(text, sizeof text, "%s of %zu x %zu %s to %s, %d ranks%s%s", name_of(collective), tokens,
                hidden, name_of(type), name_of(output_type), nranks, residual ? "" : ", no residual",
                special ? ", special values" : "");
  return text;
}

std::vector<std::uint16_t> FusedProblem::input_of(int rank) const {
  std::vector<std::uint16_t> values(count());
  const std::uint64_t own = seed * 64 + static_cast<std::uint64_t>(rank);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = number(type, own, i);
    // Pairs, so that the sentinel's cell is among them; the first row is left as it is.
    if (special && i >= hidden && mixed(own + i / 2) % 997 == 0)
      values[i] = special_bits(type, mixed(own * 7 + i / 2));
  }
  return values;
}

std::vector<std::uint16_t> FusedProblem::residual_values() const {
  std::vector<std::uint16_t> values(count());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = number(type, seed * 64 + 60, i);
  return values;
}

std::vector<std::uint16_t> FusedProblem::weights() const {
  std::vector<std::uint16_t> values(hidden);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = number(type, seed * 64 + 61, i, 2);
  return values;
}

std::size_t FusedProblem::output_bytes() const {
  return count() * size_of(normalises() ? output_type : type);
}

runtime::FusedCall FusedProblem::call() const {
  runtime::FusedCall call;
  call.collective = collective;
  call.tokens = tokens;
  call.hidden = hidden;
  call.type = type;
  call.output_type = output_type;
  call.eps = eps;
  return call;
}

std::vector<ProblemBuffer> FusedProblem::buffers_of(int rank) const {
  ProblemBuffer of_scale{sizeof scale, Bytes(sizeof scale)};
  std::memcpy(of_scale.content.data(), &scale, sizeof scale);
  return {holding(input_of(rank)), holding(residual_values()), holding(weights()),
          {count() * 2, {}},       {output_bytes(), {}},       of_scale};
}

runtime::FusedCall FusedProblem::call_on(std::span<void* const> memory, int /*rank*/, bool in_place) const {
  enum { kInput, kResidual, kWeight, kSum, kOutput, kScale };  // as in buffers_of()
  runtime::FusedCall made = call();
  made.input = memory[kInput];
  made.output = memory[in_place && output_bytes() == count() * 2 ? kInput : kOutput];
  made.bias = made.weight = memory[kWeight];
  made.residual = residual ? memory[kResidual] : nullptr;
  made.residual_out = memory[in_place && residual ? kResidual : kSum];
  made.scale = output_type != type ? static_cast<const float*>(memory[kScale]) : nullptr;
  return made;
}

// The sum, then the output.
std::vector<Written> FusedProblem::written_by(const runtime::FusedCall& call) const {
  return {{normalises() ? call.residual_out : call.output, count() * 2}, {call.output, output_bytes()}};
}

std::string FusedProblem::check(const void* sum, const void* output) const {
  std::vector<std::vector<std::uint16_t>> inputs;
  for (int rank = 0; rank < nranks; ++rank) inputs.push_back(input_of(rank));
  const auto added = normalises() ? residual_values() : weights();
  const auto weight = weights();
  std::vector<std::uint64_t> given(static_cast<std::size_t>(nranks));
  char text[300];
  // Of many rows some, the first and the last among them.
  const std::size_t step = tokens > 16 ? tokens / 9 : 1;
  for (std::size_t next = 0; next < tokens + step - 1; next += step) {
    const std::size_t token = std::min(next, tokens - 1);
    double squares = 0;
    std::vector<double> row(hidden);
    for (std::size_t i = 0; i < hidden; ++i) {
      const std::size_t at = token * hidden + i;
      for (std::size_t rank = 0; rank < given.size(); ++rank) given[rank] = inputs[rank][at];
      std::uint64_t bits = reduce_reference(type, ReduceOp::sum, given);
      // One rank's fused call rounds, too, so that a NaN is the one NaN.
      if (is_nan(type, bits)) bits = nan_of(type);
      if (!normalises() || residual)
        bits = round_to(type, as_number(type, bits) + as_number(type, added[normalises() ? at : i]));
      const std::uint64_t got = load_bits(type, sum, at);
      if (got != bits) {
        std::snprintf(text, sizeof text, "%s: sum[%zu][%zu] is 0x%llx, must be 0x%llx", in_words().c_str(),
                      token, i, static_cast<unsigned long long>(got), static_cast<unsigned long long>(bits));
        return text;
      }
      row[i] = value_of(type, bits);
      squares += row[i] * row[i];
    }
    if (!normalises()) continue;
    const double root = 1 / std::sqrt(squares / static_cast<double>(hidden) + static_cast<double>(eps));
    for (std::size_t i = 0; i < hidden; ++i) {
      const std::size_t at = token * hidden + i;
      const double exact = row[i] * root * value_of(type, weight[i]);
      const std::uint64_t bits = load_bits(output_type, output, at);
      const double got = value_of(output_type, bits);
      // f32: the sum of squares, the root and two products.
      const double doubt = std::fabs(exact) * 4e-6;
      bool right;
      if (output_type == type) {
        right = std::isnan(exact)   ? bits == nan_of(type)
                : std::isinf(exact) ? got == exact
                                    : std::fabs(got - exact) <= doubt + 0.5 * ulp_at(type, exact);
      } else if (std::isnan(exact)) {
        right = output_type == DataType::i8 ? got == 0 : bits == nan_of(output_type);
      } else {
        right = got >= quantised(output_type, type, exact - doubt, scale) &&
                got <= quantised(output_type, type, exact + doubt, scale);
      }
      if (!right) {
        std::snprintf(text, sizeof text, "%s: out[%zu][%zu] is %g, must be %g (sum %g, root %g)",
                      in_words().c_str(), token, i, got, exact, row[i], root);
        return text;
      }
    }
  }
  return "";
}

}  // namespace nearlight::test
