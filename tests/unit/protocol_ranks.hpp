// The protocols on CPU threads without a communicator: ranks of one or several lanes over one flat heap, so
// that a test can choose the region's shape, the first epoch and which variant of an algorithm runs.
#pragma once

#include <barrier>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <nearlight/detail/exec/host_space.hpp>
#include <nearlight/detail/exec/lane_coop.hpp>
#include "algorithm/kinds.hpp"
#include "algorithm/one_shot.hpp"
#include "base/types.hpp"
#include "tests/support/problems.hpp"
#include "tests/support/reference.hpp"

namespace nearlight::test {

using exec::HostSpace;

struct ProtocolShape {
  int ranks = 2;
  int lanes = 1;
  std::uint32_t slots = 8;
  std::uint32_t cells = 6;
  std::uint32_t packets = 4;
  std::uint32_t lines = 4;
  std::uint32_t initial_epoch = 0;
  std::uint64_t timeout_ns = 60'000'000'000;
};

struct ProtocolCall {
  algorithm::Protocol protocol = algorithm::Protocol::ll;
  int held = 0;  // LL: packs a lane keeps in registers; 0 streams
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t count = 1;
  bool in_place = false;
  std::uint32_t misaligned = 0;  // elements, differs by rank
  std::uint64_t seed = 0;
};

// What one rank owns beside its part of the heap.
struct ProtocolRank {
  protocol::RegionState<HostSpace> state{};
  HostSpace::Word abort = 0, claim = 0, valid = 0;
  protocol::FaultRecord record{};
};

class ProtocolRanks {
 public:
  explicit ProtocolRanks(const ProtocolShape& shape);

  const ProtocolShape& shape() const { return shape_; }
  ProtocolRank& rank(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  // Runs one call as one lane of one rank; the caller sees to what lies between two calls.
  void run(const ProtocolCall& call, int rank, exec::LaneCoop coop, void* send, void* recv);

  // Every rank makes all the calls one after the other, at its own pace, and checks each result. Empty when
  // all were right.
  std::string run_all(const std::vector<ProtocolCall>& calls);

 private:
  struct Line {
    alignas(128) std::byte bytes[128];
  };

  ProtocolShape shape_;
  protocol::RegionLayout layout_;
  std::size_t stride_;
  std::vector<Line> heap_;
  std::vector<ProtocolRank> ranks_;
};

// `number` calls of random kinds, types, sizes up to `max_bytes` and places, the same for every rank.
std::vector<ProtocolCall> random_calls(std::size_t number, std::uint64_t max_bytes, std::uint64_t seed);

}  // namespace nearlight::test
