// When a message goes by whole lines of 128 bytes, and when it is added to the others' lines.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "route/route.hpp"
#include "tests/unit/route_facts.hpp"

namespace nearlight::route {
namespace {

// A table by which LL128 is taken; that of the H200 leaves it out until it has been measured.
constexpr Table with_lines() {
  Table table = kH200Table;
  table.ll128_first_bytes = 16 * 1024;
  table.ll128_limit_bytes = 1024 * 1024;
  return table;
}
constexpr Table kWithLines = with_lines();

// GPUs between which lines were found whole.
Facts whole_facts(int nranks, std::size_t bytes, DataType type) {
  Facts one = facts(true, nranks, bytes, type);
  one.regions = 128;
  one.lines = 140;
  one.table = &kWithLines;
  one.whole.path = probe::PathType::nvl;
  one.whole.stores = probe::LineVerdict::whole;
  return one;
}

TEST(Route, WholeLinesCarryTheMiddleSizesOfTypesWithoutASentinel) {
  const std::size_t first = kWithLines.ll128_first_bytes, limit = kWithLines.ll128_limit_bytes;
  for (const DataType type : kDataTypes) {
    for (const std::size_t bytes : {first - 8, first, first * 4, limit, limit + 8}) {
      const Route route = all_reduce(whole_facts(2, bytes, type));
      const bool middle = bytes >= first && bytes <= limit && is_integer(type);
      EXPECT_EQ(route.protocol == Protocol::ll128, middle) << name_of(type) << ' ' << bytes;
    }
  }
  // One rank's bytes count: the message times the other ranks.
  EXPECT_EQ(all_reduce(whole_facts(3, first / 2, DataType::i32)).protocol, Protocol::ll128);
  EXPECT_EQ(all_reduce(whole_facts(3, first / 2 - 8, DataType::i32)).protocol, Protocol::ll);
  // With many ranks one-shot sends too much.
  EXPECT_EQ(all_reduce(whole_facts(8, limit / 7, DataType::i32)).algorithm, Algorithm::two_shot);
  EXPECT_EQ(all_reduce(whole_facts(4, limit / 3, DataType::i32)).protocol, Protocol::ll128);
}

TEST(Route, TheShippedTableTakesNoLines) {
  for (std::size_t bytes = 8; bytes <= std::size_t{64} << 20; bytes *= 2) {
    Facts one = whole_facts(2, bytes, DataType::i32);
    one.table = nullptr;
    EXPECT_NE(all_reduce(one).protocol, Protocol::ll128) << bytes;
  }
}

TEST(Route, LinesGoInOneRoundOfWholeWarps) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{480}, std::size_t{482}, std::size_t{16} << 10,
                                  std::size_t{100'000}, std::size_t{1} << 20}) {
    const Route route = *forced(whole_facts(2, bytes, DataType::i32), Protocol::ll128);
    EXPECT_EQ(route.threads % 32, 0u);
    EXPECT_LE(route.threads, 512u);
    EXPECT_LE(route.grid, 64u);
    const std::size_t units = (bytes + 479) / 480;
    EXPECT_LE(units, std::size_t{route.grid} * (140 / 4)) << bytes;
    EXPECT_LT((route.grid - 1) * (route.threads / 32), units) << "a CTA without work";
  }
}

// Everything else than NVLink may bring a line in pieces, whatever a test found.
TEST(Route, WholeLinesAreOfNvlinkAlone) {
  using probe::PathType;
  for (const PathType path : {PathType::nvl, PathType::pxb, PathType::phb, PathType::sys, PathType::c2c,
                              PathType::same_gpu, PathType::unknown}) {
    Facts one = whole_facts(2, 64 * 1024, DataType::i32);
    one.whole.path = path;
    EXPECT_EQ(all_reduce(one).protocol == Protocol::ll128, path == PathType::nvl) << name_of(path);
    EXPECT_EQ(lines_are_whole(one), path == PathType::nvl);
    // Refused where it is forced, with the reason.
    EXPECT_EQ(forced(one, Protocol::ll128).status().code(),
              path == PathType::nvl ? Code::ok : Code::unsupported);
    const std::string doubt = doubt_about_lines(one, Algorithm::one_shot);
    EXPECT_EQ(doubt.empty(), path == PathType::nvl);
    EXPECT_EQ(doubt.find(name_of(path)) != std::string::npos, path != PathType::nvl) << doubt;
  }
}

TEST(Route, LinesThatWereTornOrNotTestedAreNotChosen) {
  using probe::LineVerdict;
  for (const LineVerdict verdict :
       {LineVerdict::not_run, LineVerdict::torn, LineVerdict::late, LineVerdict::whole}) {
    Facts one = whole_facts(2, 64 * 1024, DataType::i32);
    one.whole.stores = verdict;
    EXPECT_EQ(all_reduce(one).protocol == Protocol::ll128, verdict == LineVerdict::whole) << name_of(verdict);
    one.whole.stores = LineVerdict::whole;
    one.lines = 0;  // no memory
    EXPECT_NE(all_reduce(one).protocol, Protocol::ll128);
    const auto refused = forced(one, Protocol::ll128);
    EXPECT_EQ(refused.status().code(), Code::invalid_argument);
    EXPECT_NE(refused.status().text().find("lines"), std::string::npos);
  }
}

// Where two-shot would be, and nobody asks for the same bits from run to run.
TEST(Route, WhatAddsIsChosenOnlyWhereItMayBe) {
  const auto adding = [] {
    Facts one = whole_facts(4, 1 << 20, DataType::bf16);
    one.sums = one.lines;
    one.deterministic = false;
    one.whole.adds = probe::LineVerdict::whole;
    return one;
  };
  EXPECT_EQ(all_reduce(adding()).algorithm, Algorithm::two_shot_atomic);
  EXPECT_EQ(all_reduce(adding()).protocol, Protocol::ll128);
  const auto without = [&](auto&& change) {
    Facts one = adding();
    change(one);
    return all_reduce(one).algorithm;
  };
  EXPECT_EQ(without([](Facts& one) { one.deterministic = true; }), Algorithm::two_shot);
  EXPECT_EQ(without([](Facts& one) { one.op = ReduceOp::max; }), Algorithm::two_shot);
  EXPECT_NE(without([](Facts& one) { one.type = DataType::f64; }), Algorithm::two_shot_atomic);
  EXPECT_EQ(without([](Facts& one) { one.adds_lines = false; }), Algorithm::two_shot);
  EXPECT_EQ(without([](Facts& one) { one.sums = 0; }), Algorithm::two_shot);
  EXPECT_EQ(without([](Facts& one) { one.whole.adds = probe::LineVerdict::torn; }), Algorithm::two_shot);
  EXPECT_EQ(without([](Facts& one) { one.whole.path = probe::PathType::c2c; }), Algorithm::two_shot);
  EXPECT_EQ(without([](Facts& one) { one.nranks = 2; }), Algorithm::one_shot);
  EXPECT_EQ(without([](Facts& one) { one.count = 1024; }), Algorithm::one_shot);
  EXPECT_EQ(without([](Facts& one) { one.count = 1 << 24; }), Algorithm::one_shot) << "more than a round";
}

TEST(Route, WhatAddsIsRefusedByName) {
  const auto refused = [](Code code, const char* named, auto&& change) {
    Facts one = facts(true, 3, 64 * 1024);
    one.sums = one.lines;
    one.whole.adds = probe::LineVerdict::whole;
    one.deterministic = false;
    EXPECT_EQ(forced_two_shot_atomic(one)->algorithm, Algorithm::two_shot_atomic);
    change(one);
    const auto route = forced_two_shot_atomic(one);
    EXPECT_EQ(route.status().code(), code);
    EXPECT_NE(route.status().text().find(named), std::string::npos) << route.status().text();
  };
  refused(Code::invalid_argument, "deterministic", [](Facts& one) { one.deterministic = true; });
  refused(Code::invalid_argument, "max", [](Facts& one) { one.op = ReduceOp::max; });
  refused(Code::invalid_argument, "int32", [](Facts& one) { one.type = DataType::i32; });
  refused(Code::unsupported, "9.0", [](Facts& one) { one.adds_lines = false; });
  refused(Code::unsupported, "kind of call", [](Facts& one) { one.two_shot = false; });
  refused(Code::invalid_argument, "lines", [](Facts& one) { one.lines = one.sums = 0; });
  Facts small = facts(true, 3, 480);
  small.sums = small.lines;
  small.whole.adds = probe::LineVerdict::whole;
  small.deterministic = false;
  EXPECT_EQ(forced_two_shot_atomic(small)->algorithm, Algorithm::one_shot);
  EXPECT_NE(std::strstr(forced_two_shot_atomic(small)->reason, "too small"), nullptr);
}

}  // namespace
}  // namespace nearlight::route
