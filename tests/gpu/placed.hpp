// Messages whose every byte is known, on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/gpu/ranks.hpp"
#include "tests/support/message_image.hpp"

namespace nearlight::test {

// One rank's part of a pattern in its buffer on the GPU.
class Placed {
 public:
  Placed(const Rank& rank, const std::vector<Sent>& pattern, std::uint64_t round)
      : rank_(rank), image_(pattern, rank.rank, round) {}

  // There when it returns. No kernel may be waiting.
  cudaError_t fill() const {
    const auto error = cudaMemcpyAsync(rank_.recv, image_.bytes().data(), image_.bytes().size(),
                                       cudaMemcpyHostToDevice, rank_.stream);
    return error != cudaSuccess ? error : cudaStreamSynchronize(rank_.stream);
  }
  std::vector<runtime::MessageCall> calls() const { return image_.calls(rank_.recv); }
  // "" when all is as it must be. The stream is idle.
  std::string wrong() const {
    std::vector<std::uint8_t> now(image_.bytes().size());
    if (cudaMemcpyAsync(now.data(), rank_.recv, now.size(), cudaMemcpyDeviceToHost, rank_.stream) !=
            cudaSuccess ||
        cudaStreamSynchronize(rank_.stream) != cudaSuccess) {
      return "the buffer could not be read";
    }
    return image_.wrong(now.data());
  }

 private:
  const Rank& rank_;
  MessageImage image_;
};

}  // namespace nearlight::test
