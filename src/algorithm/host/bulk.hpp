// Reducing long runs on the CPU: typed loops that the compiler turns into vector code. The same sums in the
// same order as reduce_in_rank_order, element by element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <nearlight/detail/exec/host_space.hpp>
#include <nearlight/detail/protocol/ll.hpp>
#include "algorithm/reduce.hpp"
#include "base/types.hpp"

namespace nearlight::algorithm::host {

// How one element is widened and rounded; see Lanes.
template <class T>
struct Element {
  using Wide = typename Lanes<exec::HostSpace, T>::Wide;
  static Wide widen(T value) {
    if constexpr (std::is_same_v<T, Bf16>) {
      return exec::as_float(static_cast<std::uint32_t>(value.bits) << 16);
    } else if constexpr (std::is_same_v<T, F16>) {
      return exec::HalfFormat::widen(value.bits);
    } else if constexpr (std::is_same_v<T, F8e4m3>) {
      return exec::E4m3Format::widen(value.bits);
    } else if constexpr (std::is_same_v<T, F8e5m2>) {
      return exec::E5m2Format::widen(value.bits);
    } else {
      return value;
    }
  }
  static T narrow(Wide value) {
    if constexpr (std::is_same_v<T, Bf16>) {
      return {static_cast<std::uint16_t>(exec::HostSpace::to_bf16(value))};
    } else if constexpr (std::is_same_v<T, F16>) {
      return {static_cast<std::uint16_t>(exec::HalfFormat::narrow(value))};
    } else if constexpr (std::is_same_v<T, F8e4m3>) {
      return {static_cast<std::uint8_t>(exec::E4m3Format::narrow(value))};
    } else if constexpr (std::is_same_v<T, F8e5m2>) {
      return {static_cast<std::uint8_t>(exec::E5m2Format::narrow(value))};
    } else if constexpr (std::is_floating_point_v<T>) {
      return exec::HostSpace::one_nan(value);
    } else {
      return static_cast<T>(value);  // wraps
    }
  }
};

// out[i] = element i of sources[0], sources[1], ... in that order. `out` may be one of the sources. Addresses
// are bytes: a run starts where the caller's buffer does, aligned or not.
template <class T, ReduceOp op>
void reduce_run(char* out, const char* const* sources, int nranks, std::size_t count) {
  using E = Element<T>;
  using Wide = typename E::Wide;
  using S = exec::HostSpace;
  constexpr std::size_t kBlock = 128;
  T in[kBlock];
  Wide acc[kBlock];
  std::size_t first = 0;
  for (; first + kBlock <= count; first += kBlock) {
    std::memcpy(in, sources[0] + first * sizeof(T), sizeof in);
    for (std::size_t i = 0; i < kBlock; ++i) acc[i] = E::widen(in[i]);
    for (int of = 1; of < nranks; ++of) {
      std::memcpy(in, sources[of] + first * sizeof(T), sizeof in);
      for (std::size_t i = 0; i < kBlock; ++i) acc[i] = combine<S, op, Wide>(acc[i], E::widen(in[i]));
    }
    for (std::size_t i = 0; i < kBlock; ++i) in[i] = E::narrow(finish<S, T, op, Wide>(acc[i], nranks));
    std::memcpy(out + first * sizeof(T), in, sizeof in);
  }
  for (; first < count; ++first) {
    T value;
    std::memcpy(&value, sources[0] + first * sizeof(T), sizeof value);
    Wide sum = E::widen(value);
    for (int of = 1; of < nranks; ++of) {
      std::memcpy(&value, sources[of] + first * sizeof(T), sizeof value);
      sum = combine<S, op, Wide>(sum, E::widen(value));
    }
    value = E::narrow(finish<S, T, op, Wide>(sum, nranks));
    std::memcpy(out + first * sizeof(T), &value, sizeof value);
  }
}

// What one_shot_simple and parts_simple.hpp call instead of their loops over cells.
template <class T, ReduceOp op>
struct Bulk {
  static constexpr bool kUsed = true;
  static constexpr bool usable() { return true; }
  static void copy(exec::HostSpace::Cell* to, const char* from, std::size_t cells) {
    std::memcpy(static_cast<void*>(to), from, cells * sizeof *to);
  }
  // Within the caller's memory, too: a rank's own part, whose two places may overlap.
  static void copy_out(char* to, const char* from, std::size_t cells) {
    std::memmove(to, from, cells * sizeof(exec::HostSpace::Cell));
  }
  static void reduce(char* out, const char* const* sources, int nranks, std::size_t bytes) {
    reduce_run<T, op>(out, sources, nranks, bytes / sizeof(T));
  }
};

// The same with the operator at run time.
template <class T>
struct AnyBulk {
  ReduceOp op;

  static constexpr bool kUsed = true;
  // Not where contributions are multiplied as they are loaded.
  bool usable() const { return op != ReduceOp::premul_sum; }
  static void copy(exec::HostSpace::Cell* to, const char* from, std::size_t cells) {
    Bulk<T, ReduceOp::sum>::copy(to, from, cells);
  }
  void reduce(char* out, const char* const* sources, int nranks, std::size_t bytes) const {
    const std::size_t count = bytes / sizeof(T);
    switch (op) {
      case ReduceOp::sum:
        return reduce_run<T, ReduceOp::sum>(out, sources, nranks, count);
      case ReduceOp::prod:
        return reduce_run<T, ReduceOp::prod>(out, sources, nranks, count);
      case ReduceOp::max:
        return reduce_run<T, ReduceOp::max>(out, sources, nranks, count);
      case ReduceOp::min:
        return reduce_run<T, ReduceOp::min>(out, sources, nranks, count);
      case ReduceOp::avg:
        return reduce_run<T, ReduceOp::avg>(out, sources, nranks, count);
      case ReduceOp::premul_sum:
        break;  // not usable()
    }
  }
};

}  // namespace nearlight::algorithm::host
