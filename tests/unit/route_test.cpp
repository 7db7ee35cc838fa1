#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "route/route.hpp"
#include "tests/unit/route_facts.hpp"

namespace nearlight::route {
namespace {

constexpr std::size_t kMostBytes = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());

// Where one-shot alone is looked at.
Facts one_shot_facts(bool gpu, int nranks, std::size_t bytes, DataType type = DataType::bf16) {
  Facts one = facts(gpu, nranks, bytes, type);
  one.two_shot = false;
  return one;
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
      EXPECT_EQ(route.protocol, bytes / 2 * 2 <= kCpuTable.ll_limit_bytes ? Protocol::ll : Protocol::simple)
          << bytes;
      EXPECT_STRNE(route.reason, "");
    }
  }
}

// What a rank sends counts: the message times the other ranks, without wrapping round for huge ones.
TEST(Route, SmallOnesCarryTheirFlagOnTheGpu) {
  for (int nranks = 2; nranks <= 8; ++nranks) {
    for (const std::size_t bytes : many_sizes()) {
      const Route route = all_reduce(one_shot_facts(true, nranks, bytes));
      const auto sent = static_cast<unsigned __int128>(bytes / 2 * 2) * static_cast<unsigned>(nranks - 1);
      const bool middle =
          bytes / 2 * 2 >= kH200Table.sentinel_first_bytes / static_cast<std::size_t>(nranks - 1) &&
          sent <= kH200Table.sentinel_limit_bytes;
      EXPECT_EQ(route.protocol, middle                              ? Protocol::sentinel
                                : sent <= kH200Table.ll_limit_bytes ? Protocol::ll
                                                                    : Protocol::simple)
          << bytes << " bytes, " << nranks;
      // Integers have no value to spare for "nothing has arrived".
      EXPECT_EQ(all_reduce(one_shot_facts(true, nranks, bytes, DataType::u8)).protocol,
                static_cast<unsigned __int128>(bytes) * static_cast<unsigned>(nranks - 1) <=
                        kH200Table.ll_limit_bytes
                    ? Protocol::ll
                    : Protocol::simple)
          << bytes << " bytes, " << nranks;
    }
  }
}

// More than one round would need a fence between two.
// The kernel without conditions takes a message that leaves no warp idle.
TEST(Route, ACtaOfLlHasNoWarpWithoutAPack) {
  for (const std::size_t bytes : {8u, 128u, 256u, 264u, 512u, 520u, 768u, 776u, 1024u}) {
    const Route route = all_reduce(facts(true, 2, bytes));
    ASSERT_EQ(route.protocol, Protocol::ll) << bytes;
    EXPECT_EQ(route.grid, 1u) << bytes;
    EXPECT_EQ(route.threads, (bytes / 8 + 31) / 32 * 32) << bytes;
  }
}

TEST(Route, ASentinelMessageFitsOneRound) {
  for (const std::uint32_t packets : {0u, 1u, 64u, 512u, 1024u, 2048u, 4096u}) {
    for (const std::uint32_t regions : {1u, 64u, 104u, 128u}) {
      for (const std::size_t bytes : many_sizes()) {
        Facts one = facts(true, 2, bytes);
        one.packets = packets;
        one.regions = regions;
        const Route route = all_reduce(one);
        if (route.protocol != Protocol::sentinel) continue;
        ASSERT_LE(bytes / 2 * 2, std::size_t{16} * packets * regions);
        ASSERT_GE(std::size_t{16} * route.grid * packets, bytes / 2 * 2);
      }
    }
  }
}

TEST(Route, TheLimitItselfIsStillSmall) {
  EXPECT_EQ(all_reduce(facts(false, 2, kCpuTable.ll_limit_bytes)).protocol, Protocol::ll);
  EXPECT_EQ(all_reduce(facts(false, 2, kCpuTable.ll_limit_bytes + 2)).protocol, Protocol::simple);
  EXPECT_EQ(all_reduce(facts(true, 2, kH200Table.sentinel_first_bytes - 2)).protocol, Protocol::ll);
  EXPECT_EQ(all_reduce(facts(true, 2, kH200Table.sentinel_first_bytes)).protocol, Protocol::sentinel);
  EXPECT_EQ(all_reduce(facts(true, 2, kH200Table.sentinel_limit_bytes)).protocol, Protocol::sentinel);
  EXPECT_EQ(all_reduce(facts(true, 2, kH200Table.sentinel_limit_bytes + 2)).protocol, Protocol::simple);
  Facts any = facts(true, 2, kH200Table.sentinel_any_limit_bytes, DataType::f64);
  EXPECT_EQ(all_reduce(any).protocol, Protocol::sentinel);
  ++any.count;
  EXPECT_EQ(all_reduce(any).protocol, Protocol::simple);
  EXPECT_EQ(all_reduce(one_shot_facts(true, 5, kH200Table.sentinel_limit_bytes / 4)).protocol,
            Protocol::sentinel);
  EXPECT_EQ(all_reduce(one_shot_facts(true, 5, kH200Table.sentinel_limit_bytes / 4 + 2)).protocol,
            Protocol::simple);
  EXPECT_EQ(all_reduce(facts(true, 2, kH200Table.ll_limit_bytes, DataType::i32)).protocol, Protocol::ll);
  EXPECT_EQ(all_reduce(facts(true, 2, kH200Table.ll_limit_bytes + 4, DataType::i32)).protocol,
            Protocol::simple);
  EXPECT_EQ(all_reduce(one_shot_facts(true, 5, kH200Table.ll_limit_bytes / 4, DataType::i32)).protocol,
            Protocol::ll);
  EXPECT_EQ(all_reduce(one_shot_facts(true, 5, kH200Table.ll_limit_bytes / 4 + 4, DataType::i32)).protocol,
            Protocol::simple);
}

