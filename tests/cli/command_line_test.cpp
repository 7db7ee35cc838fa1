#include "cli/command_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/bench/limits.hpp"
#include "cli/bench/run_cuda.hpp"
#include "cli/peers/process_launch.hpp"
#include "runtime/checks.hpp"

namespace nearlight::cli {
namespace {

using bench::BenchOptions;
using testing::ElementsAre;
using testing::HasSubstr;

Result<Invocation> parse(const std::string& line) {
  std::istringstream words(line);
  std::vector<std::string> arguments;
  for (std::string word; words >> word;) arguments.push_back(word);
  return parse_command_line(arguments);
}

BenchOptions bench_options(const std::string& line) {
  auto invocation = parse("bench all_reduce " + line);
  EXPECT_TRUE(invocation.ok()) << invocation.status().to_string();
  if (!invocation.ok()) return {};
  return std::get<BenchOptions>(*invocation);
}

std::vector<std::size_t> bytes_of(const std::string& line) {
  auto cases = bench::cases_of(bench_options(line));
  EXPECT_TRUE(cases.ok()) << cases.status().to_string();
  std::vector<std::size_t> bytes;
  if (cases.ok()) {
    for (const bench::Case& what : *cases) bytes.push_back(what.bytes());
  }
  return bytes;
}

TEST(CommandLine, TakesTheLettersOfNcclTests) {
  const BenchOptions options = bench_options(
      "-b 1K -e 4M -f 4 -n 50 -w 3 -m 7 -d bfloat16 -o max -c 0 -g 2 -t 2 --rounds 5 --in-place 0");
  EXPECT_EQ(options.min_bytes, 1024u);
  EXPECT_EQ(options.max_bytes, 4u << 20);
  EXPECT_EQ(options.step_factor, 4u);
  EXPECT_EQ(options.samples, 50u);
  EXPECT_EQ(options.warmup, 3u);
  EXPECT_EQ(options.chain, 7);
  EXPECT_EQ(options.type, DataType::bf16);
  EXPECT_EQ(options.op, ReduceOp::max);
  EXPECT_FALSE(options.check);
  EXPECT_FALSE(options.in_place);
  EXPECT_EQ(bench::ranks_of(options, 1), 4);
  EXPECT_EQ(bench_options("--minbytes 16 --maxbytes 16 --iters 9").samples, 9u);
}

TEST(CommandLine, GraphLaunchesAreModeGraphWithThatManySamples) {
  const BenchOptions options = bench_options("-G 30");
  EXPECT_EQ(options.mode, Mode::graph);
  EXPECT_EQ(options.samples, 30u);
  EXPECT_FALSE(bench_options("-G 0").mode.has_value());
}

TEST(CommandLine, SizesByFactorAndByStep) {
  EXPECT_THAT(bytes_of("-b 8 -e 64 -f 2"), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(bytes_of("-b 8 -e 30"), ElementsAre(8, 16));
  EXPECT_THAT(bytes_of("-b 100 -e 400 -i 100"), ElementsAre(100, 200, 300, 400));
  EXPECT_THAT(bytes_of("-b 1 -e 9 -f 3"), ElementsAre(4, 4, 8));  // whole floats, at least one
  EXPECT_THAT(bytes_of("-b 2G -e 2G"), ElementsAre(std::size_t{2} << 30));
}

TEST(CommandLine, SizesOfAWorkload) {
  const BenchOptions options = bench_options("--workload llama-3.1-8b --tp 2");
  EXPECT_EQ(bench::ranks_of(options, 7), 2);
  auto cases = bench::cases_of(options);
  ASSERT_TRUE(cases.ok());
  ASSERT_FALSE(cases->empty());
  EXPECT_EQ((*cases)[0].count, 4096u);
  EXPECT_EQ((*cases)[0].type, DataType::bf16);
}

TEST(CommandLine, ChainsAndSamplesByModeAndBackend) {
  EXPECT_EQ(bench::plan_of(bench_options(""), bench::Backend::host).chain, 10);
  EXPECT_EQ(bench::plan_of(bench_options(""), bench::Backend::cuda).chain, 100);
  EXPECT_EQ(bench::plan_of(bench_options("--mode eager"), bench::Backend::cuda).chain, 1);
  EXPECT_EQ(bench::plan_of(bench_options("-m 3"), bench::Backend::cuda).chain, 3);
  EXPECT_EQ(bench::plan_of(bench_options(""), bench::Backend::host).samples, 1000u);
  EXPECT_EQ(bench::plan_of(bench_options("--percentiles"), bench::Backend::host).samples, 10'000u);
  EXPECT_EQ(bench::plan_of(bench_options(""), bench::Backend::host).rounds, 10u);
}

TEST(CommandLine, PairsTakeManyTurns) {
  const auto trace = bench::plan_of(bench_options("--paired trace"), bench::Backend::cuda);
  EXPECT_EQ(trace.mode, Mode::graph);
  EXPECT_EQ(trace.rounds, 40u);
  EXPECT_EQ(trace.samples, 4000u);
  EXPECT_FALSE(trace.in_place);
  const auto deadline = bench_options("--paired deadline -d bf16");
  EXPECT_EQ(bench::mode_of(deadline, bench::Backend::cuda), Mode::kernel);
  EXPECT_EQ(bench::mode_of(deadline, bench::Backend::host), Mode::eager);
  EXPECT_EQ(bench::plan_of(bench_options("--paired deadline --rounds 7 -n 70"), bench::Backend::cuda).rounds,
            7u);
}

TEST(CommandLine, Peers) {
  EXPECT_THAT(bench_options("--against nccl,nccl_sym,nccl").against, ElementsAre("nccl", "nccl_sym"));
}

TEST(CommandLine, WhatIsForcedIsEveryCombination) {
  EXPECT_TRUE(bench::forced_of(bench_options("")).empty());
  const auto protocols = bench::forced_of(bench_options("--protocol ll,sentinel,ll"));
  ASSERT_EQ(protocols.size(), 2u);
  EXPECT_FALSE(protocols[0].algorithm.has_value());
  EXPECT_EQ(protocols[1].protocol, algorithm::Protocol::sentinel);
  const auto both = bench::forced_of(bench_options("--protocol ll,simple --algorithm one_shot"));
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[1].algorithm, algorithm::Algorithm::one_shot);
  EXPECT_EQ(both[1].protocol, algorithm::Protocol::simple);
  EXPECT_EQ(bench::forced_of(bench_options("--algorithm one_shot")).size(), 1u);
}

// Every name there is can be asked for.
TEST(CommandLine, TakesEveryAlgorithmAndProtocol) {
  for (const auto algorithm : algorithm::kAlgorithmsAndNccl) {
    EXPECT_THAT(bench_options(std::string("--algorithm ") + algorithm::name_of(algorithm)).algorithms,
                ElementsAre(algorithm));
    EXPECT_THAT(bench::algorithm_names(), HasSubstr(algorithm::name_of(algorithm)));
  }
  for (const auto protocol : algorithm::kProtocols) {
    EXPECT_THAT(bench_options(std::string("--protocol ") + algorithm::name_of(protocol)).protocols,
                ElementsAre(protocol));
  }
}

TEST(CommandLine, JobsSkewAndPeersInProcesses) {
  EXPECT_EQ(bench_options("").jobs, 1);
  EXPECT_EQ(bench_options("--jobs 2").jobs, 2);
  EXPECT_EQ(plan_of(bench_options("--skew 250"), bench::Backend::cuda).late, std::chrono::microseconds(250));
  EXPECT_FALSE(peers::needs_processes(bench_options("--against nccl,nccl_sym")));
  EXPECT_TRUE(peers::needs_processes(bench_options("--against nccl,torch_symm_mem -d bfloat16")));
  EXPECT_TRUE(peers::needs_processes(bench_options("--against nvshmem -d half -o max")));
  EXPECT_TRUE(plan_of(bench_options("--against nvshmem"), bench::Backend::cuda).in_place);
  EXPECT_FALSE(plan_of(bench_options("--against torch_symm_mem"), bench::Backend::cuda).in_place);
}

TEST(CommandLine, PyTorchTakesWholeParts) {
  EXPECT_EQ(
      bench::cuda_job(bench_options("--against torch_symm_mem -b 32 -e 1K"), {0, 1}, false).status().code(),
      Code::ok);
  const auto job = bench::cuda_job(bench_options("--against torch_symm_mem -b 16 -e 1K"), {0, 1}, false);
  EXPECT_EQ(job.status().code(), Code::invalid_argument);
  EXPECT_THAT(job.status().text(), HasSubstr("16 bytes"));
  EXPECT_THAT(job.status().text(), HasSubstr("multiples of 32"));
}

TEST(CommandLine, ScratchIsTheSamePayloadForEveryProtocol) {
  EXPECT_THAT(bench_options("--scratch 512,4K,8M").scratch, ElementsAre(512u, 4096u, 8u << 20));
  const runtime::Options options = bench::with_scratch({}, 4096);
  EXPECT_EQ(options.slots * 8, 4096u);
  EXPECT_EQ(options.packets * 16, 4096u);
  EXPECT_EQ(options.chunk_bytes, 4096u);
  for (const std::size_t bytes : {bench::kScratchStep, bench::kMaxScratch}) {
    EXPECT_TRUE(runtime::check_options(bench::with_scratch({}, bytes)).ok()) << bytes;
  }
}

TEST(Limits, EachOutlastsWhatItWaitsFor) {
  using std::chrono::milliseconds;
  for (const milliseconds timeout : {milliseconds(1), milliseconds(20'000), milliseconds(3'600'000)}) {
    const bench::Limits limits = bench::limits_of(timeout);
    EXPECT_GT(limits.hold, timeout);
    EXPECT_GT(limits.work, limits.hold + timeout);
    EXPECT_GT(limits.meeting, limits.work);
  }
}

// The text of every refusal names the flag.
struct Refusal {
  const char* line;
  std::vector<std::string> words;
};
class Refused : public testing::TestWithParam<Refusal> {};
TEST_P(Refused, NamesTheFlag) {
  auto invocation = parse(GetParam().line);
  ASSERT_FALSE(invocation.ok()) << GetParam().line;
  EXPECT_EQ(invocation.status().code(), Code::invalid_argument);
  for (const std::string& word : GetParam().words) EXPECT_THAT(invocation.status().text(), HasSubstr(word));
}
INSTANTIATE_TEST_SUITE_P(
    All, Refused,
    testing::Values(
        Refusal{"", {"subcommand"}}, Refusal{"fly", {"fly"}}, Refusal{"bench", {"collective"}},
        Refusal{"bench gather", {"gather", "all_reduce", "all_to_all"}},
        Refusal{"bench all_gather --mode kernel", {"--mode kernel", "all_reduce"}},
        Refusal{"bench broadcast --workload llama-3.1-70b", {"--workload"}},
        Refusal{"bench reduce --against openmpi", {"openmpi", "all_reduce"}},
        Refusal{"bench all_reduce --nonsense", {"--nonsense"}},
        Refusal{"bench all_reduce -b 12Q", {"-b", "12Q"}}, Refusal{"bench all_reduce -b -5", {"-b"}},
        Refusal{"bench all_reduce -e 99999999999G", {"-e", "too large"}},
        Refusal{"bench all_reduce -b 0", {"-b"}}, Refusal{"bench all_reduce -b 2M -e 1M", {"-b", "-e"}},
        Refusal{"bench all_reduce -f 1", {"-f"}}, Refusal{"bench all_reduce -f 0", {"-f"}},
        Refusal{"bench all_reduce -f -2", {"-f", "1048576"}},
        Refusal{"bench all_reduce -n -1", {"-n", "10000000"}},
        Refusal{"bench all_reduce -n 10000001", {"-n", "10000000"}},
        Refusal{"bench all_reduce -G -1", {"-G", "10000000"}},
        Refusal{"bench all_reduce -w -1", {"-w", "10000000"}},
        Refusal{"bench all_reduce --rounds -1", {"--rounds", "10000000"}},
        Refusal{"bench all_reduce -f 2 -i 8", {"--stepbytes", "--stepfactor"}},
        Refusal{"bench all_reduce -n 0", {"-n"}}, Refusal{"bench all_reduce -n x", {"--iters", "x"}},
        Refusal{"bench all_reduce -m 0", {"-m"}}, Refusal{"bench all_reduce --rounds 0", {"--rounds"}},
        Refusal{"bench all_reduce -d complex", {"-d", "complex"}},
        Refusal{"bench all_reduce -o product", {"-o", "product"}},
        Refusal{"bench all_reduce --against openmpi -d half", {"-d half", "openmpi"}},
        Refusal{"bench all_reduce --against openmpi -o avg", {"-o avg", "openmpi"}},
        Refusal{"bench all_reduce --against nccl -o mulsum", {"-o mulsum", "--against"}},
        Refusal{"bench all_reduce --mode kernel -o prod", {"--mode kernel", "-o prod", "bfloat16"}},
        Refusal{"bench all_reduce --mode kernel -d double", {"--mode kernel", "-d double"}},
        Refusal{"bench all_reduce -c 2", {"-c", "2"}},
        Refusal{"bench all_reduce --in-place yes", {"--in-place", "yes"}},
        Refusal{"bench all_reduce --backend tpu", {"--backend", "tpu"}},
        Refusal{"bench all_reduce --mode fast", {"--mode", "fast"}},
        Refusal{"bench all_reduce --protocol ll256", {"--protocol", "ll256"}},
        Refusal{"bench all_reduce --protocol ll,,simple", {"--protocol"}},
        Refusal{"bench all_reduce --algorithm ring", {"--algorithm", "ring", "one_shot"}},
        Refusal{"bench all_reduce --algorithm one_shot,", {"--algorithm"}},
        Refusal{"bench all_reduce --grid 0", {"--grid"}}, Refusal{"bench all_reduce --grid -1", {"--grid"}},
        Refusal{"bench all_reduce --threads 0", {"--threads"}},
        Refusal{"bench all_reduce --threads 48", {"--threads", "48"}},
        Refusal{"bench all_reduce --grid 2 --backend host", {"--grid", "GPU"}},
        Refusal{"bench all_reduce --protocol ll,simple --backend host", {"--protocol", "host"}},
        Refusal{"bench all_reduce --scratch 0", {"--scratch", "512"}},
        Refusal{"bench all_reduce --scratch 4K,1000", {"--scratch", "1000"}},
        Refusal{"bench all_reduce --scratch 16M", {"--scratch", "16M"}},
        Refusal{"bench all_reduce --scratch 4K --offsets 2 --mode kernel", {"--scratch", "--offsets"}},
        Refusal{"bench all_reduce --jobs 0", {"--jobs"}}, Refusal{"bench all_reduce --jobs 3", {"--jobs"}},
        Refusal{"bench all_reduce --jobs 2 --against nccl", {"--jobs", "--against"}},
        Refusal{"bench all_reduce --jobs 2 --mode kernel", {"--jobs", "--mode graph"}},
        Refusal{"bench all_reduce --jobs 2 --mode eager", {"--jobs", "--mode graph"}},
        Refusal{"bench all_reduce --paired speed", {"--paired", "speed"}},
        Refusal{"bench reduce_scatter --paired trace", {"--paired trace", "all_reduce", "send_recv"}},
        Refusal{"bench all_gather --paired deadline", {"--paired deadline", "all_reduce alone"}},
        Refusal{"bench all_reduce --paired trace -d half", {"--paired trace", "-d half", "bfloat16"}},
        Refusal{"bench all_reduce --paired deadline -o max", {"--paired deadline", "-o max"}},
        Refusal{"bench all_reduce --paired trace --against nccl", {"--paired trace", "--against"}},
        Refusal{"bench all_reduce --paired trace --jobs 2", {"--paired trace", "--jobs"}},
        Refusal{"bench all_reduce --paired trace --protocol ll,simple", {"--paired trace", "--protocol"}},
        Refusal{"bench all_reduce --paired trace --mode kernel", {"--paired trace", "kernel"}},
        Refusal{"bench all_reduce --paired deadline --mode graph", {"--paired deadline", "--mode kernel"}},
        Refusal{"bench all_gather --fused 8192 -d bf16", {"--fused", "all_reduce"}},
        Refusal{"bench all_reduce --fused 8192", {"--fused", "bfloat16"}},
        Refusal{"bench all_reduce --fused 1000 -d half", {"--fused", "1024 to 16384"}},
        Refusal{"bench all_reduce --fused 8192 -d half --mode kernel", {"--fused", "graph"}},
        Refusal{"bench all_reduce --fused 8192 -d half --jobs 2", {"--fused", "--jobs"}},
        Refusal{"bench all_reduce --spread 2", {"--spread", "--fused"}},
        Refusal{"bench broadcast --gemv 4096 -d bf16", {"--gemv", "all_reduce", "all_gather"}},
        Refusal{"bench all_reduce --gemv 4096 -d bf16 -o max", {"--gemv", "sum"}},
        Refusal{"bench all_gather --gemv 4100 -d half", {"--gemv", "multiple of 8", "1048576"}},
        Refusal{"bench all_gather --gemv 8 -d half --tokens 17", {"--tokens", "16"}},
        Refusal{"bench all_reduce --gemv 4096", {"--gemv", "bfloat16"}},
        Refusal{"bench all_reduce --gemv 4100 -d half", {"--gemv", "multiple of 8"}},
        Refusal{"bench all_reduce --gemv 4096 -d half --mode kernel", {"--gemv", "graph"}},
        Refusal{"bench all_reduce --gemv 4096 -d half --fused 8192", {"--gemv", "--fused"}},
        Refusal{"bench all_reduce --gemv 4096 -d half --tokens 17", {"--tokens", "16"}},
        Refusal{"bench all_reduce --tokens 2", {"--tokens", "--gemv"}},
        Refusal{"bench all_reduce --skew -1", {"--skew"}},
        Refusal{"bench all_reduce --skew 1000001", {"--skew", "1000000"}},
        Refusal{"bench all_reduce --against torch_symm_mem -o max", {"-o", "torch_symm_mem"}},
        Refusal{"bench all_reduce --against torch_symm_mem -d half", {"-d half", "torch_symm_mem"}},
        Refusal{"bench all_reduce --against nvshmem -o avg", {"-o avg", "nvshmem"}},
        Refusal{"bench all_reduce --against nvshmem -d fp8_e4m3", {"-d fp8_e4m3", "nvshmem"}},
        Refusal{"bench all_reduce --against nvshmem --backend host", {"--against", "host"}},
        Refusal{"bench all_reduce --against openmpi,nvshmem", {"--against", "openmpi"}},
        Refusal{"bench all_reduce -c 0 --compare x", {"-c", "--compare"}}, Refusal{"compare a.json", {"new"}},
        Refusal{"bench all_reduce --ranks 9", {"--ranks"}},
        Refusal{"bench all_reduce --ranks 2 -g 2", {"--ranks", "-g"}},
        Refusal{"bench all_reduce -g 4 -t 3", {"-g", "-t"}},
        Refusal{"bench all_reduce --tp 2", {"--tp", "--workload"}},
        Refusal{"bench all_reduce --tp 2 --ranks 4 --workload x", {"--tp", "--ranks"}},
        Refusal{"bench all_reduce --against mpich", {"--against", "mpich", "openmpi"}},
        Refusal{"bench all_reduce --against nccl --mode kernel", {"--against", "--mode kernel"}},
        Refusal{"bench all_reduce --against openmpi,nccl", {"--against"}},
        Refusal{"bench all_reduce --against openmpi -d bf16", {"-d", "openmpi"}},
        Refusal{"bench all_reduce --against nccl --backend host", {"--against", "host"}},
        Refusal{"bench all_reduce --backend host --mode graph", {"--mode", "host"}},
        Refusal{"bench all_reduce --mode eager --offsets 4", {"--offsets", "--mode kernel"}},
        Refusal{"bench all_reduce --offsets 9999 --mode kernel", {"--offsets"}},
        Refusal{"bench all_reduce --timeout 0", {"--timeout"}},
        Refusal{"bench all_reduce -c 0 --json x", {"-c", "--json"}}, Refusal{"demo --ranks 0", {"--ranks"}},
        Refusal{"info --yaml", {"--yaml"}}));

TEST(CommandLine, WorkloadsThatAreNotThere) {
  auto cases = bench::cases_of(bench_options("--workload no-such-model"));
  ASSERT_FALSE(cases.ok());
  EXPECT_THAT(cases.status().text(), HasSubstr("--workload"));
  EXPECT_THAT(cases.status().text(), HasSubstr("no-such-model"));
  cases = bench::cases_of(bench_options("--workload llama-3.1-8b --tp 3"));
  ASSERT_FALSE(cases.ok());
  EXPECT_THAT(cases.status().text(), HasSubstr("--tp 3"));
  cases = bench::cases_of(bench_options("--workload llama-3.1-8b --against openmpi"));
  ASSERT_FALSE(cases.ok());
  EXPECT_THAT(cases.status().text(), HasSubstr("bfloat16"));
}

TEST(CommandLine, HelpAndVersionAreTexts) {
  for (const char* line : {"--help", "bench --help", "bench all_reduce -h", "info --help", "demo --help",
                           "compare --help", "--version"}) {
    auto invocation = parse(line);
    ASSERT_TRUE(invocation.ok()) << line;
    EXPECT_TRUE(std::holds_alternative<PrintText>(*invocation)) << line;
  }
  auto sol = parse("sol --lines 3");
  ASSERT_TRUE(sol.ok());
  EXPECT_THAT(std::get<SolArguments>(*sol).arguments, ElementsAre("--lines", "3"));
}

TEST(Size, SuffixesArePowersOf1024) {
  for (const auto& [text, value] :
       {std::pair{"0", 0u}, {"17", 17u}, {"3k", 3072u}, {"3K", 3072u}, {"2m", 2u << 20}, {"1G", 1u << 30}}) {
    auto size = bench::parse_size(text);
    ASSERT_TRUE(size.ok()) << text;
    EXPECT_EQ(*size, value) << text;
  }
  for (const char* text : {"", "K", "1.5M", "8KB", "-1", " 8", "0x10", "18446744073709551616"}) {
    EXPECT_FALSE(bench::parse_size(text).ok()) << text;
  }
}

}  // namespace
}  // namespace nearlight::cli
