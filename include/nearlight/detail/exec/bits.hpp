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

NL_FN double as_double(std::uint64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

NL_FN std::uint64_t as_bits(double value) {
  std::uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

// The NaN that every reduction gives where it gives one: all ones, no sign.
inline constexpr std::uint32_t kNan32 = 0x7fffffffu;
inline constexpr std::uint64_t kNan64 = 0x7fffffffffffffffu;

NL_FN std::uint32_t low_half(std::uint64_t pack) { return static_cast<std::uint32_t>(pack); }
NL_FN std::uint32_t high_half(std::uint64_t pack) { return static_cast<std::uint32_t>(pack >> 32); }
NL_FN std::uint64_t join_halves(std::uint32_t low, std::uint32_t high) {
  return static_cast<std::uint64_t>(high) << 32 | low;
}

// Has the value worked out here, once, and kept: without it the GPU compiler computes addresses and
// conditions anew, from the kernel's parameters, at the very place where every cycle counts.
template <class T>
NL_FN void keep(T*& pointer) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+l"(pointer));
#else
  (void)pointer;
#endif
}
NL_FN void keep(std::uint32_t& value) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(value));
#else
  (void)value;
#endif
}

// The address as a number; for wait_for_previous_kernel().
template <class T>
NL_FN std::uint64_t address_bits(T* pointer) {
  return reinterpret_cast<std::uint64_t>(pointer);
}

}  // namespace nearlight::exec
