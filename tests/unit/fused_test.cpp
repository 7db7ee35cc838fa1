// The fused AllReduce of CPU ranks, through their communicators.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "runtime/create.hpp"
#include "tests/support/fused.hpp"
#include "tests/unit/one_way.hpp"

namespace nearlight::runtime {
namespace {

using test::FusedProblem;
using test::Kind;
using test::Problems;
using Buffers = test::HostBuffers<FusedProblem>;
using test::run;

TEST(Fused, EveryShapeOfCpuRanks) {
  for (const int nranks : {1, 2, 5}) {
    for (const std::uint32_t packets : {0u, 96u}) {  // a row in one round, and in many
      Options options = test::patient();
      options.packets = packets;
      EXPECT_EQ(test::run_communicators(
                    Kind::threads, nranks, options,
                    [&](Communicator& comm, Exchange& exchange, Problems& trouble) {
                      FusedProblem problem;
                      problem.nranks = nranks;
                      for (const std::size_t hidden : {1032u, 5120u, 16384u}) {
                        for (const std::size_t tokens : {1u, hidden > 5120 ? 1u : 3u}) {
                          for (const DataType type : {DataType::bf16, DataType::f16}) {
                            for (const DataType output : {type, DataType::f8e4m3, DataType::i8}) {
                              problem.hidden = hidden;
                              problem.tokens = tokens;
                              problem.type = type;
                              problem.output_type = output;
                              problem.residual = tokens != 1 || output != type;
                              problem.special = tokens > 1 && hidden == 5120;
                              ++problem.seed;
                              run(comm, exchange, problem, trouble, problem.seed % 2 == 0);
                            }
                            FusedProblem bias = problem;
                            bias.collective = Collective::all_reduce_bias;
                            bias.output_type = type;
                            run(comm, exchange, bias, trouble, tokens == 3);
                          }
                        }
                      }
                    }),
                "");
    }
  }
}

TEST(Fused, OfProcesses) {
  EXPECT_EQ(test::run_communicators(Kind::processes, 4, test::patient(),
                                    [&](Communicator& comm, Exchange& exchange, Problems& trouble) {
                                      FusedProblem problem;
                                      problem.nranks = 4;
                                      problem.tokens = 17;
                                      problem.hidden = 4096;
                                      for (int i = 0; i < 3; ++i, ++problem.seed)
                                        run(comm, exchange, problem, trouble, true);
                                    }),
            "");
}

// The sum of a fused call is all_reduce's, bit by bit, where nothing is added.
TEST(Fused, SumsAreAllReduces) {
  EXPECT_EQ(
      test::run_communicators(
          Kind::threads, 3, test::patient(),
          [&](Communicator& comm, Exchange&, Problems& trouble) {
            FusedProblem problem;
            problem.nranks = 3;
            problem.residual = false;
            problem.special = true;
            problem.tokens = 4;
            Buffers buffers(problem, comm.rank());
            const FusedCall call = buffers.call();
            std::vector<std::uint16_t> sum(problem.count());
            if (!comm.fused(call, nullptr).ok() ||
                !comm.all_reduce(call.input, sum.data(), sum.size(), call.type, ReduceOp::sum, nullptr).ok())
              return trouble.add("failed");
            if (std::memcmp(sum.data(), call.residual_out, sum.size() * 2) != 0) trouble.add("other bits");
          }),
      "");
}

TEST(Fused, AWrongArgumentIsNamedAndNothingIsWritten) {
  FusedProblem problem;
  problem.tokens = 2;
  problem.nranks = 1;
  test::expect_refusals(problem, [](Communicator&, Problems&, auto refused, const FusedCall& good) {
    const auto* const odd = static_cast<const char*>(good.input) + 2;
    refused("type: float", [](FusedCall& call) { call.type = DataType::f32; });
    for (const std::size_t hidden : {0u, 1016u, 1028u, 16392u})
      refused("hidden: ", [&](FusedCall& call) { call.hidden = hidden; });
    refused("tokens: ", [](FusedCall& call) { call.tokens = kMostTokens + 1; });
    refused("out_type: half", [](FusedCall& call) { call.output_type = DataType::f16; });
    refused("scale is null", [](FusedCall& call) { call.output_type = DataType::i8; });
    const float scale = 1;
    refused("scale: ", [&](FusedCall& call) { call.scale = &scale; });
    refused("eps: ", [](FusedCall& call) { call.eps = -1; });
    refused("eps: ", [](FusedCall& call) { call.eps = NAN; });
    refused("input is null", [](FusedCall& call) { call.input = nullptr; });
    refused("weight is null", [](FusedCall& call) { call.weight = nullptr; });
    refused("residual_out is null", [](FusedCall& call) { call.residual_out = nullptr; });
    refused("out is null", [](FusedCall& call) { call.output = nullptr; });
    refused("input (", [&](FusedCall& call) { call.input = odd; });
    refused("overlap", [](FusedCall& call) { call.residual_out = call.output; });
    refused("overlap", [](FusedCall& call) {
      call.residual_out = static_cast<char*>(const_cast<void*>(call.residual)) + 16;
    });
    refused("overlap", [](FusedCall& call) { call.output = const_cast<void*>(call.weight); });
    refused("bias is null", [](FusedCall& call) {
      call.collective = Collective::all_reduce_bias;
      call.bias = nullptr;
    });
  });
}

TEST(Fused, CheckModeTellsWhatDiffers) {
  test::expect_check_mode_tells(FusedProblem(), [](auto told) {
    told("eps is 1e-05 on rank 0, 1e-06 on rank 1", [](FusedCall& call) { call.eps = 1e-6f; });
    told("with a residual is yes on rank 0, no", [](FusedCall& call) { call.residual = nullptr; });
    told("the collective is all_reduce_rms_norm on rank 0, all_reduce_bias",
         [](FusedCall& call) { call.collective = Collective::all_reduce_bias; });
  });
}

TEST(Fused, ARankThatDoesNotComeIsNamed) { test::expect_a_missing_rank_to_be_named(FusedProblem()); }

// Packet 77 has the elements 616 to 623.
TEST(Fused, LostAndSpoiltPackets) {
  test::expect_lost_and_spoilt(FusedProblem(), 77, "slot 77", "sum[0][61");
}

}  // namespace
}  // namespace nearlight::runtime
