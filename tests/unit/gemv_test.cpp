// The GEMV of CPU ranks with its AllReduce, through their communicators.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "runtime/create.hpp"
#include "tests/support/gemv.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::runtime {
namespace {

using test::GemvProblem;
using test::Kind;
using test::Problems;

// The buffers of one rank, with a guard behind the output.
class Buffers {
 public:
  Buffers(const GemvProblem& problem, int rank) : problem_(problem), rank_(rank) {
    fill(input_, problem.input_of(rank));
    fill(weight_, problem.weight_of(rank));
    output_.assign(vecs(problem.tokens * problem.out) + kGuard, Line{});
    std::memset(output_.data(), 0xa5, output_.size() * sizeof(Line));
  }
  GemvCall call() {
    GemvCall call = problem_.call(rank_);
    call.input = input_.data();
    call.weight = weight_.data();
    call.output = output_.data();
    return call;
  }
  bool guard_is_whole() const {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(output_.data());
    for (std::size_t i = problem_.tokens * problem_.out * 2; i < output_.size() * sizeof(Line); ++i) {
      if (bytes[i] != 0xa5) return false;
    }
    return true;
  }
  std::uint64_t digest() const {  // FNV-1a
    std::uint64_t digest = 0xcbf29ce484222325;
    const auto* const bytes = reinterpret_cast<const unsigned char*>(output_.data());
    for (std::size_t i = 0; i < problem_.tokens * problem_.out * 2; ++i)
      digest = (digest ^ bytes[i]) * 0x100000001b3;
    return digest;
  }

 private:
  struct alignas(16) Line {
    unsigned char bytes[16];
  };
  static constexpr std::size_t kGuard = 4;
  static std::size_t vecs(std::size_t elements) { return (elements * 2 + sizeof(Line) - 1) / sizeof(Line); }
  static void fill(std::vector<Line>& memory, const std::vector<std::uint16_t>& values) {
    memory.resize(vecs(values.size()));
    std::memcpy(memory.data(), values.data(), values.size() * 2);
  }

