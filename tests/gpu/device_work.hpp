// The kernels of the GPU tests: they make the data and check it, so that a test need not wait for the GPU
// between two calls. All of them are small, so that they run beside the kernels of the ranks that wait, and
// all of them end.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "tests/gpu/pattern.hpp"

namespace nearlight::test {

// The first thing that was wrong, and how often.
struct Report {
  std::uint64_t wrong;
  std::uint64_t checks;  // check kernels that ran to their end
  std::uint64_t index;   // element or guard byte
  std::uint32_t taken;   // the rest is written by whoever set this
  std::uint32_t case_id;
  std::uint32_t what;           // What
  std::uint64_t expected, got;  // bits
};
enum class What : std::uint32_t { output = 1, guard = 2, input = 3, untouched = 4 };

// One rank's part of one call. Pointers to the data; kGuardBytes lie on both sides of each.
struct Work {
  Pattern pattern;
  std::uint32_t rank = 0, nranks = 1;
  std::uint64_t count = 0;
  void* send = nullptr;
  void* recv = nullptr;  // may be send
  std::uint32_t case_id = 0;
  // When set, the seed is pattern.seed + *counter: a replayed graph then has new data each time.
  const std::uint64_t* counter = nullptr;
};

// Loads all of them on the current device: the first launch of a kernel may wait for those that run.
cudaError_t preload_device_work();
// Writes input, poison and guards.
cudaError_t prepare(const Work& work, cudaStream_t stream);
// Compares output, guards and (out of place) input.
cudaError_t check(const Work& work, Report* report, cudaStream_t stream);
// The output must still be poison everywhere.
cudaError_t check_untouched(const Work& work, Report* report, cudaStream_t stream);
// *counter += 1.
cudaError_t advance(std::uint64_t* counter, cudaStream_t stream);
// Holds the stream up.
cudaError_t hold(std::uint64_t ns, cudaStream_t stream);

// Fills every SM of the current device but those numbered below `spare`, until words[0] is set or `limit_ns`
// are over. `words`: pinned, both 0; words[1] is set once all others are full. Nothing else may run on the
// device when it begins.
cudaError_t occupy(std::uint32_t spare, std::uint32_t* words, std::uint64_t limit_ns, cudaStream_t stream);

// The same as programmatic dependent launches: each lets its successor start at once, then waits for its
// predecessor. prepare, `late_ns` after the successor was let in.
cudaError_t prepare_late(const Work& work, std::uint64_t late_ns, cudaStream_t stream);
// check, and each input element is overwritten as soon as it has been looked at.
cudaError_t check_and_overwrite(const Work& work, Report* report, cudaStream_t stream);
cudaError_t advance_early(std::uint64_t* counter, cudaStream_t stream);
// A kernel that takes all the room there is and waits for its predecessor, by programmatic dependent launch.
cudaError_t wait_everywhere(cudaStream_t stream);

}  // namespace nearlight::test
