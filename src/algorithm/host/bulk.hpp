// Reducing long runs on the CPU: typed loops that the compiler turns into vector code. The same sums in the
// same order as reduce_in_rank_order, element by element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <nearlight/detail/protocol/ll.hpp>
#include "algorithm/reduce.hpp"
#include "base/types.hpp"
#include "exec/host_space.hpp"

namespace nearlight::algorithm::host {

// How one element is widened, combined and rounded.
template <class T, ReduceOp op>
struct Element;
template <ReduceOp op>
struct Element<float, op> {
  using Wide = float;
  static float widen(float value) { return value; }
  static float combine(float a, float b) {
    return op == ReduceOp::sum ? a + b : exec::HostSpace::max_float(a, b);
  }
  static float narrow(float value) { return value; }
};
template <ReduceOp op>
struct Element<Bf16, op> {
  using Wide = float;
  static float widen(Bf16 value) { return exec::as_float(static_cast<std::uint32_t>(value.bits) << 16); }
  static float combine(float a, float b) { return Element<float, op>::combine(a, b); }
  static Bf16 narrow(float value) {
    return {static_cast<std::uint16_t>(exec::HostSpace::to_bf16_pair(value, 0.0f))};
  }
};
template <ReduceOp op>
struct Element<std::int32_t, op> {
  using Wide = std::int32_t;
  static std::int32_t widen(std::int32_t value) { return value; }
  static std::int32_t combine(std::int32_t a, std::int32_t b) {
    if constexpr (op == ReduceOp::sum) {
      return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) +
                                       static_cast<std::uint32_t>(b));  // wraps
    }
    return a > b ? a : b;
  }
  static std::int32_t narrow(std::int32_t value) { return value; }
};

// out[i] = element i of sources[0], sources[1], ... in that order. `out` may be one of the sources. Addresses
// are bytes: a run starts where the caller's buffer does, aligned or not.
template <class T, ReduceOp op>
void reduce_run(char* out, const char* const* sources, int nranks, std::size_t count) {
  using E = Element<T, op>;
  constexpr std::size_t kBlock = 128;
  T in[kBlock];
  typename E::Wide acc[kBlock];
  std::size_t first = 0;
  for (; first + kBlock <= count; first += kBlock) {
    std::memcpy(in, sources[0] + first * sizeof(T), sizeof in);
    for (std::size_t i = 0; i < kBlock; ++i) acc[i] = E::widen(in[i]);
    for (int of = 1; of < nranks; ++of) {
      std::memcpy(in, sources[of] + first * sizeof(T), sizeof in);
      for (std::size_t i = 0; i < kBlock; ++i) acc[i] = E::combine(acc[i], E::widen(in[i]));
    }
    for (std::size_t i = 0; i < kBlock; ++i) in[i] = E::narrow(acc[i]);
    std::memcpy(out + first * sizeof(T), in, sizeof in);
  }
  for (; first < count; ++first) {
    T value;
    std::memcpy(&value, sources[0] + first * sizeof(T), sizeof value);
    typename E::Wide sum = E::widen(value);
    for (int of = 1; of < nranks; ++of) {
      std::memcpy(&value, sources[of] + first * sizeof(T), sizeof value);
      sum = E::combine(sum, E::widen(value));
    }
    value = E::narrow(sum);
    std::memcpy(out + first * sizeof(T), &value, sizeof value);
  }
}

// What one_shot_simple calls instead of its loops over cells.
template <class T, ReduceOp op>
struct Bulk {
  static constexpr bool kUsed = true;
  static void copy(exec::HostSpace::Cell* to, const char* from, std::size_t cells) {
    std::memcpy(static_cast<void*>(to), from, cells * sizeof *to);
  }
  static void reduce(char* out, const char* const* sources, int nranks, std::size_t bytes) {
    reduce_run<T, op>(out, sources, nranks, bytes / sizeof(T));
  }
};

}  // namespace nearlight::algorithm::host
