// The hook of what has arrived: where a test may hold a thread up, and where a trace takes the time. A wait
// in vain must not come there.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include <nearlight/detail/exec/host_space.hpp>
#include "algorithm/kinds.hpp"
#include "algorithm/one_shot.hpp"
#include "algorithm/one_shot_ll128.hpp"
#include "algorithm/one_shot_sentinel.hpp"
#include "algorithm/parts_simple.hpp"
#include "algorithm/sentinel_cell.hpp"
#include "algorithm/two_shot.hpp"
#include "tests/support/counts_arrivals.hpp"

namespace nearlight::test {
namespace {

using exec::HostSpace;
using Region = protocol::FlatRegion<HostSpace>;
using Session = protocol::Session<Region, exec::SoloCoop>;
using Math = algorithm::PackMath<HostSpace, float, ReduceOp::sum>;
using Bufs = algorithm::Buffer<HostSpace, float>;
constexpr int kMax = protocol::kMaxRanks;
constexpr algorithm::Share kAll{0, 1};

// Makes `call` on the first `present` of two ranks, each with floats to send and to receive; how often what
// they wait for arrived.
template <class Call>
int arrivals(int present, const Call& call) {
  const protocol::RegionLayout layout{2, 64, 64, 64, 64, 64};
  struct alignas(128) Block {
    char bytes[128];
  };
  const std::size_t stride = (layout.region_bytes() + sizeof(Block) - 1) / sizeof(Block) * sizeof(Block);
  std::vector<Block> heap(stride / sizeof(Block) * 2);
  for (std::size_t rank = 0; rank < 2; ++rank)
    std::memset(heap[0].bytes + rank * stride + layout.packets_at(), 0xff, layout.packets_bytes());
  std::atomic<int> count{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < present; ++rank) {
    threads.emplace_back([&, rank] {
      constexpr std::uint64_t kCount = 32;
      std::vector<float> send(kCount, 1), recv(kCount, -1);
      protocol::RegionState<HostSpace> state{};
      HostSpace::Word abort = 0, claim = 0, valid = 0;
      protocol::FaultRecord record{};
      const std::uint64_t timeout_ns = present == 2 ? 60'000'000'000 : 20'000'000;
      Session session(Region(heap[0].bytes, stride, rank, layout), exec::SoloCoop{}, state,
                      {&abort, &claim, &valid, &record, timeout_ns}, 0, 1);
      call(session, Bufs(send.data(), kCount), Bufs(recv.data(), kCount), CountsArrivals{&count});
      session.close();
      EXPECT_EQ(valid, present == 2 ? 0u : 1u);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return count;
}

template <class Call>
void expect_only_what_arrives(const char* name, const Call& call) {
  EXPECT_EQ(arrivals(1, call), 0) << name;
  EXPECT_EQ(arrivals(2, call), 2) << name;  // one of each rank
}

TEST(ProtocolArrival, IsToldOnlyOfWhatHasArrived) {
  using Hooks = CountsArrivals;
  expect_only_what_arrives("LL", [](Session& session, Bufs in, Bufs out, Hooks hooks) {
    algorithm::one_shot_ll<Math, kMax, 0>(session, kAll, in, out, hooks);
  });
  expect_only_what_arrives("LL, held", [](Session& session, Bufs in, Bufs out, Hooks hooks) {
    algorithm::one_shot_ll<Math, kMax, 16>(session, kAll, in, out, hooks);
  });
  expect_only_what_arrives("simple", [](Session& session, Bufs in, Bufs out, Hooks hooks) {
    algorithm::one_shot_simple<Math, kMax, 1>(session, kAll, in, out, hooks);
  });
  expect_only_what_arrives("sentinel", [](Session& session, Bufs in, Bufs out, Hooks hooks) {
    algorithm::one_shot_sentinel<Math, algorithm::SentinelCell<float>, kMax>(session, kAll, 1, in, out,
                                                                             hooks);
  });
  expect_only_what_arrives("LL128", [](Session& session, Bufs in, Bufs out, Hooks hooks) {
    algorithm::one_shot_ll128<Math, kMax>(session, kAll, in, out, hooks);
  });
}

TEST(ProtocolArrival, NorOfPartsThatHaveNot) {
  using Hooks = CountsArrivals;
  algorithm::Parts parts;
  for (std::uint64_t rank = 0; rank < 2; ++rank) parts.send[rank] = parts.recv[rank] = {rank * 16, 16};
  parts.most = 16;
  parts.span = 32;
  expect_only_what_arrives("moved", [&](Session& session, Bufs in, Bufs out, Hooks hooks) {
    algorithm::move_parts_simple<1>(session, kAll, parts, in, out, hooks);
  });
  expect_only_what_arrives("reduced", [&](Session& session, Bufs in, Bufs out, Hooks hooks) {
    algorithm::reduce_parts_simple<kMax, 1>(session, kAll, parts, in, out, hooks, Math{});
  });
}

}  // namespace
}  // namespace nearlight::test
