// The program's surface: help, version, exit status, info.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include <nearlight/build_info.hpp>
#include "base/variables.hpp"
#include "cli/exit_code.hpp"
#include "tests/cli/run_program.hpp"

namespace nearlight::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(Program, VersionNamesTheCommit) {
  const Ran ran = run_program("--version");
  EXPECT_EQ(ran.exit_code, cli::kExitOk);
  EXPECT_EQ(ran.out, std::string("nearlight ") + build_info::version + " (" + build_info::commit + ")\n");
}

TEST(Program, HelpOfEveryCommandHasExamples) {
  for (const std::string command : {"", "sol ", "bench ", "info ", "demo ", "tune "}) {
    const Ran ran = run_program(command + "--help");
    EXPECT_EQ(ran.exit_code, cli::kExitOk) << command;
    EXPECT_THAT(ran.out, HasSubstr("Usage: nearlight")) << command;
    if (command != "sol ") {
      EXPECT_THAT(ran.out, HasSubstr("Examples:\n  nearlight ")) << command;
    }
    EXPECT_THAT(ran.err, IsEmpty()) << command;
  }
}

TEST(Program, HelpOfBenchDescribesEveryFlag) {
  const std::string help = run_program("bench --help").out;
  for (const char* flag : {"-b,--minbytes",  "-e,--maxbytes", "-f,--stepfactor",
                           "-i,--stepbytes", "-n,--iters",    "-w,--warmup_iters",
                           "-m,--agg_iters", "-c,--check",    "-d,--datatype",
                           "-o,--op",        "-g,--ngpus",    "-t,--nthreads",
                           "-G,--cudagraph", "--mode",        "--backend",
                           "--ranks",        "--against",     "--workload",
                           "--tp",           "--protocol",    "--grid",
                           "--threads",      "--offsets",     "--percentiles",
                           "--json"}) {
    EXPECT_THAT(help, HasSubstr(flag));
  }
}

TEST(Program, BadArgumentsEndWith2AndNameTheFlag) {
  const std::pair<const char*, const char*> lines[] = {{"", "subcommand"},
                                                       {"fly", "fly"},
                                                       {"sol --wings", "--wings"},
                                                       {"bench all_reduce --wings", "--wings"},
                                                       {"bench all_reduce -b 1T", "-b"},
                                                       {"bench all_reduce --workload none", "--workload"},
                                                       {"demo --workload none", "--workload"},
                                                       {"demo --ranks 99", "--ranks"},
                                                       {"info --wings", "--wings"},
                                                       {"tune --wings", "--wings"},
                                                       {"tune --ranks 1", "--ranks"},
                                                       {"tune --budget 0", "--budget"},
                                                       {"tune --backend tpu", "--backend"}};
  for (const auto& [line, word] : lines) {
    const Ran ran = run_program(line);
    EXPECT_EQ(ran.exit_code, cli::kExitUsage) << line << "\n" << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(word)) << line;
    EXPECT_THAT(ran.out, IsEmpty()) << line;
  }
}

// Hides the GPUs of a machine that has some.
constexpr const char* kNoGpu = "CUDA_VISIBLE_DEVICES=";

TEST(Program, WhatNeedsAGpuEndsWith3AndSaysWhy) {
  for (const std::string line :
       {"bench all_reduce --backend cuda", "bench all_reduce --backend nccl",
        "bench all_reduce --against nccl", "bench all_reduce --against nccl_sym",
        "bench all_reduce --mode kernel", "bench all_reduce --mode graph", "bench all_reduce --grid 4",
        "demo --backend cuda", "demo --backend nccl", "tune --backend cuda"}) {
    const Ran ran = run_program(line, 120, kNoGpu);
    EXPECT_EQ(ran.exit_code, cli::kExitUnfit) << line << "\n" << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("GPU")) << line;
    EXPECT_THAT(ran.out, IsEmpty()) << line;
  }
}

TEST(Program, InfoTellsWhatThereIsAndWhyNot) {
  const Ran ran = run_program("info", 120, kNoGpu);
  EXPECT_EQ(ran.exit_code, cli::kExitOk);
  for (const char* text :
       {"nearlight ", "backends", "host         yes", "cuda_vmm     no ", "nccl_window  no ", "GPUs ",
        "NCCL ", "routes of all_reduce", "one_shot", "limits", "workloads", "llama-3.1-70b"}) {
    EXPECT_THAT(ran.out, HasSubstr(text));
  }
}

