// What a storm on GPUs draws from its seed: the group that it is made in, and its calls, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/gpu/ranks.hpp"
#include "tests/gpu/storm_gpu.hpp"
#include "tests/support/random.hpp"

namespace nearlight::test::gpu_storm {

struct Plan {
  Setup setup;
  runtime::Options options;
};
Plan plan_of(const GpuStorm& storm);

// One of a group of messages. `pattern`: its own.
struct Message {
  int from, to;
  Pattern pattern;
  std::uint64_t count;
};
constexpr std::size_t kMostMessages = 8;
constexpr std::size_t kMessageBytes = (std::size_t{1} << 20) / kMostMessages;  // with guards and offset

// The same on all ranks.
struct Call {
  bool barrier = false, hops = false;
  std::vector<Message> messages;  // none: something else
  Pattern pattern;
  std::uint64_t count = 0;
  runtime::CallOptions options;
};

// `in_graph`: it is captured, and its data are new at each replay.
Call any_call(Random& random, const GpuStorm& storm, const Group& group, bool in_graph);

}  // namespace nearlight::test::gpu_storm
