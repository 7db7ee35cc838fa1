// `nearlight tune` between CPU ranks, from measurement to a table that communicators take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/exit_code.hpp"
#include "cli/text_file.hpp"
#include "route/table_file.hpp"
#include "tests/cli/run_program.hpp"

namespace nearlight::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// 4 KiB by LL take four times as long as by simple, so that even a busy machine shows it.
TEST(Tune, ABadTableGetsBetterAndIsTaken) {
  const std::string bad = temporary_path("bad.json"), better = temporary_path("better.json");
  std::ofstream(bad) << R"({"schema": 1, "backend": "host", "nranks": 2, "ll_limit_bytes": 4096})";
  const std::string from_bad = "NEARLIGHT_ROUTE_TABLE='" + bad + "'";
  const Ran ran = run_program("tune --backend host --ranks 2 --budget 3 -o '" + better + "'", 120, from_bad);
  ASSERT_EQ(ran.exit_code, cli::kExitOk) << ran.err << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("# tune: 2 CPU ranks, from the table from NEARLIGHT_ROUTE_TABLE"));
  EXPECT_THAT(ran.out, HasSubstr("# ll_limit_bytes: ll or simple, float sum"));
  EXPECT_THAT(ran.out, HasSubstr("\nll_limit_bytes 4096 -> ")) << ran.out;
  EXPECT_THAT(ran.out, HasSubstr(" sizes gain "));
  EXPECT_THAT(ran.out, HasSubstr("# 1 numbers changed"));
  EXPECT_THAT(ran.out, HasSubstr("NEARLIGHT_ROUTE_TABLE=" + better));

  const auto table = route::read_table_file(better, {false, "", 2});
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  ASSERT_TRUE(table->has_value());
  EXPECT_LT((*table)->ll_limit_bytes, 4096u);
  const auto text = cli::read_text_file(better);
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  ASSERT_TRUE(json.is_object()) << *text;
  EXPECT_THAT(json.at("made_by").get<std::string>(), HasSubstr("nearlight tune"));

  const auto route_of_4k = [](const std::string& environment) {
    return run_program("bench all_reduce --backend host --ranks 2 -b 4K -e 4K -n 20", 120,
                       "NEARLIGHT_DEBUG=route " + environment)
        .err;
  };
  EXPECT_THAT(route_of_4k(from_bad), HasSubstr("one_shot ll"));
  EXPECT_THAT(route_of_4k("NEARLIGHT_ROUTE_TABLE='" + better + "'"), HasSubstr("one_shot simple"));
  for (const std::string& path : {bad, better}) unlink(path.c_str());
}

TEST(Tune, WhatCannotBeWrittenOrReadIsNamed) {
  const Ran nowhere = run_program("tune --backend host --budget 1 -o /no/such/folder/table.json");
  EXPECT_EQ(nowhere.exit_code, cli::kExitUsage) << nowhere.err;
  EXPECT_THAT(nowhere.out, IsEmpty());
  EXPECT_THAT(nowhere.err, HasSubstr("/no/such/folder/table.json"));
  const Ran bad = run_program("tune --backend host --budget 1", 120, "NEARLIGHT_ROUTE_TABLE=/no/such/table");
  EXPECT_NE(bad.exit_code, cli::kExitOk);
  EXPECT_THAT(bad.err, HasSubstr("NEARLIGHT_ROUTE_TABLE: open /no/such/table"));
  EXPECT_THAT(bad.out, IsEmpty());
}

TEST(Tune, WithoutAGpuBetweenCpuRanksAndThatIsSaid) {
  const std::string path = temporary_path("table.json");
  const Ran ran = run_program("tune --budget 1 -o '" + path + "'", 120, "CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(ran.exit_code, cli::kExitOk) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("no GPU"));
  EXPECT_TRUE(route::read_table_file(path, {false, "", 2}).ok());
  unlink(path.c_str());
}

}  // namespace
}  // namespace nearlight::test
