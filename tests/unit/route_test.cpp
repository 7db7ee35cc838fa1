#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "route/route.hpp"

namespace nearlight::route {
namespace {

constexpr std::size_t kMostBytes = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());

Facts facts(bool gpu, int nranks, std::size_t bytes, DataType type = DataType::bf16) {
  return {.gpu = gpu,
          .nranks = nranks,
          .count = bytes / size_of(type),
          .type = type,
          .op = ReduceOp::sum,
          .regions = 64,
          .slots = 2048,
          .cells = 4096};
}

// Powers of two and their neighbours up to the largest message there can be.
std::vector<std::size_t> many_sizes() {
  std::vector<std::size_t> sizes;
  for (int bit = 1; bit < 63; ++bit) {
    for (const std::size_t away : {std::size_t{0}, std::size_t{2}, std::size_t{4}, std::size_t{4096}}) {
      const std::size_t power = std::size_t{1} << bit;
      sizes.push_back(power + away);
      if (power > away) sizes.push_back(power - away);
    }
  }
  // Where bytes times other ranks would wrap round to something small.
  for (std::size_t others = 2; others <= 7; ++others) {
    for (std::size_t turns = 1; turns < others; ++turns) {
      const auto wrapped = static_cast<std::size_t>((static_cast<unsigned __int128>(turns) << 64) / others);
      for (const std::size_t size : {wrapped, wrapped + 2, wrapped + 8}) {
        if (size <= kMostBytes) sizes.push_back(size);
      }
    }
  }
  sizes.push_back(kMostBytes);
  return sizes;
}

TEST(Route, OneRankCopies) {
  for (const bool gpu : {false, true}) {
    for (const std::size_t bytes : {std::size_t{2}, std::size_t{1} << 30}) {
      const Route route = all_reduce(facts(gpu, 1, bytes));
      EXPECT_EQ(route.algorithm, Algorithm::copy);
      EXPECT_STRNE(route.reason, "");
    }
  }
}

TEST(Route, SmallOnesCarryTheirFlagOnTheCpu) {
  for (int nranks = 2; nranks <= 8; ++nranks) {
    for (const std::size_t bytes : many_sizes()) {
      const Route route = all_reduce(facts(false, nranks, bytes));
      EXPECT_EQ(route.algorithm, Algorithm::one_shot);
      EXPECT_EQ(route.protocol, bytes / 2 * 2 <= kHostLlLimitBytes ? Protocol::ll : Protocol::simple)
          << bytes;
      EXPECT_STRNE(route.reason, "");
    }
  }
}

// What a rank sends counts: the message times the other ranks, without wrapping round for huge ones.
TEST(Route, SmallOnesCarryTheirFlagOnTheGpu) {
  for (int nranks = 2; nranks <= 8; ++nranks) {
    for (const std::size_t bytes : many_sizes()) {
      const Route route = all_reduce(facts(true, nranks, bytes));
      const auto sent = static_cast<unsigned __int128>(bytes / 2 * 2) * static_cast<unsigned>(nranks - 1);
      EXPECT_EQ(route.protocol, sent <= kGpuLlLimitBytes ? Protocol::ll : Protocol::simple)
          << bytes << " bytes, " << nranks;
    }
  }
}

TEST(Route, TheLimitItselfIsStillSmall) {
  EXPECT_EQ(all_reduce(facts(false, 2, kHostLlLimitBytes)).protocol, Protocol::ll);
  EXPECT_EQ(all_reduce(facts(false, 2, kHostLlLimitBytes + 2)).protocol, Protocol::simple);
  EXPECT_EQ(all_reduce(facts(true, 2, kGpuLlLimitBytes)).protocol, Protocol::ll);
  EXPECT_EQ(all_reduce(facts(true, 2, kGpuLlLimitBytes + 2)).protocol, Protocol::simple);
  EXPECT_EQ(all_reduce(facts(true, 5, kGpuLlLimitBytes / 4)).protocol, Protocol::ll);
  EXPECT_EQ(all_reduce(facts(true, 5, kGpuLlLimitBytes / 4 + 2)).protocol, Protocol::simple);
}

// A launch that the kernels cannot run would be refused or, worse, hang.
TEST(Route, EveryLaunchFitsTheRegions) {
  for (const std::uint32_t regions : {1u, 2u, 16u, 64u, 1024u}) {
    for (const std::uint32_t slots : {32u, 64u, 96u, 512u, 2048u, 1u << 20}) {
      for (int nranks = 2; nranks <= 8; ++nranks) {
        for (const std::size_t bytes : many_sizes()) {
          Facts one = facts(true, nranks, bytes);
          one.regions = regions;
          one.slots = slots;
          for (const Route& route :
               {all_reduce(one), forced(one, Protocol::ll), forced(one, Protocol::simple)}) {
            ASSERT_GE(route.grid, 1u);
            ASSERT_LE(route.grid, regions);
            ASSERT_GE(route.threads, 32u);
            ASSERT_LE(route.threads, 512u);
            ASSERT_EQ(route.threads % 32, 0u);
            if (route.protocol == Protocol::ll) {
              ASSERT_GE(route.held, 1u);
              ASSERT_LE(route.threads * route.held, slots) << bytes << " bytes, " << nranks << " ranks";
            }
          }
        }
      }
    }
  }
}

// A large message does not get a small grid because a number was cut to 32 bits.
TEST(Route, LargeMessagesUseAllRegions) {
  for (int nranks = 2; nranks <= 8; ++nranks) {
    for (const std::size_t bytes : many_sizes()) {
      if (bytes < std::size_t{64} << 20) continue;
      EXPECT_EQ(forced(facts(true, nranks, bytes), Protocol::ll).grid, 64u) << bytes;
      EXPECT_EQ(forced(facts(true, nranks, bytes), Protocol::simple).grid, 64u) << bytes;
    }
  }
}

TEST(Route, TheCallersProtocolCounts) {
  for (const bool gpu : {false, true}) {
    for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
      for (const std::size_t bytes : {std::size_t{2}, std::size_t{1} << 24}) {
        const Route route = forced(facts(gpu, 4, bytes), protocol);
        EXPECT_EQ(route.protocol, protocol);
        EXPECT_NE(std::strstr(route.reason, "caller"), nullptr);
      }
    }
  }
}

