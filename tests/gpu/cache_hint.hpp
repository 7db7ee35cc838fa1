// What the hint of exec::CudaSpace is made of, as the GPU has it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace nearlight::test {

// [0]: the constant of the space; [1]: what the instruction gives that such hints are made by. `words`:
// device.
cudaError_t read_keep_policy(std::uint64_t* words);

}  // namespace nearlight::test