  GemvProblem problem_;
  int rank_;
  std::vector<Line> input_, weight_, output_;
};

// Rank 0's result is looked at, the others' must be the same bits.
void run(Communicator& comm, Exchange& exchange, const GemvProblem& problem, Problems& trouble) {
  Buffers buffers(problem, comm.rank());
  const GemvCall call = buffers.call();
  const Status status = comm.gemv(call, nullptr);
  if (!status.ok()) return trouble.add("%s: %s", problem.in_words().c_str(), status.to_string().c_str());
  const std::string wrong = comm.rank() == 0 ? problem.check(call.output) : "";
  if (!wrong.empty()) trouble.add("%s", wrong.c_str());
  const auto digests = gather_values(exchange, buffers.digest(), Deadline::after_ms(120'000));
  if (!digests.ok()) return trouble.add("%s", digests.status().to_string().c_str());
  if (buffers.digest() != (*digests)[0])
    trouble.add("%s: other bits than rank 0's", problem.in_words().c_str());
  if (!buffers.guard_is_whole()) trouble.add("%s: wrote past the end", problem.in_words().c_str());
}

TEST(Gemv, EveryShapeOfCpuRanks) {
  for (const int nranks : {1, 2, 5}) {
    for (const std::uint32_t packets : {0u, nranks == 1 ? 8u : 40u}) {  // one round, and many
      Options options = test::patient();
      options.packets = packets;
      EXPECT_EQ(test::run_communicators(
                    Kind::threads, nranks, options,
                    [&](Communicator& comm, Exchange& exchange, Problems& trouble) {
                      GemvProblem problem;
                      problem.nranks = nranks;
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
  }
}

// Each rank has a result of its own.
void run_gathered(Communicator& comm, const GemvProblem& problem, Problems& trouble) {
  Buffers buffers(problem, comm.rank());
  const GemvCall call = buffers.call();
  const Status status = comm.gemv(call, nullptr);
  if (!status.ok()) return trouble.add("%s: %s", problem.in_words().c_str(), status.to_string().c_str());
  const std::string wrong = problem.check(call.output, comm.rank());
  if (!wrong.empty()) trouble.add("rank %d: %s", comm.rank(), wrong.c_str());
  if (!buffers.guard_is_whole()) trouble.add("%s: wrote past the end", problem.in_words().c_str());
}

TEST(Gemv, GatheredTokensOfCpuRanks) {
  for (const int nranks : {1, 2, 5}) {
    for (const std::uint32_t packets : {0u, 24u}) {  // one round, and many
      Options options = test::patient();
      options.packets = packets;
      EXPECT_EQ(
          test::run_communicators(Kind::threads, nranks, options,
                                  [&](Communicator& comm, Exchange&, Problems& trouble) {
                                    GemvProblem problem;
                                    problem.nranks = nranks;
                                    problem.gathers = true;
                                    for (const std::size_t tokens : {1u, 5u, 16u}) {
                                      for (const auto& [in, out] :
                                           {std::pair<std::size_t, std::size_t>{8, 8}, {136, 24}, {40, 72}}) {
                                        problem.tokens = tokens;
                                        problem.in = in;
                                        problem.out = out;
                                        ++problem.seed;
                                        problem.type = problem.seed % 2 == 0 ? DataType::bf16 : DataType::f16;
                                        problem.real = problem.seed % 3 == 0;
                                        problem.special = problem.seed % 5 == 0;
                                        run_gathered(comm, problem, trouble);
                                      }
                                    }
                                  }),
          "");
    }
  }
}

TEST(Gemv, WhatIsWrongWithGatheredTokensIsNamed) {
  Options options = test::patient();
  options.check = true;
  EXPECT_EQ(
      test::run_communicators(
          Kind::threads, 2, options,
          [&](Communicator& comm, Exchange&, Problems& trouble) {
            GemvProblem problem;
            problem.gathers = true;
            Buffers buffers(problem, comm.rank());
            const auto told = [&](const char* word, Code code, auto change) {
              GemvCall call = buffers.call();
              change(call);
              test::expect_failure(trouble, word, comm.gemv(call, nullptr), code, {word});
            };
            told("in_size: 32776", Code::invalid_argument, [](GemvCall& call) { call.in = 32776; });
            told("weight (", Code::invalid_argument, [](GemvCall& call) {
              // Behind the columns of this rank alone.
              call.output = static_cast<char*>(const_cast<void*>(call.weight)) + call.in * call.out * 2 + 16;
            });
            told("count is 256 on rank 0, 128", Code::invalid_usage, [&](GemvCall& call) {
              if (comm.rank() == 1) call.in = 128;
            });
            told("out_size is 64 on rank 0, 56", Code::invalid_usage, [&](GemvCall& call) {
              if (comm.rank() == 1) call.out = 56;
            });
            told("all_gather_gemv on rank 0, gemv_all_reduce", Code::invalid_usage, [&](GemvCall& call) {
              if (comm.rank() == 1) call.collective = Collective::gemv_all_reduce;
            });
            run_gathered(comm, problem, trouble);
          }),
      "");
}

TEST(Gemv, APartOfTheTokensThatIsLostIsNamed) {
  Options options;
  options.timeout = std::chrono::milliseconds(100);
  EXPECT_EQ(test::run_communicators(Kind::threads, 2, options,
                                    [&](Communicator& comm, Exchange&, Problems& trouble) {
                                      GemvProblem problem;
                                      problem.gathers = true;
                                      Buffers buffers(problem, comm.rank());
                                      CallOptions hooks;
                                      if (comm.rank() == 1) {
                                        hooks.packet_fault = 1;
                                        hooks.faulty_packet = 5;
                                      }
                                      const Status status = comm.gemv(buffers.call(), nullptr, hooks);
                                      if (comm.rank() == 1) return;
                                      test::expect_failure(
                                          trouble, "lost", status, Code::timeout,
                                          {"all_gather_gemv", "slot 5", "nothing from rank 1"});
                                    }),
            "");
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
  EXPECT_EQ(
      test::run_communicators(
          Kind::threads, 1, test::patient(),
          [&](Communicator& comm, Exchange&, Problems& trouble) {
            GemvProblem problem;
            problem.nranks = 1;
            Buffers buffers(problem, 0);
            const GemvCall good = buffers.call();
            const std::uint64_t before = buffers.digest();
            const auto refused = [&](const char* word, auto change) {
              GemvCall call = good;
              change(call);
              test::expect_failure(trouble, word, comm.gemv(call, nullptr), Code::invalid_argument, {word});
            };
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
            refused("out_size: ", [&](GemvCall& call) {
              call.weight = reinterpret_cast<const void*>(~std::uintptr_t{15});
            });
            refused("overlap", [&](GemvCall& call) { call.output = const_cast<void*>(good.input); });
            refused("weight (", [&](GemvCall& call) {
              call.output = const_cast<char*>(at(good.weight, static_cast<std::ptrdiff_t>(call.in * 2)));
            });
            test::expect_failure(trouble, "stream", comm.gemv(good, &trouble), Code::invalid_argument,
                                 {"stream"});
            CallOptions options;
            const auto unfit = [&](const char* word, Code code, auto change) {
              CallOptions made;
              change(made);
              test::expect_failure(trouble, word, comm.gemv(good, nullptr, made), code, {word});
            };
            unfit("algorithm", Code::unsupported,
                  [](CallOptions& made) { made.algorithm = route::Algorithm::two_shot; });
            unfit("protocol", Code::invalid_argument,
                  [](CallOptions& made) { made.protocol = route::Protocol::ll; });
            unfit("threads", Code::unsupported, [](CallOptions& made) { made.threads = 64; });
            unfit("grid", Code::unsupported, [](CallOptions& made) { made.grid = 2; });
            if (buffers.digest() != before) trouble.add("something was written");
            GemvCall none = good;
            none.tokens = 0;
            none.input = nullptr;
            if (!comm.gemv(none, nullptr).ok()) trouble.add("no tokens are refused");
            if (!comm.gemv(good, nullptr).ok()) trouble.add("not as good as before");
            if (!problem.check(good.output).empty()) trouble.add("%s", problem.check(good.output).c_str());
            if (comm.counters().of(Collective::gemv_all_reduce) != 2) trouble.add("not counted");
          }),
      "");
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
  Options options = test::patient();
  options.check = true;
  EXPECT_EQ(
      test::run_communicators(
          Kind::threads, 2, options,
          [&](Communicator& comm, Exchange& exchange, Problems& trouble) {
            GemvProblem problem;
            problem.tokens = 2;
            Buffers buffers(problem, comm.rank());
            const auto told = [&](const char* word, auto change) {
              GemvCall call = buffers.call();
              if (comm.rank() == 1) change(call);
              test::expect_failure(trouble, word, comm.gemv(call, nullptr), Code::invalid_usage, {word});
            };
            told("count is 128 on rank 0, 64", [](GemvCall& call) { call.tokens = 1; });
            told("type is bfloat16 on rank 0, half", [](GemvCall& call) { call.type = DataType::f16; });
            told("out_size is 64 on rank 0, 32", [](GemvCall& call) { call.tokens = 4, call.out = 32; });
            problem.uneven = true;  // each rank's own affair
            run(comm, exchange, problem, trouble);
          }),
      "");
}

TEST(Gemv, ARankThatDoesNotComeIsNamed) {
  Options options;
  options.timeout = std::chrono::milliseconds(100);
  EXPECT_EQ(test::run_communicators(
                Kind::threads, 2, options,
                [&](Communicator& comm, Exchange& exchange, Problems& trouble) {
                  const GemvProblem problem;
                  Buffers buffers(problem, comm.rank());
                  if (comm.rank() == 0) {
                    test::expect_failure(trouble, "alone", comm.gemv(buffers.call(), nullptr), Code::timeout,
                                         {"gemv_all_reduce on rank 0", "nothing from rank 1"});
                  }
                  test::meet(exchange, trouble);
                }),
            "");
}

// Of what rank 1 stores, every second thing is for rank 0, the others for itself. A lost packet ends in a
// timeout that names its slot; a spoilt one in a wrong result.
TEST(Gemv, LostAndSpoiltPackets) {
  for (const std::uint32_t fault : {1u, 2u}) {
    Options options;
    options.timeout = std::chrono::milliseconds(fault == 1 ? 100 : 60'000);
    EXPECT_EQ(test::run_communicators(
                  Kind::threads, 2, options,
                  [&](Communicator& comm, Exchange&, Problems& trouble) {
                    const GemvProblem problem;
                    Buffers buffers(problem, comm.rank());
                    const GemvCall call = buffers.call();
                    CallOptions hooks;
                    if (comm.rank() == 1) {
                      hooks.packet_fault = fault;
                      hooks.faulty_packet = 2 * 7;
                    }
                    const Status status = comm.gemv(call, nullptr, hooks);
                    if (comm.rank() == 1) return;
                    if (fault == 1) {
                      test::expect_failure(trouble, "lost", status, Code::timeout,
                                           {"slot 7", "nothing from rank 1"});
                    } else if (problem.check(call.output).find("out[0][28]") == std::string::npos) {
                      trouble.add("element 28 must be wrong: %s", problem.check(call.output).c_str());
                    }
                  }),
              "");
  }
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
  what.gathered_vecs = 4800 / 8;
  EXPECT_TRUE(route::gemv(facts, what).ok());
  what.gathered_vecs = 5120 / 8;
  refused(Code::unsupported, "tokens: 16 of 5120 gathered elements");
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