// Bytes decide, not the type that they belong to.
TEST(Route, TypesOfTheSameBytesTakeTheSameRoute) {
  for (const bool gpu : {false, true}) {
    for (const std::size_t bytes :
         {std::size_t{8}, std::size_t{4096}, std::size_t{4104}, std::size_t{1} << 20}) {
      const Route first = all_reduce(facts(gpu, 4, bytes, DataType::bf16));
      for (const DataType type : kDataTypes) {
        for (const ReduceOp op : kReduceOps) {
          Facts other = facts(gpu, 4, bytes, type);
          other.op = op;
          const Route route = all_reduce(other);
          EXPECT_EQ(route.protocol, first.protocol);
          EXPECT_EQ(route.grid, first.grid);
          EXPECT_EQ(route.threads, first.threads);
          EXPECT_EQ(route.held, first.held);
        }
      }
    }
  }
}

// Code that takes its operator at run time has one pack a thread, and so takes more CTAs or rounds.
TEST(Route, OnlyTypesWithCodeOfTheirOwnHoldSeveralPacks) {
  for (const DataType type : kDataTypes) {
    for (const ReduceOp op : kReduceOps) {
      Facts large = facts(true, 2, 512 * 1024, type);
      large.op = op;
      const Route route = all_reduce(large);
      EXPECT_EQ(route.protocol, Protocol::ll);
      EXPECT_EQ(route.held > 1, algorithm::has_own_code(type, op)) << name_of(type) << ' ' << name_of(op);
    }
  }
}

TEST(Route, KindsHaveNames) {
  EXPECT_STREQ(algorithm::name_of(Algorithm::copy), "copy");
  EXPECT_STREQ(algorithm::name_of(Algorithm::one_shot), "one_shot");
  EXPECT_STREQ(algorithm::name_of(Protocol::ll), "ll");
  EXPECT_STREQ(algorithm::name_of(Protocol::simple), "simple");
  EXPECT_STREQ(algorithm::name_of(static_cast<Protocol>(9)), "invalid");
}

}  // namespace
}  // namespace nearlight::route