TEST(Program, InfoTellsWhichRankThisIs) {
  EXPECT_THAT(run_program("info", 120, kNoGpu).out, HasSubstr("process    no rank: "));
  const std::string under_mpi =
      " OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=77";
  EXPECT_THAT(run_program("info", 120, kNoGpu + under_mpi).out,
              HasSubstr("process    rank 1 of 2, key \"openmpi/77\"; rank, nranks and key from Open MPI: "
                        "OMPI_COMM_WORLD_RANK=1, "));
  const Ran half = run_program("info --json", 120, std::string(kNoGpu) + " WORLD_SIZE=2");
  const auto json = nlohmann::json::parse(half.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << half.out;
  EXPECT_TRUE(json.at("place").is_null());
  EXPECT_THAT(json.at("place_problem"), HasSubstr("RANK is not set"));
}

TEST(Program, AnUnknownVariableIsNamedWithTheNearest) {
  const Ran ran = run_program("--version", 120, "NEARLIGHT_TIMOUT_MS=5 NEARLIGHT_TIMEOUT_MS=5");
  EXPECT_EQ(ran.exit_code, cli::kExitOk);
  EXPECT_EQ(
      ran.err,
      "nearlight: NEARLIGHT_TIMOUT_MS is no variable of this version and changes nothing; the nearest is "
      "NEARLIGHT_TIMEOUT_MS\n");
}

TEST(Program, InfoListsTheVariables) {
  const Ran ran = run_program("info --variables");
  EXPECT_EQ(ran.exit_code, cli::kExitOk);
  EXPECT_EQ(ran.out, variables::reference_page());
  EXPECT_EQ(run_program("info --variables --json").exit_code, cli::kExitUsage);
}

TEST(Program, InfoPrintsTheRouteTableInForce) {
  const std::string shipped = run_program("info", 120, kNoGpu).out;
  EXPECT_THAT(shipped,
              HasSubstr("route table, 2 CPU ranks: shipped for CPU ranks\n  ll_limit_bytes            32\n"));
  EXPECT_THAT(shipped, HasSubstr("route table, 2 GPU ranks: shipped for NVIDIA H200"));
  EXPECT_THAT(shipped, HasSubstr("  sentinel_first_bytes      4096\n"));

  const std::string path = temporary_path("table.json");
  std::ofstream(path) << R"({"schema": 1, "backend": "host", "nranks": 2, "ll_limit_bytes": 1024})";
  const std::string with_file = std::string(kNoGpu) + " NEARLIGHT_ROUTE_TABLE=" + path;
  const auto json = nlohmann::json::parse(run_program("info --json", 120, with_file).out, nullptr, false);
  ASSERT_TRUE(json.is_object());
  const auto& host = json.at("route_tables").at("host_2_ranks");
  EXPECT_EQ(host.at("source"), "from NEARLIGHT_ROUTE_TABLE");
  EXPECT_EQ(host.at("numbers").at("ll_limit_bytes"), 1024);
  EXPECT_TRUE(host.at("problem").is_null());
  EXPECT_EQ(json.at("routes").at("host_2_ranks_f32_sum").at(2).at("protocol"), "ll");
  // It is none for GPUs.
  EXPECT_THAT(json.at("route_tables").at("cuda_2_ranks").at("problem").get<std::string>(),
              HasSubstr(path + ": backend: "));
}

TEST(Program, InfoFollowsTheForcedPath) {
  const std::string forced = std::string(kNoGpu) + " NEARLIGHT_FORCE_PATH=sentinel";
  const auto json = nlohmann::json::parse(run_program("info --json", 120, forced).out, nullptr, false);
  ASSERT_TRUE(json.is_object());
  for (const auto& [where, routes] : json.at("routes").items()) {
    for (const auto& route : routes) EXPECT_EQ(route.at("protocol"), "sentinel") << where;
  }
}

TEST(Program, InfoAsJson) {
  const Ran ran = run_program("info --json", 120, kNoGpu);
  ASSERT_EQ(ran.exit_code, cli::kExitOk);
  const auto json = nlohmann::json::parse(ran.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << ran.out;
  EXPECT_EQ(json.at("version"), build_info::version);
  EXPECT_EQ(json.at("backends").size(), 3u);
  EXPECT_TRUE(json.at("backends")[0].at("available"));
  EXPECT_FALSE(json.at("backends")[1].at("why").get<std::string>().empty());
  EXPECT_TRUE(json.at("gpus").empty());
  EXPECT_TRUE(json.at("gpu_problem").is_string());
  for (const char* where : {"host_2_ranks_f32_sum", "cuda_2_ranks_f32_sum"}) {
    ASSERT_GE(json.at("routes").at(where).size(), 8u);
    for (const auto& route : json.at("routes").at(where)) {
      EXPECT_FALSE(route.at("reason").get<std::string>().empty());
      EXPECT_GE(route.at("grid"), 1);
    }
  }
}

}  // namespace
}  // namespace nearlight::test
