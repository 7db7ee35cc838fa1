// Reinterpreting bits, the same on GPU and CPU.
#pragma once

#include <cstdint>
#include <cstring>

#include <nearlight/detail/exec/fn.hpp>

namespace nearlight::exec {

NL_FN float as_float(std::uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

NL_FN std::uint32_t as_bits(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

NL_FN std::uint32_t low_half(std::uint64_t pack) { return static_cast<std::uint32_t>(pack); }
NL_FN std::uint32_t high_half(std::uint64_t pack) { return static_cast<std::uint32_t>(pack >> 32); }
NL_FN std::uint64_t join_halves(std::uint32_t low, std::uint32_t high) {
  return static_cast<std::uint64_t>(high) << 32 | low;
}

}  // namespace nearlight::exec
