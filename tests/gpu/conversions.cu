#include "tests/gpu/conversions.hpp"

#include <nearlight/detail/exec/cuda_space.cuh>
#include "algorithm/reduce.hpp"

namespace nearlight::test {

namespace {

template <class T>
using Lanes = algorithm::Lanes<exec::CudaSpace, T>;

// A pack a thread, as the kernels do it.
NL_FN std::uint64_t thread_index() {
  const exec::CtaCoop coop;
  return std::uint64_t{exec::cta_index()} * static_cast<std::uint64_t>(coop.size()) +
         static_cast<std::uint64_t>(coop.thread_rank());
}

template <class T>
__global__ void widen(const std::uint16_t* codes, std::uint32_t* wide, std::uint64_t count) {
  constexpr int kPer = Lanes<T>::kPerPack;
  const std::uint64_t first = thread_index() * kPer;
  if (first >= count) return;
  exec::Pack pack = 0;
  for (int i = 0; i < kPer; ++i) pack |= exec::Pack{codes[first + i]} << 8 * static_cast<int>(sizeof(T)) * i;
  float values[kPer];
  Lanes<T>::widen(pack, values);
  for (int i = 0; i < kPer; ++i) wide[first + i] = exec::as_bits(values[i]);
}

template <class T>
__global__ void narrow(const std::uint32_t* wide, std::uint16_t* codes, std::uint64_t count) {
  constexpr int kPer = Lanes<T>::kPerPack;
  const std::uint64_t first = thread_index() * kPer;
  if (first >= count) return;
  float values[kPer];
  for (int i = 0; i < kPer; ++i) values[i] = exec::as_float(wide[first + i]);
  const exec::Pack pack = Lanes<T>::narrow(values);
  constexpr exec::Pack kMask = (exec::Pack{1} << 8 * sizeof(T)) - 1;
  for (int i = 0; i < kPer; ++i) {
    codes[first + i] = static_cast<std::uint16_t>(pack >> 8 * static_cast<int>(sizeof(T)) * i & kMask);
  }
}

constexpr unsigned kThreads = 256;

template <class T>
unsigned ctas_for(std::uint64_t count) {
  const std::uint64_t per_cta = std::uint64_t{kThreads} * Lanes<T>::kPerPack;
  return static_cast<unsigned>((count + per_cta - 1) / per_cta);
}

template <class Call>
cudaError_t of_type(DataType type, Call&& call) {
  switch (type) {
    case DataType::f16:
      call(TypeTag<F16>{});
      break;
    case DataType::bf16:
      call(TypeTag<Bf16>{});
      break;
    case DataType::f8e4m3:
      call(TypeTag<F8e4m3>{});
      break;
    case DataType::f8e5m2:
      call(TypeTag<F8e5m2>{});
      break;
    default:
      return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t widen_on_gpu(DataType type, const std::uint16_t* codes, std::uint32_t* wide,
                         std::uint64_t count) {
  return of_type(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    widen<T><<<ctas_for<T>(count), kThreads>>>(codes, wide, count);
  });
}

cudaError_t narrow_on_gpu(DataType type, const std::uint32_t* wide, std::uint16_t* codes,
                          std::uint64_t count) {
  return of_type(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    narrow<T><<<ctas_for<T>(count), kThreads>>>(wide, codes, count);
  });
}

}  // namespace nearlight::test
