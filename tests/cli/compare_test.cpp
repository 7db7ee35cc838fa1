#include "cli/compare.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/sample_results.hpp"

namespace nearlight::cli {
namespace {

using test::sample_results;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A file with one row, whose p95 lies `noise` above its p50.
ResultFile file_of(double p50_us, double noise_us) {
  ResultFile file = sample_results();
  file.rows.resize(1);
  file.rows[0].p50_us = p50_us;
  file.rows[0].p95_us = p50_us + noise_us;
  return file;
}

Change change_of(const ResultFile& before, const ResultFile& after) {
  const auto compared = compare(before, after);
  EXPECT_TRUE(compared.ok()) << compared.status().to_string();
  return compared.ok() && compared->rows.size() == 1 ? compared->rows[0].change : Change::wrong;
}

TEST(Compare, TwoPercentOrTheNoiseOfEitherRow) {
  EXPECT_EQ(change_of(file_of(100, 0), file_of(102, 0)), Change::same);
  EXPECT_EQ(change_of(file_of(100, 0), file_of(102.1, 0)), Change::slower);
  EXPECT_EQ(change_of(file_of(100, 0), file_of(98, 0)), Change::same);
  EXPECT_EQ(change_of(file_of(100, 0), file_of(97.9, 0)), Change::faster);
  EXPECT_EQ(change_of(file_of(100, 10), file_of(110, 0)), Change::same);
  EXPECT_EQ(change_of(file_of(100, 10), file_of(110.1, 0)), Change::slower);
  EXPECT_EQ(change_of(file_of(100, 0), file_of(110, 10)), Change::same);
  EXPECT_EQ(change_of(file_of(100, 0), file_of(89.9, 10)), Change::faster);
}

TEST(Compare, WrongResultsHaveNoTime) {
  ResultFile wrong = file_of(50, 0);
  wrong.rows[0].wrong = 1;
  EXPECT_EQ(change_of(file_of(100, 0), wrong), Change::wrong);
  EXPECT_EQ(exit_code_of(compare(file_of(100, 0), wrong).value()), kExitWrong);
  EXPECT_EQ(change_of(wrong, file_of(100, 0)), Change::wrong);
  EXPECT_EQ(exit_code_of(compare(wrong, file_of(100, 0)).value()), kExitOk);
}

TEST(Compare, RowsBelongTogetherByEveryPartOfTheirKind) {
  const std::function<void(ResultRow&)> kOthers[] = {
      [](ResultRow& row) { row.collective = "reduce_scatter"; },
      [](ResultRow& row) { row.bytes = 8; },
      [](ResultRow& row) { row.dtype = "f32"; },
      [](ResultRow& row) { row.op = "max"; },
      [](ResultRow& row) { row.ranks = 4; },
      [](ResultRow& row) { row.mode = Mode::kernel; },
      [](ResultRow& row) { row.chain = 10; },
      [](ResultRow& row) { row.impl = "nccl"; },
      [](ResultRow& row) { row.forced = "protocol=ll"; },
      [](ResultRow& row) { row.scratch = 512; },
      [](ResultRow& row) { row.jobs = 2; },
  };
  for (const auto& change : kOthers) {
    ResultFile other = file_of(100, 0);
    change(other.rows[0]);
    EXPECT_EQ(compare(file_of(100, 0), other).status().code(), Code::invalid_argument);
    other.rows.push_back(file_of(100, 0).rows[0]);
    const auto compared = compare(file_of(100, 0), other);
    ASSERT_TRUE(compared.ok());
    ASSERT_EQ(compared->rows.size(), 2u);
    EXPECT_EQ(compared->rows[0].change, Change::only_new);
    EXPECT_EQ(compared->rows[1].change, Change::same);
    EXPECT_EQ(exit_code_of(*compared), kExitOk);
    EXPECT_EQ(compare(other, file_of(100, 0)).value().rows[1].change, Change::only_old);
  }
  // Another protocol that the route chose itself is what may have made the difference.
  ResultFile routed = file_of(200, 0);
  routed.rows[0].protocol = "simple";
  EXPECT_EQ(change_of(file_of(100, 0), routed), Change::slower);
  // Where the name says what was forced, older files say it too.
  ResultFile old_named = file_of(100, 0), new_named = file_of(100, 0);
  old_named.rows[0].impl = new_named.rows[0].impl = "nearlight_ll";
  new_named.rows[0].forced = "protocol=ll";
  EXPECT_EQ(change_of(old_named, new_named), Change::same);
}

TEST(Compare, TheMedianStandsForManyRowsOfAKind) {
  ResultFile many = file_of(100, 0);
  for (const double us : {150.0, 101.0, 90.0, 300.0}) many.rows.push_back(file_of(us, 0).rows[0]);
  const auto compared = compare(file_of(100, 0), many);
  ASSERT_TRUE(compared.ok());
  ASSERT_EQ(compared->rows.size(), 1u);
  EXPECT_EQ(compared->rows[0].new_us, 101);
}

TEST(Compare, OtherMachinesDriversAndVariablesAreTold) {
  EXPECT_THAT(compare(sample_results(), sample_results()).value().differences, IsEmpty());
  ResultFile other = sample_results();
  other.machine = {"NVIDIA H100", 3, "PCIe", "1", "2", "3", "4"};
  other.env = {{"NCCL_NVLS_ENABLE", "1"}, {"NEARLIGHT_CHECK", "1"}};
  const auto compared = compare(sample_results(), other);
  ASSERT_TRUE(compared.ok());
  EXPECT_THAT(
      compared->differences,
      ElementsAre("machine.gpu: 'NVIDIA H200' -> 'NVIDIA H100'", "machine.gpus: '2' -> '3'",
                  "machine.link: 'NVLink' -> 'PCIe'", "machine.driver: '580.159.04' -> '1'",
                  "machine.cuda: '13.0' -> '2'", "machine.nccl: '2.28.9' -> '3'",
                  "machine.cpu: 'some processor' -> '4'", "env.CUDA_DEVICE_MAX_CONNECTIONS: '32' -> ''",
                  "env.NCCL_NVLS_ENABLE: '0' -> '1'", "env.NEARLIGHT_CHECK: '' -> '1'"));
  EXPECT_THAT(comparison_table(*compared), HasSubstr("#   machine.driver: '580.159.04' -> '1'\n"));
}

TEST(Compare, TableHasOldNewChangeLimitAndVerdict) {
  ResultFile before = file_of(2, 0.1), after = file_of(2.5, 0.05);
  after.rows[0].scratch = before.rows[0].scratch = 512;
  after.rows[0].forced = before.rows[0].forced = "protocol=ll";
  const std::string text = comparison_table(compare(before, after).value());
  EXPECT_THAT(text,
              HasSubstr("        4096  nearlight           all_reduce      bf16 sum     2 graph       2.000 "
                        "    2.500     +25.0      5.0  slower (protocol=ll) (scratch 512)\n"));
  after.rows[0].jobs = before.rows[0].jobs = 2;
  EXPECT_THAT(comparison_table(compare(before, after).value()), HasSubstr("(scratch 512) (2 jobs)\n"));
  EXPECT_THAT(text, HasSubstr("# Slower: 1, faster: 0, same: 0, wrong: 0, in one file only: 0\n"));
}

}  // namespace
}  // namespace nearlight::cli