// Two-shot sends 2 (n-1)/n of a message where one-shot sends n-1 of it, for one way more.
TEST(Route, TwoShotFromWhereItSendsEnoughLess) {
  for (int nranks = 2; nranks <= 8; ++nranks) {
    const auto n = static_cast<std::size_t>(nranks);
    std::size_t first = 0;
    for (std::size_t bytes = 1024; bytes <= kH200Table.sentinel_limit_bytes; bytes += 1024) {
      const bool two = all_reduce(facts(true, nranks, bytes)).algorithm == Algorithm::two_shot;
      if (two && first == 0) first = bytes;
      EXPECT_EQ(two, first != 0) << nranks << " ranks, " << bytes;
    }
    if (nranks == 2) {
      EXPECT_EQ(first, 0u);
      continue;
    }
    const std::size_t less = first * (n - 1) - 2 * first * (n - 1) / n;
    EXPECT_GE(less, kH200Table.two_shot_gain_bytes - 16 * 1024) << nranks;
    EXPECT_LE(less, kH200Table.two_shot_gain_bytes + 16 * 1024) << nranks;
    EXPECT_EQ(all_reduce(facts(true, nranks, kH200Table.sentinel_limit_bytes)).protocol, Protocol::sentinel);
    EXPECT_EQ(all_reduce(facts(true, nranks, kH200Table.sentinel_limit_bytes + 2)).algorithm,
              Algorithm::one_shot);
  }
  EXPECT_EQ(all_reduce(facts(true, 8, 64 * 1024, DataType::i32)).algorithm, Algorithm::two_shot);
  EXPECT_EQ(all_reduce(facts(true, 8, 64 * 1024, DataType::i32)).protocol, Protocol::ll);
  EXPECT_EQ(all_reduce(facts(false, 8, 64 * 1024)).algorithm, Algorithm::one_shot);
}

TEST(Route, TwoShotOnRequest) {
  for (const bool gpu : {false, true}) {
    const Route route = *forced_two_shot(facts(gpu, 3, 4096), Protocol::ll);
    EXPECT_EQ(route.algorithm, Algorithm::two_shot);
    EXPECT_EQ(route.protocol, Protocol::ll);
    // Two elements are one pack: two of three ranks would own nothing.
    const Route small = *forced_two_shot(facts(gpu, 3, 4), Protocol::ll);
    EXPECT_EQ(small.algorithm, Algorithm::one_shot);
    EXPECT_NE(std::strstr(small.reason, "too small for two_shot"), nullptr);
    const auto simple = forced_two_shot(facts(gpu, 3, 4096), Protocol::simple);
    EXPECT_EQ(simple.status().code(), Code::invalid_argument);
    EXPECT_NE(simple.status().text().find("protocol: two_shot"), std::string::npos);
    EXPECT_EQ(forced_two_shot(facts(gpu, 3, 4096, DataType::i32), Protocol::sentinel).status().code(),
              Code::invalid_argument);
    EXPECT_EQ(forced_two_shot(one_shot_facts(gpu, 3, 4096), Protocol::ll).status().code(), Code::unsupported);
  }
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
               {all_reduce(one), *forced(one, Protocol::ll), *forced(one, Protocol::simple),
                *forced(one, Protocol::sentinel), *forced_two_shot(one, Protocol::ll),
                *forced_two_shot(one, Protocol::sentinel)}) {
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
      for (const Protocol protocol : algorithm::kProtocols) {
        EXPECT_EQ(forced(facts(true, nranks, bytes), protocol)->grid, 64u) << bytes;
      }
    }
  }
}

TEST(Route, TheCallersProtocolCounts) {
  for (const bool gpu : {false, true}) {
    for (const Protocol protocol : algorithm::kProtocols) {
      for (const std::size_t bytes : {std::size_t{2}, std::size_t{1} << 24}) {
        const Route route = *forced(facts(gpu, 4, bytes), protocol);
        EXPECT_EQ(route.protocol, protocol);
        EXPECT_NE(std::strstr(route.reason, "caller"), nullptr);
      }
    }
  }
}

