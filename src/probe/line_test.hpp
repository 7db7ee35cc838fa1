// Whether lines of 128 bytes arrive whole between the GPUs of a group: each rank exchanges lines with both
// its neighbours (rank - 1 and rank + 1, round the circle) while others of its CTAs store plain vectors to
// them. What a line must hold follows from its place and number, so that each part that is missing is seen.
// Stores first, then what adds (f32, and fewer of f16 and bf16).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "probe/lines.hpp"

namespace nearlight::probe {

// Shared memory of a rank that the test uses, at a multiple of 128; all zero before.
inline constexpr std::size_t kLineTestBytes = std::size_t{8} << 20;

struct LineTest {
  char* mine = nullptr;  // this rank's part of the memory
  char* next = nullptr;  // the neighbours', as addressed here; the same one for two ranks
  char* previous = nullptr;
  int sms = 0;        // of this rank's GPU, which it has to itself
  bool adds = false;  // test what adds, too
  LineWay way = LineWay::together;
  std::uint64_t lines = kTestLines;  // from each neighbour
};
struct LineTestResult {
  LineCounts stores, adds;
};

// Loads the kernels on the current device: once they are needed, it would wait for those that run.
Status load_line_test();
// Collective, one rank a GPU, on the current device. Ends in time whatever the others do: 60 ms for stores,
// as much for adds, and some. Afterwards the memory holds anything, and a neighbour may still write to it
// until it is done as well.
Result<LineTestResult> run_line_test(const LineTest& test);

// What lies between this process's device and the GPU of that id (cudaDeviceProp::uuid).
PathFacts path_facts(int device, const char (&other_uuid)[16]);

}  // namespace nearlight::probe
