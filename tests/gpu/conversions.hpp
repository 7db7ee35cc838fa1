// The GPU's conversions between f32 and the floats of 8 and 16 bits, run over arrays.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/types.hpp"

namespace nearlight::test {

// All arrays are device memory. wide[i] = the f32 bits of the element whose code is codes[i]; `count` is a
// multiple of 8.
cudaError_t widen_on_gpu(DataType type, const std::uint16_t* codes, std::uint32_t* wide, std::uint64_t count);
// codes[i] = the element that the f32 with these bits is rounded to.
cudaError_t narrow_on_gpu(DataType type, const std::uint32_t* wide, std::uint16_t* codes,
                          std::uint64_t count);

}  // namespace nearlight::test
