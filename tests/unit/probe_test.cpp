#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include <nearlight/detail/exec/host_space.hpp>
#include "probe/gpu_facts.hpp"
#include "probe/loops.hpp"
#include "probe/sol.hpp"
#include "probe/spread.hpp"

namespace nearlight::probe {
namespace {

using exec::HostSpace;
using testing::HasSubstr;

// Two parts with guard bytes around them.
class Parts {
 public:
  static constexpr std::size_t kGuard = kLineStride;
  explicit Parts(std::size_t bytes) : bytes_(bytes) {
    for (auto& part : parts_) {
      part.reset(static_cast<char*>(std::aligned_alloc(kLineStride, bytes + 2 * kGuard)));
      std::fill_n(part.get(), bytes + 2 * kGuard, '\x5c');
    }
  }
  CpuProbeTarget target(int lines) const {
    CpuProbeTarget target;
    for (int i = 0; i < 2; ++i) target.part[i] = parts_[i].get() + kGuard;
    target.bytes = bytes_;
    target.lines = lines;
    return target;
  }
  // All bytes of the parts are 0 and the guards are whole.
  bool left_clean() const {
    for (const auto& part : parts_) {
      char* const inner = part.get() + kGuard;
      if (!std::all_of(part.get(), inner, [](char c) { return c == '\x5c'; })) return false;
      if (!std::all_of(inner, inner + bytes_, [](char c) { return c == 0; })) return false;
      if (!std::all_of(inner + bytes_, inner + bytes_ + kGuard, [](char c) { return c == '\x5c'; }))
        return false;
    }
    return true;
  }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  std::size_t bytes_;
  std::unique_ptr<char, Free> parts_[2];
};

TEST(MeasureCpu, FillsAReportThatFitsTogether) {
  constexpr int kLines = 8;
  const Parts parts(cpu_probe_bytes(kLines));
  const auto report = measure_cpu(parts.target(kLines));
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_EQ(report->backend, "cpu");
  EXPECT_EQ(report->lines, kLines);
  EXPECT_GT(report->l2rtt_us, 0);
  EXPECT_GT(report->one_way_us, report->l2rtt_us);  // another core is farther than the own cache
  EXPECT_GT(report->sol_us, report->one_way_us);
  EXPECT_GT(report->store_gbs, 0);
  EXPECT_FALSE(report->launch_floor_us || report->launch_floor_pdl_us || report->eager_floor_us ||
               report->remote_load_us);
  for (const auto* spreads : {&report->l2rtt, &report->one_way, &report->sol}) {
    ASSERT_EQ(spreads->size(), 2u);  // both directions
    for (const Spread& spread : *spreads) {
      EXPECT_EQ(spread.lines, kLines);
      EXPECT_LE(spread.min_us, spread.p50_us);
      EXPECT_LE(spread.p50_us, spread.max_us);
      EXPECT_FALSE(spread.place.empty());
    }
  }
  EXPECT_TRUE(parts.left_clean());
}

TEST(MeasureCpu, NamesABadArgument) {
  const Parts parts(cpu_probe_bytes(4));
  const auto text_of = [](const CpuProbeTarget& target) {
    const Status status = measure_cpu(target).status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    return status.text();
  };
  CpuProbeTarget target = parts.target(4);
  target.lines = 0;
  EXPECT_THAT(text_of(target), HasSubstr("lines: 0"));
  target.lines = kMaxLines + 1;
  EXPECT_THAT(text_of(target), HasSubstr("lines"));
  target = parts.target(4);
  target.bytes -= 1;
  EXPECT_THAT(text_of(target), HasSubstr("bytes"));
  target = parts.target(4);
  target.part[1] = nullptr;
  EXPECT_THAT(text_of(target), HasSubstr("part"));
  target = parts.target(4);
  target.part[0] += 4;
  EXPECT_THAT(text_of(target), HasSubstr("aligned"));
  target = parts.target(4);
  target.wait_limit = std::chrono::milliseconds(0);
  EXPECT_THAT(text_of(target), HasSubstr("wait_limit"));
}

TEST(MeasureGpu, NamesABadArgumentOrTheMissingCuda) {
  GpuProbeTarget target;
  const Status status = measure_gpu(target).status();
  EXPECT_THAT(status.text(), testing::AnyOf(HasSubstr("bytes"), HasSubstr("without CUDA")));
}

TEST(PingPong, EndsInTimeWhenNobodyAnswers) {
  HostSpace::Word mine = 0, theirs = 0;
  protocol::Control<HostSpace> control;
  control.timeout_ns = 2'000'000;
  std::uint64_t ns = 0;
  EXPECT_EQ(ping_pong<HostSpace>(control, mine, theirs, true, 40, {1, 1}, ns), protocol::Wait::timeout);
  EXPECT_EQ(theirs, 41u);  // it did store, once
}

template <Arrival arrival>
void both_sides_see_every_value_once() {
  constexpr Laps kLaps{3, 50};
  constexpr std::uint32_t kBase = 100;
  alignas(128) HostSpace::Word first = 0;
  alignas(128) HostSpace::Word second = 0;
  protocol::Control<HostSpace> control;
  control.timeout_ns = 5'000'000'000;
  std::uint64_t first_ns = 0, second_ns = 0;
  protocol::Wait answer = protocol::Wait::aborted;
  std::thread other([&] {
    answer = ping_pong<HostSpace, arrival>(control, second, first, false, kBase, kLaps, second_ns);
  });
  const protocol::Wait asked =
      ping_pong<HostSpace, arrival>(control, first, second, true, kBase, kLaps, first_ns);
  EXPECT_EQ(asked, protocol::Wait::ok);
  other.join();
  EXPECT_EQ(answer, protocol::Wait::ok);
  EXPECT_EQ(first, kBase + 53);
  EXPECT_EQ(second, kBase + 53);
  EXPECT_GT(first_ns, 0u);
}

TEST(PingPong, BothSidesSeeEveryValueOnce) {
  both_sides_see_every_value_once<Arrival::relaxed>();
  both_sides_see_every_value_once<Arrival::acquire>();
  both_sides_see_every_value_once<Arrival::fence>();
}

TEST(Chase, TakesLongerWithMoreLaps) {
  alignas(128) const HostSpace::Word line[32] = {};
  // The shortest of several: another program may take the core away meanwhile.
  const auto shortest = [&](std::uint32_t laps) {
    std::uint64_t least = ~std::uint64_t{0};
    for (int i = 0; i < 5; ++i) least = std::min(least, chase<HostSpace>(line, {10, laps}));
    return least;
  };
  EXPECT_GT(shortest(200'000), 4 * shortest(20'000));
}

TEST(FillReport, SumsLineByLineBeforeItTakesMedians) {
  SolReport report;
  // Lines that are quick to load are slow to reach: the sum is 1.0 for each, the sum of medians is not.
  std::vector<Direction> directions(1);
  directions[0] = {"a", "b", {0.1, 0.2, 0.9}, {0.9, 0.8, 0.1}, {}};
  fill_report(report, directions);
  EXPECT_DOUBLE_EQ(report.sol_us, 1.0);
  EXPECT_DOUBLE_EQ(report.l2rtt_us, 0.2);
  EXPECT_DOUBLE_EQ(report.one_way_us, 0.8);
  EXPECT_FALSE(report.remote_load_us.has_value());
  ASSERT_EQ(report.sol.size(), 1u);
  EXPECT_EQ(report.sol[0].place, "a -> b");
  EXPECT_TRUE(report.remote_load.empty());
}

TEST(FillReport, PoolsAllDirections) {
  SolReport report;
  std::vector<Direction> directions(2);
  directions[0] = {"a", "b", {1, 1, 1}, {1, 1, 1}, {5, 5, 5}};
  directions[1] = {"b", "a", {1, 1, 1, 1, 1}, {3, 3, 3, 3, 3}, {7, 7, 7, 7, 7}};
  fill_report(report, directions);
  EXPECT_DOUBLE_EQ(report.one_way_us, 3);
  EXPECT_DOUBLE_EQ(report.sol_us, 4);
  EXPECT_DOUBLE_EQ(report.remote_load_us.value(), 7);
}

TEST(GpuFacts, SayWhyThereIsNoGpuOrDescribeEach) {
  const GpuFacts facts = gpu_facts();
  EXPECT_EQ(facts.devices.empty(), !facts.problem.empty()) << facts.problem;
  for (const GpuFacts::Device& device : facts.devices) EXPECT_EQ(device.links.size(), facts.devices.size());
}

TEST(GpuFacts, ALinkCountsOnlyBothWays) {
  GpuFacts facts;
  facts.devices.resize(3);
  facts.devices[0].links = {Link::none, Link::nvlink, Link::none};
  facts.devices[1].links = {Link::none, Link::none, Link::pcie};
  facts.devices[2].links = {Link::none, Link::nvlink, Link::none};
  EXPECT_EQ(facts.between(0, 1), Link::none);
  EXPECT_EQ(facts.between(1, 2), Link::pcie);
  EXPECT_EQ(facts.between(2, 1), Link::pcie);
  EXPECT_EQ(facts.between(0, 7), Link::none);
  EXPECT_EQ(facts.first_pair(), std::make_pair(1, 2));
  EXPECT_EQ(GpuFacts().first_pair(), std::make_pair(-1, -1));
}

}  // namespace
}  // namespace nearlight::probe
