// The fused AllReduce of CPU ranks, through their communicators.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>

#include "runtime/create.hpp"
#include "tests/support/fused.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::runtime {
namespace {

using test::FusedProblem;
using test::Kind;
using test::Problems;

// The buffers of one rank, with a guard behind each.
class Buffers {
 public:
  Buffers(const FusedProblem& problem, int rank) : problem_(problem) {
    const std::size_t all = problem.count() * 2;
    input_ = fill(problem.input_of(rank));
    residual_ = fill(problem.residual_values());
    weight_ = fill(problem.weights());
    sum_ = make(all);
    output_ = make(problem.output_bytes());
  }
  FusedCall call(bool in_place) {
    FusedCall call = problem_.call();
    call.input = input_.get();
    call.output = in_place && problem_.output_bytes() == problem_.count() * 2 ? input_.get() : output_.get();
    call.bias = weight_.get();
    call.weight = weight_.get();
    call.residual = problem_.residual ? residual_.get() : nullptr;
    call.residual_out = in_place && problem_.residual ? residual_.get() : sum_.get();
    call.scale = problem_.output_type != problem_.type ? &problem_.scale : nullptr;
    return call;
  }
  bool guards_are_whole() const {
    for (const auto& [data, bytes] : made_) {
      for (std::size_t i = 0; i < kGuard; ++i) {
        if (data[bytes + i] != std::byte{0xa5}) return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  struct Free {
    void operator()(std::byte* data) const { ::operator delete(data, std::align_val_t(64)); }
  };
  using Memory = std::unique_ptr<std::byte, Free>;
  Memory make(std::size_t bytes) {
    Memory memory(static_cast<std::byte*>(::operator new(bytes + kGuard, std::align_val_t(64))));
    std::memset(memory.get(), 0xa5, bytes + kGuard);
    made_.emplace_back(memory.get(), bytes);
    return memory;
  }
  Memory fill(const std::vector<std::uint16_t>& values) {
    Memory memory = make(values.size() * 2);
    std::memcpy(memory.get(), values.data(), values.size() * 2);
    return memory;
  }

  FusedProblem problem_;
  std::vector<std::pair<const std::byte*, std::size_t>> made_;
  Memory input_, residual_, weight_, sum_, output_;
};

// FNV-1a.
std::uint64_t digest_of(std::uint64_t digest, const void* data, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i)
    digest = (digest ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3;
  return digest;
}

// Rank 0's results are looked at, the others' must be the same bits.
void run(Communicator& comm, Exchange& exchange, const FusedProblem& problem, bool in_place,
         Problems& trouble) {
  Buffers buffers(problem, comm.rank());
  const FusedCall call = buffers.call(in_place);
  const Status status = comm.fused(call, nullptr);
  if (!status.ok()) return trouble.add("%s: %s", problem.in_words().c_str(), status.to_string().c_str());
  const void* const sum = problem.normalises() ? call.residual_out : call.output;
  const std::string wrong = comm.rank() == 0 ? problem.check(sum, call.output) : "";
  if (!wrong.empty()) trouble.add("%s", wrong.c_str());
  const std::uint64_t digest =
      digest_of(digest_of(0xcbf29ce484222325, sum, problem.count() * 2), call.output, problem.output_bytes());
  const auto digests = gather_values(exchange, digest, Deadline::after_ms(120'000));
  if (!digests.ok()) return trouble.add("%s", digests.status().to_string().c_str());
  if (digest != (*digests)[0]) trouble.add("%s: other bits than rank 0's", problem.in_words().c_str());
  if (!buffers.guards_are_whole()) trouble.add("%s: wrote past the end", problem.in_words().c_str());
}

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
                              run(comm, exchange, problem, problem.seed % 2 == 0, trouble);
                            }
                            FusedProblem bias = problem;
                            bias.collective = Collective::all_reduce_bias;
                            bias.output_type = type;
                            run(comm, exchange, bias, tokens == 3, trouble);
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
                                        run(comm, exchange, problem, true, trouble);
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
            const FusedCall call = buffers.call(false);
            std::vector<std::uint16_t> sum(problem.count());
            if (!comm.fused(call, nullptr).ok() ||
                !comm.all_reduce(call.input, sum.data(), sum.size(), call.type, ReduceOp::sum, nullptr).ok())
              return trouble.add("failed");
            if (std::memcmp(sum.data(), call.residual_out, sum.size() * 2) != 0) trouble.add("other bits");
          }),
      "");
}

TEST(Fused, AWrongArgumentIsNamedAndNothingIsWritten) {
  EXPECT_EQ(test::run_communicators(
                Kind::threads, 1, test::patient(),
                [&](Communicator& comm, Exchange&, Problems& trouble) {
                  FusedProblem problem;
                  problem.tokens = 2;
                  problem.nranks = 1;
                  Buffers buffers(problem, 0);
                  const FusedCall good = buffers.call(false);
                  const std::vector<std::uint16_t> before(
                      static_cast<const std::uint16_t*>(good.residual_out),
                      static_cast<const std::uint16_t*>(good.residual_out) + 2048);
                  const auto refused = [&](const char* word, auto change) {
                    FusedCall call = good;
                    change(call);
                    test::expect_failure(trouble, word, comm.fused(call, nullptr), Code::invalid_argument,
                                         {word});
                  };
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
                  test::expect_failure(trouble, "stream", comm.fused(good, &trouble), Code::invalid_argument,
                                       {"stream"});
                  if (std::memcmp(before.data(), good.residual_out, before.size() * 2) != 0)
                    trouble.add("something was written");
                  FusedCall none = good;
                  none.tokens = 0;
                  none.input = nullptr;
                  if (!comm.fused(none, nullptr).ok()) trouble.add("no tokens are refused");
                  if (!comm.fused(good, nullptr).ok()) trouble.add("not as good as before");
                  if (comm.counters().of(Collective::all_reduce_rms_norm) != 2) trouble.add("not counted");
                }),
            "");
}

TEST(Fused, CheckModeTellsWhatDiffers) {
  Options options = test::patient();
  options.check = true;
  EXPECT_EQ(
      test::run_communicators(
          Kind::threads, 2, options,
          [&](Communicator& comm, Exchange&, Problems& trouble) {
            FusedProblem problem;
            Buffers buffers(problem, comm.rank());
            const FusedCall good = buffers.call(false);
            const auto told = [&](const char* word, auto change) {
              FusedCall call = good;
              if (comm.rank() == 1) change(call);
              test::expect_failure(trouble, word, comm.fused(call, nullptr), Code::invalid_usage, {word});
            };
            told("eps is 1e-05 on rank 0, 1e-06 on rank 1", [](FusedCall& call) { call.eps = 1e-6f; });
            told("with a residual is yes on rank 0, no", [](FusedCall& call) { call.residual = nullptr; });
            told("the collective is all_reduce_rms_norm on rank 0, all_reduce_bias",
                 [](FusedCall& call) { call.collective = Collective::all_reduce_bias; });
            if (!comm.fused(good, nullptr).ok()) trouble.add("not as good as before");
          }),
      "");
}

TEST(Fused, ARankThatDoesNotComeIsNamed) {
  Options options;
  options.timeout = std::chrono::milliseconds(100);
  EXPECT_EQ(test::run_communicators(Kind::threads, 2, options,
                                    [&](Communicator& comm, Exchange& exchange, Problems& trouble) {
                                      FusedProblem problem;
                                      Buffers buffers(problem, comm.rank());
                                      if (comm.rank() == 0) {
                                        test::expect_failure(
                                            trouble, "alone", comm.fused(buffers.call(false), nullptr),
                                            Code::timeout,
                                            {"all_reduce_rms_norm on rank 0", "nothing from rank 1"});
                                      }
                                      test::meet(exchange, trouble);
                                    }),
            "");
}

// A lost packet ends in a timeout that names its slot; a spoilt one in a wrong sum.
TEST(Fused, LostAndSpoiltPackets) {
  for (const std::uint32_t fault : {1u, 2u}) {
    Options options;
    options.timeout = std::chrono::milliseconds(fault == 1 ? 100 : 60'000);
    EXPECT_EQ(test::run_communicators(
                  Kind::threads, 2, options,
                  [&](Communicator& comm, Exchange&, Problems& trouble) {
                    FusedProblem problem;
                    Buffers buffers(problem, comm.rank());
                    const FusedCall call = buffers.call(false);
                    CallOptions hooks;
                    if (comm.rank() == 1) {
                      hooks.packet_fault = fault;
                      hooks.faulty_packet = 77;
                    }
                    const Status status = comm.fused(call, nullptr, hooks);
                    if (comm.rank() == 1) return;
                    if (fault == 1) {
                      test::expect_failure(trouble, "lost", status, Code::timeout, {"slot 77"});
                    } else if (problem.check(call.residual_out, call.output).find("sum[0][61") ==
                               std::string::npos) {
                      trouble.add("element 616 to 623 must be wrong: %s",
                                  problem.check(call.residual_out, call.output).c_str());
                    }
                  }),
              "");
  }
}

}  // namespace
}  // namespace nearlight::runtime
