// Data whose reductions over two ranks are exact in every type, so that results are compared to the bit.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <nccl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace nearlight::test {

inline std::size_t bytes_of(ncclDataType_t type) {
  constexpr std::size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kBytes[type];
}
inline bool is_integer(ncclDataType_t type) { return type <= ncclUint64; }

// 0 to 3; 1 and 2 where they are multiplied.
inline double value_of(std::size_t i, int rank, int salt, bool factors) {
  const std::size_t mixed =
      i * 7 + static_cast<std::size_t>(rank) * 3 + static_cast<std::size_t>(salt) * 5 + i / 11;
  return factors ? 1 + static_cast<double>(mixed % 2) : static_cast<double>(mixed % 4);
}

template <class T>
void put(std::vector<unsigned char>& bytes, std::size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
}

inline void encode(std::vector<unsigned char>& bytes, std::size_t i, ncclDataType_t type, double value) {
  const auto single = static_cast<float>(value);
  switch (type) {
    case ncclInt8:
      return put(bytes, i, static_cast<std::int8_t>(value));
    case ncclUint8:
      return put(bytes, i, static_cast<std::uint8_t>(value));
    case ncclInt32:
      return put(bytes, i, static_cast<std::int32_t>(value));
    case ncclUint32:
      return put(bytes, i, static_cast<std::uint32_t>(value));
    case ncclInt64:
      return put(bytes, i, static_cast<std::int64_t>(value));
    case ncclUint64:
      return put(bytes, i, static_cast<std::uint64_t>(value));
    case ncclFloat16:
      return put(bytes, i, __float2half(single));
    case ncclFloat32:
      return put(bytes, i, single);
    case ncclFloat64:
      return put(bytes, i, value);
    case ncclBfloat16:
      return put(bytes, i, __float2bfloat16(single));
    case ncclFloat8e4m3:
      return put(bytes, i, __nv_cvt_float_to_fp8(single, __NV_SATFINITE, __NV_E4M3));
    default:
      return put(bytes, i, __nv_cvt_float_to_fp8(single, __NV_SATFINITE, __NV_E5M2));
  }
}

inline std::vector<unsigned char> inputs(std::size_t count, ncclDataType_t type, ncclRedOp_t op, int rank,
                                         int salt) {
  std::vector<unsigned char> bytes(count * bytes_of(type));
  for (std::size_t i = 0; i < count; ++i) encode(bytes, i, type, value_of(i, rank, salt, op == ncclProd));
  return bytes;
}

inline std::vector<unsigned char> results(std::size_t count, ncclDataType_t type, ncclRedOp_t op, int salt) {
  std::vector<unsigned char> bytes(count * bytes_of(type));
  for (std::size_t i = 0; i < count; ++i) {
    const double a = value_of(i, 0, salt, op == ncclProd), b = value_of(i, 1, salt, op == ncclProd);
    double value = a + b;
    if (op == ncclProd) value = a * b;
    if (op == ncclMax) value = std::max(a, b);
    if (op == ncclMin) value = std::min(a, b);
    if (op == ncclAvg)
      value = is_integer(type) ? static_cast<double>(static_cast<int>(a + b) / 2) : (a + b) / 2;
    encode(bytes, i, type, value);
  }
  return bytes;
}

}  // namespace nearlight::test
