// How many CTAs a call takes, and how many threads of a CTA run.
#include <gtest/gtest.h>

#include <cstring>

#include "algorithm/fit.hpp"
#include "route/route.hpp"

namespace nearlight::route {
namespace {

Facts facts(int nranks, std::size_t bytes, DataType type = DataType::bf16, ReduceOp op = ReduceOp::sum) {
  Facts one;
  one.gpu = true;
  one.nranks = nranks;
  one.count = bytes / size_of(type);
  one.type = type;
  one.op = op;
  one.regions = 128;
  one.slots = 2048;
  one.cells = 4096;
  one.packets = 4096;
  return one;
}

// With LL128 and the two-shot that adds among the choices.
Facts with_lines(Facts one) {
  one.lines = one.sums = 64;
  one.deterministic = false;
  one.whole = {probe::PathType::nvl, probe::LineVerdict::whole, probe::LineVerdict::whole, {}, {}};
  return one;
}

// By every protocol and algorithm, chosen or forced; and what must fit one round still does.
TEST(MaxCtas, NoCallTakesMore) {
  for (const std::uint32_t max_ctas : {1u, 2u, 8u, 16u, 64u, 100u, 128u}) {
    for (const int nranks : {2, 3, 8}) {
      for (const DataType type : {DataType::bf16, DataType::f64, DataType::i32}) {
        for (int bit = 3; bit < 40; ++bit) {
          for (const std::size_t more : {std::size_t{0}, std::size_t{8}}) {
            Facts one = with_lines(facts(nranks, (std::size_t{1} << bit) + more, type));
            one.max_ctas = max_ctas;
            const auto fits = [&](const Route& route) {
              ASSERT_GE(route.grid, 1u);
              ASSERT_LE(route.grid, max_ctas) << route.reason;
              ASSERT_EQ(route.threads % 32, 0u);
            };
            const Route chosen = all_reduce(one);
            fits(chosen);
            if (chosen.protocol == Protocol::sentinel && chosen.algorithm == Algorithm::one_shot) {
              ASSERT_GE(std::size_t{16} * max_ctas * one.packets, one.count * size_of(type));
            }
            for (const Protocol protocol : algorithm::kProtocols) {
              if (!algorithm::carries(protocol, type)) continue;
              fits(*forced(one, protocol));
              if (algorithm::go_together(Algorithm::two_shot, protocol))
                fits(*forced_two_shot(one, protocol));
            }
            if (algorithm::reduces(Algorithm::two_shot_atomic, type, one.op))
              fits(*forced_two_shot_atomic(one));
          }
        }
      }
    }
  }
}

TEST(MaxCtas, TheReasonSaysSoWhereItIsTheLimit) {
  Facts one = facts(2, 1 << 20);
  const Route wide = all_reduce(one);
  ASSERT_GT(wide.grid, 16u);
  EXPECT_EQ(std::strstr(wide.reason, "max_ctas"), nullptr);
  one.max_ctas = 16;
  EXPECT_EQ(all_reduce(one).grid, 16u);
  EXPECT_NE(std::strstr(all_reduce(one).reason, "max_ctas"), nullptr) << all_reduce(one).reason;
  Facts small = facts(2, 128);
  small.max_ctas = 16;
  EXPECT_EQ(std::strstr(all_reduce(small).reason, "max_ctas"), nullptr);
  // What the communicator has anyhow changes nothing.
  one.max_ctas = 128;
  EXPECT_EQ(all_reduce(one).grid, wide.grid);
  EXPECT_EQ(all_reduce(one).threads, wide.threads);
}

// Of more than kFewCtas CTAs two must fit an SM: where the kernel has many registers, with half the threads.
TEST(RunThreads, AreHalvedWhereAKernelOfManyRegistersHasManyCtas) {
  // 8 MiB in 128 CTAs, one round of 512 threads by packets of 16 bytes.
  const Route own = all_reduce(facts(2, 8 << 20));
  ASSERT_EQ(own.protocol, Protocol::sentinel);
  ASSERT_GT(own.grid, algorithm::kFewCtas);
  EXPECT_EQ(own.threads, 512u);
  EXPECT_EQ(own.run_threads, 512u);
  // A message that ends within a packet takes the kernel of any message.
  const Route ragged = all_reduce(facts(2, (8 << 20) - 2));
  ASSERT_EQ(ragged.protocol, Protocol::sentinel);
  EXPECT_EQ(ragged.threads, 512u);
  EXPECT_EQ(ragged.run_threads, algorithm::kSharedSmThreads);
  // So does a type without code of its own.
  const auto any = forced(facts(2, 8 << 20, DataType::f64), Protocol::sentinel);
  ASSERT_GT(any->grid, algorithm::kFewCtas);
  EXPECT_EQ(any->threads, 512u);
  EXPECT_EQ(any->run_threads, algorithm::kSharedSmThreads);
  // Few CTAs have an SM each.
  Facts few = facts(2, (8 << 20) - 2);
  few.max_ctas = 64;
  few.packets = 8192;
  const Route in_few = all_reduce(few);
  ASSERT_EQ(in_few.protocol, Protocol::sentinel);
  EXPECT_EQ(in_few.run_threads, in_few.threads);
}

TEST(RunThreads, AreThoseOfTheRouteElsewhere) {
  for (int bit = 3; bit < 30; ++bit) {
    for (const int nranks : {2, 3, 8}) {
      const Route ll = *forced(facts(nranks, std::size_t{1} << bit), Protocol::ll);
      EXPECT_EQ(ll.run_threads, ll.threads);
      const Route simple = *forced(facts(nranks, std::size_t{1} << bit), Protocol::simple);
      EXPECT_EQ(simple.run_threads, simple.threads);
      const Route two = *forced_two_shot(facts(nranks, std::size_t{1} << bit), Protocol::sentinel);
      EXPECT_LE(two.run_threads, two.threads);
    }
  }
  Facts cpu = facts(2, 1 << 20);
  cpu.gpu = false;
  EXPECT_EQ(all_reduce(cpu).run_threads, 1u);
}

// LL128's kernels take any message, and what adds with many CTAs is cut by the threads that two of them get.
TEST(RunThreads, AreThoseOfTheRouteForWideLines) {
  for (int bit = 3; bit < 30; ++bit) {
    for (const int nranks : {2, 3, 8}) {
      const Facts one = with_lines(facts(nranks, std::size_t{1} << bit));
      const Route lines = *forced(one, Protocol::ll128);
      EXPECT_EQ(lines.run_threads, lines.threads);
      const Route adds = *forced_two_shot_atomic(one);
      EXPECT_EQ(adds.run_threads, adds.threads);
      const bool alone = adds.grid <= algorithm::kFewCtas;
      EXPECT_LE(adds.run_threads, alone ? algorithm::kMaxThreads : algorithm::kSharedSmThreads);
    }
  }
}

// The launcher's own addresses may only take threads away.
TEST(RunThreads, OtherAddressesTakeNoMore) {
  const algorithm::Cut cut{
      DataType::bf16, ReduceOp::sum, Algorithm::one_shot, Protocol::sentinel, 8 << 20, 128, 512, 4, 4096};
  EXPECT_TRUE(algorithm::fit_of(cut, 0).whole);
  EXPECT_EQ(algorithm::threads_that_run(cut, algorithm::fit_of(cut, 0)), 512u);
  EXPECT_FALSE(algorithm::fit_of(cut, 0x1008).whole);
  EXPECT_EQ(algorithm::threads_that_run(cut, algorithm::fit_of(cut, 0x1008)), algorithm::kSharedSmThreads);
}

}  // namespace
}  // namespace nearlight::route
