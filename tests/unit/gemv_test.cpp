// Products of CPU ranks, with their AllReduce or with an AllGather in front, through their communicators.
#include <gtest/gtest.h>

#include "runtime/create.hpp"
#include "tests/support/gemv.hpp"
#include "tests/unit/one_way.hpp"

namespace nearlight::runtime {
namespace {

using test::GemvProblem;
using test::Kind;
using test::Problems;
using Buffers = test::HostBuffers<GemvProblem>;
using test::run;

// Of `packets` in one round (0) and in many.
void expect_every_shape(bool gathers, int nranks, std::uint32_t packets) {
  Options options = test::patient();
  options.packets = packets;
  EXPECT_EQ(
      test::run_communicators(Kind::threads, nranks, options,
                              [&](Communicator& comm, Exchange& exchange, Problems& trouble) {
                                GemvProblem problem;
                                problem.nranks = nranks;
                                problem.gathers = gathers;
                                for (const std::size_t tokens : {1u, 5u, 16u}) {
                                  for (const auto& [in, out] :
                                       {std::pair<std::size_t, std::size_t>{8, 8}, {264, 24}, {40, 136}}) {
                                    problem.tokens = tokens;
                                    problem.in = in;
                                    problem.out = out;
                                    ++problem.seed;
                                    problem.type = problem.seed % 2 == 0 ? DataType::bf16 : DataType::f16;
                                    problem.real = problem.seed % 3 == 0;
                                    problem.uneven = problem.seed % 4 == 0;
                                    problem.special = problem.seed % 5 == 0;
                                    run(comm, exchange, problem, trouble);
                                  }
                                }
                              }),
      "");
}

TEST(Gemv, EveryShapeOfCpuRanks) {
  for (const int nranks : {1, 2, 5}) {
    for (const std::uint32_t packets : {0u, nranks == 1 ? 8u : 40u})
      expect_every_shape(false, nranks, packets);
  }
}

TEST(Gemv, GatheredTokensOfCpuRanks) {
  for (const int nranks : {1, 2, 5}) {
    for (const std::uint32_t packets : {0u, 24u}) expect_every_shape(true, nranks, packets);
  }
}

TEST(Gemv, WhatIsWrongWithGatheredTokensIsNamed) {
  GemvProblem problem;
  problem.gathers = true;
  EXPECT_EQ(test::run_communicators(Kind::threads, 2, test::patient(),
                                    [&](Communicator& comm, Exchange&, Problems& trouble) {
                                      const Buffers buffers(problem, comm.rank());
                                      const auto refused = [&](const char* word, auto change) {
                                        GemvCall call = buffers.call();
                                        change(call);
                                        test::expect_failure(trouble, word, comm.gemv(call, nullptr),
                                                             Code::invalid_argument, {word});
                                      };
                                      refused("in_size: 32776", [](GemvCall& call) { call.in = 32776; });
                                      refused("weight (", [](GemvCall& call) {
                                        // Behind the columns of this rank alone.
                                        call.output = static_cast<char*>(const_cast<void*>(call.weight)) +
                                                      call.in * call.out * 2 + 16;
                                      });
                                    }),
            "");
  test::expect_check_mode_tells(problem, [](auto told) {
    told("count is 256 on rank 0, 128", [](GemvCall& call) { call.in = 128; });
    told("out_size is 64 on rank 0, 56", [](GemvCall& call) { call.out = 56; });
    told("all_gather_gemv on rank 0, gemv_all_reduce",
         [](GemvCall& call) { call.collective = Collective::gemv_all_reduce; });
  });
}

TEST(Gemv, OfProcesses) {
  EXPECT_EQ(test::run_communicators(Kind::processes, 4, test::patient(),
                                    [&](Communicator& comm, Exchange& exchange, Problems& trouble) {
                                      GemvProblem problem;
                                      problem.nranks = 4;
                                      problem.tokens = 3;
                                      problem.in = 1032;
                                      problem.out = 520;
                                      for (int i = 0; i < 3; ++i, ++problem.seed)
                                        run(comm, exchange, problem, trouble);
                                    }),
            "");
}

// Other calls before and behind it, on the same region.
TEST(Gemv, AmongOtherCalls) {
  EXPECT_EQ(test::run_communicators(
                Kind::threads, 3, test::patient(),
                [&](Communicator& comm, Exchange& exchange, Problems& trouble) {
                  GemvProblem problem;
                  problem.nranks = 3;
                  problem.tokens = 2;
                  for (int i = 0; i < 20; ++i, ++problem.seed) {
                    run(comm, exchange, problem, trouble);
                    float values[300];
                    for (float& value : values) value = static_cast<float>(comm.rank() + i);
                    const std::size_t count = i % 2 == 0 ? 300 : 3;
                    const Status status =
                        comm.all_reduce(values, values, count, DataType::f32, ReduceOp::sum, nullptr);
                    if (!status.ok() || values[count - 1] != static_cast<float>(3 + 3 * i))
                      trouble.add("all_reduce %d: %g %s", i, static_cast<double>(values[count - 1]),
                                  status.to_string().c_str());
                  }
                }),
            "");
}

TEST(Gemv, WhatIsWrongIsNamedAndNothingIsWritten) {
  GemvProblem problem;
  problem.nranks = 1;
  test::expect_refusals(problem, [](Communicator& comm, Problems& trouble, auto refused,
                                    const GemvCall& good) {
    const auto at = [](const void* from, std::ptrdiff_t bytes) {
      return static_cast<const char*>(from) + bytes;
    };
    refused("type: float", [](GemvCall& call) { call.type = DataType::f32; });
    for (const std::size_t size : {std::size_t{0}, std::size_t{12}, kMostGemvIn + 8})
      refused("in_size: ", [&](GemvCall& call) { call.in = size; });
    for (const std::size_t size : {std::size_t{0}, std::size_t{12}, kMostGemvOut + 8})
      refused("out_size: ", [&](GemvCall& call) { call.out = size; });
    refused("tokens: 17", [](GemvCall& call) { call.tokens = 17; });
    refused("input is null", [](GemvCall& call) { call.input = nullptr; });
    refused("weight is null", [](GemvCall& call) { call.weight = nullptr; });
    refused("out is null", [](GemvCall& call) { call.output = nullptr; });
    refused("input (", [&](GemvCall& call) { call.input = at(good.input, 8); });
    refused("weight (", [&](GemvCall& call) { call.weight = at(good.weight, 2); });
    refused("out_size: ",
            [&](GemvCall& call) { call.weight = reinterpret_cast<const void*>(~std::uintptr_t{15}); });
    refused("overlap", [&](GemvCall& call) { call.output = const_cast<void*>(good.input); });
    refused("weight (", [&](GemvCall& call) {
      call.output = const_cast<char*>(at(good.weight, static_cast<std::ptrdiff_t>(call.in * 2)));
    });
    const auto unfit = [&](const char* word, Code code, auto change) {
      CallOptions made;
      change(made);
      test::expect_failure(trouble, word, comm.gemv(good, nullptr, made), code, {word});
    };
    unfit("algorithm", Code::unsupported,
          [](CallOptions& made) { made.algorithm = route::Algorithm::two_shot; });
    unfit("protocol", Code::invalid_argument, [](CallOptions& made) { made.protocol = route::Protocol::ll; });
    unfit("threads", Code::unsupported, [](CallOptions& made) { made.threads = 64; });
    unfit("grid", Code::unsupported, [](CallOptions& made) { made.grid = 2; });
  });
}

// Where a region does not take a tile the call is refused on all ranks.
TEST(Gemv, TooFewPacketsAreNamed) {
  Options options = test::patient();
  options.packets = 8;
  EXPECT_EQ(test::run_communicators(Kind::threads, 2, options,
                                    [&](Communicator& comm, Exchange& exchange, Problems& trouble) {
                                      GemvProblem problem;
                                      problem.tokens = 5;
                                      Buffers buffers(problem, comm.rank());
                                      test::expect_failure(
                                          trouble, "packets", comm.gemv(buffers.call(), nullptr),
                                          Code::unsupported, {"packets: a region has 8", "10"});
                                      problem.tokens = 4;
                                      run(comm, exchange, problem, trouble);
                                    }),
            "");
}

TEST(Gemv, CheckModeTellsWhatDiffers) {
  GemvProblem problem;
  problem.tokens = 2;
  problem.uneven = true;  // each rank's own affair
  test::expect_check_mode_tells(problem, [](auto told) {
    told("count is 128 on rank 0, 64", [](GemvCall& call) { call.tokens = 1; });
    told("type is bfloat16 on rank 0, half", [](GemvCall& call) { call.type = DataType::f16; });
    // Within the same memory.
    told("out_size is 64 on rank 0, 32",
         [](GemvCall& call) { call.tokens = 4, call.in = 128, call.out = 32; });
  });
}

GemvProblem gathering() {
  GemvProblem problem;
  problem.gathers = true;
  return problem;
}

TEST(Gemv, ARankThatDoesNotComeIsNamed) {
  for (const GemvProblem& problem : {GemvProblem(), gathering()})
    test::expect_a_missing_rank_to_be_named(problem);
}

// Of what rank 1 stores, every second thing is for rank 0, the others for itself; of what is gathered all are
// for rank 0.
TEST(Gemv, LostAndSpoiltPackets) {
  test::expect_lost_and_spoilt(GemvProblem(), 2 * 7, "slot 7", "out[0][28]");
  test::expect_lost_and_spoilt(gathering(), 5, "slot 5", "out[0][");
}

// A call that timed out is made again.
TEST(Gemv, RetriesMakeALostPacketGood) {
  Options options;
  options.timeout = std::chrono::milliseconds(200);
  options.retries = 2;
  options.retry_backoff = std::chrono::milliseconds(1);
  EXPECT_EQ(test::run_communicators(Kind::threads, 2, options,
                                    [&](Communicator& comm, Exchange&, Problems& trouble) {
                                      const GemvProblem problem;
                                      Buffers buffers(problem, comm.rank());
                                      CallOptions hooks;
                                      if (comm.rank() == 1) {
                                        hooks.packet_fault = 1;
                                        hooks.faulty_packet = 3;  // one of its own
                                      }
                                      const GemvCall call = buffers.call();
                                      const Status status = comm.gemv(call, nullptr, hooks);
                                      if (!status.ok()) trouble.add("%s", status.to_string().c_str());
                                      if (!problem.check(call.output).empty())
                                        trouble.add("%s", problem.check(call.output).c_str());
                                    }),
            "");
}

// A launch that the kernel cannot run would be refused or, worse, hang.
TEST(GemvRoute, OfGpus) {
  route::Facts facts;
  facts.gpu = true;
  facts.nranks = 2;
  facts.type = DataType::bf16;
  facts.regions = 128;
  facts.packets = 512;
  facts.nccl.capability = 90;
  route::GemvFacts what{.tokens = 1, .tiles = 1024};
  EXPECT_EQ(route::gemv(facts, what)->grid, 128u);
  EXPECT_EQ(route::gemv(facts, what)->protocol, route::Protocol::sentinel);
  EXPECT_NE(std::string(route::gemv(facts, what)->reason), "");
  what.tiles = 3;
  EXPECT_EQ(route::gemv(facts, what)->grid, 3u);
  what.tiles = 1024;
  facts.max_ctas = 16;
  EXPECT_EQ(route::gemv(facts, what)->grid, 16u);
  EXPECT_NE(std::string(route::gemv(facts, what)->reason).find("max_ctas"), std::string::npos);
  what.grid = 7;
  EXPECT_EQ(route::gemv(facts, what)->grid, 7u);
  const auto refused = [&](Code code, const char* word) {
    const auto route = route::gemv(facts, what);
    EXPECT_EQ(route.status().code(), code);
    EXPECT_NE(route.status().text().find(word), std::string::npos) << route.status().text();
  };
  what.grid = 17;
  refused(Code::invalid_argument, "grid");
  what.grid = 0;
  what.tokens = 16;
  facts.packets = 31;
  refused(Code::unsupported, "packets: a region has 31");
  what.gathered_vecs = 8;  // in any number of rounds
  EXPECT_TRUE(route::gemv(facts, what).ok());
  facts.large_shared = true;
  what.gathered_vecs = 4672 / 8;
  EXPECT_TRUE(route::gemv(facts, what).ok());
  what.gathered_vecs = 4736 / 8;
  refused(Code::unsupported, "tokens: 16 of 4736 gathered elements");
  facts.nranks = 1;  // nobody to send to
  EXPECT_TRUE(route::gemv(facts, what).ok());
  what.gathered_vecs = 0;
  EXPECT_TRUE(route::gemv(facts, what).ok());
  facts.nccl.capability = 75;
  refused(Code::unsupported, "7.5");
  facts.nccl.capability = 80;
  facts.forced.protocol = route::Protocol::ll;
  EXPECT_NE(std::string(route::gemv(facts, what)->reason).find("NEARLIGHT_FORCE_PATH"), std::string::npos);
}

}  // namespace
}  // namespace nearlight::runtime
