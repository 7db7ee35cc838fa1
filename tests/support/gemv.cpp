#include "tests/support/gemv.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/support/reference.hpp"

namespace nearlight::test {

namespace {

std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

std::uint64_t key(std::uint64_t seed, int rank, std::uint64_t which) {
  return mixed(seed * 1024 + static_cast<std::uint64_t>(rank) * 2 + which);
}

}  // namespace

std::string GemvProblem::in_words() const {
  char text[200];
  std::snprintf(text, sizeof text, "%s of %zu tokens, %zu to %zu %s, %d ranks%s%s%s",
                name_of(call(0).collective), tokens, in, out, name_of(type), nranks, real ? ", real" : "",
                uneven ? ", uneven" : "", special ? ", special" : "");
  return text;
}

std::uint16_t GemvProblem::number(std::uint64_t random, int largest) const {
  if (!real) {
    const auto values = static_cast<std::uint64_t>(2 * largest + 1);
    return static_cast<std::uint16_t>(
        round_to(type, static_cast<double>(random % values) - static_cast<double>(largest)));
  }
  // Both signs, between 1/8 and 2, all bits of the mantissa.
  const Format format = format_of(type);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const auto exponent = static_cast<std::uint64_t>(bias - 3) + random % 4;
  return static_cast<std::uint16_t>((random >> 60 & 1) << 15 | exponent << format.mantissa_bits |
                                    (random >> 20 & ((1u << format.mantissa_bits) - 1)));
}

std::uint16_t GemvProblem::input_at(int rank, std::size_t token, std::size_t k) const {
  return number(mixed(key(seed, rank, 0) + token * in_of(rank) + k), 3);
}

std::uint16_t GemvProblem::weight_at(int rank, std::size_t row, std::size_t k) const {
  const std::uint64_t random = mixed(key(seed, rank, 1) + row * columns_of(rank) + k);
  if (special && row % 5 == 2 && k == row % in) {
    const std::uint16_t infinity = type == DataType::bf16 ? 0x7f80 : 0x7c00;
    return row % 2 == 0 ? 0xffff : infinity;
  }
  return number(random, 2);
}

std::vector<std::uint16_t> GemvProblem::input_of(int rank) const {
  std::vector<std::uint16_t> values;
  values.reserve(tokens * in_of(rank));
  for (std::size_t token = 0; token < tokens; ++token) {
    for (std::size_t k = 0; k < in_of(rank); ++k) values.push_back(input_at(rank, token, k));
  }
  return values;
}

std::vector<std::uint16_t> GemvProblem::weight_of(int rank) const {
  std::vector<std::uint16_t> values;
  values.reserve(out * columns_of(rank));
  for (std::size_t row = 0; row < out; ++row) {
    for (std::size_t k = 0; k < columns_of(rank); ++k) values.push_back(weight_at(rank, row, k));
  }
  return values;
}

runtime::GemvCall GemvProblem::call(int rank) const {
  runtime::GemvCall call;
  call.collective = gathers ? Collective::all_gather_gemv : Collective::gemv_all_reduce;
  call.tokens = tokens;
  call.in = in_of(rank);
  call.out = out;
  call.type = type;
  return call;
}

std::vector<ProblemBuffer> GemvProblem::buffers_of(int rank) const {
  return {holding(input_of(rank)), holding(weight_of(rank)), {tokens * out * 2, {}}};
}

runtime::GemvCall GemvProblem::call_on(std::span<void* const> memory, int rank, bool /*in_place*/) const {
  runtime::GemvCall made = call(rank);
  made.input = memory[0];
  made.weight = memory[1];
  made.output = memory[2];
  return made;
}

std::vector<double> GemvProblem::vector_of(std::size_t token) const {
  std::vector<double> values;
  for (int of = 0; of < nranks; ++of) {
    for (std::size_t k = 0; k < in_of(of); ++k) values.push_back(value_of(type, input_at(of, token, k)));
  }
  return values;
}

std::vector<double> GemvProblem::row_of(int rank, std::size_t row) const {
  std::vector<double> values;
  for (int of = 0; of < nranks; ++of) {
    const int owner = gathers ? rank : of;
    const std::size_t first = gathers ? in * static_cast<std::size_t>(of) : 0;
    for (std::size_t k = 0; k < in_of(of); ++k)
      values.push_back(value_of(type, weight_at(owner, row, first + k)));
  }
  return values;
}

std::string GemvProblem::check(const void* output, int rank) const {
  // An odd step, so that all places in a tile are seen.
  const std::size_t step = out > 128 ? out / 128 * 2 + 1 : 1;
  std::size_t longest = 0;
  for (int of = 0; of < nranks; ++of) longest = std::max(longest, columns_of(of));
  std::vector<std::vector<double>> vectors;
  for (std::size_t token = 0; token < tokens; ++token) vectors.push_back(vector_of(token));
  for (std::size_t next = 0; next < out + step - 1; next += step) {
    const std::size_t row = std::min(next, out - 1);
    const std::vector<double> weights = row_of(rank, row);
    for (std::size_t token = 0; token < tokens; ++token) {
      double exact = 0, size = 0;
      for (std::size_t k = 0; k < weights.size(); ++k) {
        const double product = vectors[token][k] * weights[k];
        exact += product;
        size += std::fabs(product);
      }
      const std::uint64_t got = load_bits(type, output, token * out + row);
      const std::uint64_t rounded = std::isnan(exact) ? nan_of(type) : round_to(type, exact);
      if (got == rounded) continue;
      const double doubt = size * (static_cast<double>(longest) / 8 + 32) * 0x1p-23;
      if (real && std::isfinite(exact) &&
          std::fabs(value_of(type, got) - exact) <= doubt + 0.5 * ulp_at(type, exact)) {
        continue;
      }
      char text[300];
      std::snprintf(text, sizeof text, "%s: out[%zu][%zu] is 0x%llx (%g), must be 0x%llx (%g)",
                    in_words().c_str(), token, row, static_cast<unsigned long long>(got), value_of(type, got),
                    static_cast<unsigned long long>(rounded), exact);
      return text;
    }
  }
  return "";
}

}  // namespace nearlight::test