TEST(Route, AForcedPathIsTakenWhereItCanBe) {
  for (const bool gpu : {false, true}) {
    for (const Protocol protocol : algorithm::kProtocols) {
      for (const DataType type : {DataType::bf16, DataType::i32}) {
        for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 24}) {
          Facts one = facts(gpu, 4, bytes, type);
          const Route free = all_reduce(one);
          one.forced.protocol = protocol;
          const bool can = algorithm::carries(protocol, type);
          const Route route = all_reduce(one);
          EXPECT_EQ(route.protocol, can ? protocol : free.protocol);
          EXPECT_EQ(std::strstr(route.reason, "NEARLIGHT_FORCE_PATH") != nullptr, can);
          if (can) {
            EXPECT_EQ(route.grid, forced(one, protocol)->grid);
          }
        }
      }
    }
  }
  for (const bool gpu : {false, true}) {
    for (const DataType type : {DataType::bf16, DataType::i32}) {
      Facts two = facts(gpu, 3, 4096, type);
      two.forced.algorithm = Algorithm::two_shot;
      EXPECT_EQ(all_reduce(two).algorithm, Algorithm::two_shot);
      EXPECT_EQ(all_reduce(two).protocol, is_integer(type) ? Protocol::ll : Protocol::sentinel);
      EXPECT_NE(std::strstr(all_reduce(two).reason, "NEARLIGHT_FORCE_PATH"), nullptr);
      two.two_shot = false;  // no code of it
      EXPECT_EQ(all_reduce(two).algorithm, Algorithm::one_shot);
      // Too small to be cut into parts.
      Facts small = facts(gpu, 3, 4, type);
      small.forced.algorithm = Algorithm::two_shot;
      EXPECT_EQ(all_reduce(small).algorithm, Algorithm::one_shot);
    }
  }
  // Where there are no packets: a loop inside a kernel, say.
  Facts without = facts(true, 2, 4096);
  without.packets = 0;
  without.forced.protocol = Protocol::sentinel;
  EXPECT_EQ(all_reduce(without).protocol, Protocol::ll);
  Facts alone = facts(true, 1, 4096);
  alone.forced.protocol = Protocol::ll;
  EXPECT_EQ(all_reduce(alone).algorithm, Algorithm::copy);
}

TEST(Route, SentinelIsRefusedForIntegers) {
  for (const DataType type : kDataTypes) {
    const auto route = forced(facts(true, 2, 4096, type), Protocol::sentinel);
    EXPECT_EQ(route.ok(), !is_integer(type)) << name_of(type);
    if (route.ok()) continue;
    EXPECT_EQ(route.status().code(), Code::invalid_argument);
    EXPECT_NE(route.status().text().find("protocol: sentinel"), std::string::npos);
  }
}

// Bytes decide, and whether the type has NaNs, not the type that they belong to (but for where the sentinel
// begins and ends, which depends on whether there is code for the operator).
TEST(Route, TypesOfTheSameBytesTakeTheSameRoute) {
  for (const bool gpu : {false, true}) {
    for (const std::size_t bytes :
         {std::size_t{8}, std::size_t{1024}, std::size_t{1032}, std::size_t{1} << 19}) {
      for (const DataType type : kDataTypes) {
        const Route first =
            all_reduce(facts(gpu, 4, bytes, is_integer(type) ? DataType::i32 : DataType::bf16));
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
      large.packets = 0;  // LL for all types
      const Route route = all_reduce(large);
      EXPECT_EQ(route.protocol, Protocol::ll);
      EXPECT_EQ(route.held > 1, algorithm::has_own_code(type, op)) << name_of(type) << ' ' << name_of(op);
    }
  }
}

TEST(Route, KindsHaveNames) {
  EXPECT_STREQ(algorithm::name_of(Algorithm::copy), "copy");
  EXPECT_STREQ(algorithm::name_of(Algorithm::one_shot), "one_shot");
  EXPECT_STREQ(algorithm::name_of(Algorithm::two_shot), "two_shot");
  EXPECT_STREQ(algorithm::name_of(Protocol::ll), "ll");
  EXPECT_STREQ(algorithm::name_of(Protocol::simple), "simple");
  EXPECT_STREQ(algorithm::name_of(Algorithm::two_shot_atomic), "two_shot_atomic");
  EXPECT_STREQ(algorithm::name_of(Protocol::sentinel), "sentinel");
  EXPECT_STREQ(algorithm::name_of(Protocol::ll128), "ll128");
  EXPECT_STREQ(algorithm::name_of(static_cast<Protocol>(9)), "invalid");
}

}  // namespace
}  // namespace nearlight::route
