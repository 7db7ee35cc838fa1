// How communicators come to be, and what they say when they do not.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <numeric>

#include "bootstrap/in_process.hpp"
#include "runtime/create.hpp"
#include "tests/mp/faulty_exchange.hpp"
#include "tests/support/checked_call.hpp"
#include "tests/support/kinds.hpp"

namespace nearlight::test {
namespace {

using namespace std::chrono_literals;

using Creation = ByKind;
INSTANTIATE_TEST_SUITE_P(Kinds, Creation, testing::ValuesIn(kinds()), kind_name);

runtime::Options small() {
  runtime::Options options = patient();
  options.slots = 32;
  options.chunk_bytes = 256;
  return options;
}

// All ranks fail with `code` and `words`; and the group can make a communicator afterwards.
std::string expect_all_fail(Kind kind, int nranks, Code code, std::initializer_list<std::string_view> words,
                            const std::function<runtime::Options(int rank)>& options) {
  return run_ranks(kind, nranks, [&](Exchange& exchange, Problems& trouble) {
    auto comm = runtime::create_host(exchange, options(exchange.rank()));
    if (comm.ok()) return trouble.add("created");
    expect_failure(trouble, "creation", comm.status(), code, words);
    auto another = runtime::create_host(exchange, small());
    if (!another.ok()) trouble.add("afterwards: %s", another.status().to_string().c_str());
    meet(exchange, trouble);
  });
}

// The two values stand in the text, with the field and the rank.
TEST_P(Creation, OptionsThatDifferAreNamedOnAllRanks) {
  struct Difference {
    const char* field;
    void (*change)(runtime::Options&);
    const char *first, *other;
  };
  const Difference differences[] = {
      {"timeout", [](runtime::Options& o) { o.timeout = 77s; }, "(ms) is 120000 ", "77000 "},
      {"regions", [](runtime::Options& o) { o.regions = 3; }, "is 0", "3 on"},
      {"slots", [](runtime::Options& o) { o.slots = 64; }, "is 32", "64 on"},
      {"chunk_bytes", [](runtime::Options& o) { o.chunk_bytes = 512; }, "is 256", "512 on"},
      {"initial_epoch", [](runtime::Options& o) { o.initial_epoch = 9; }, "is 0", "9 on"},
      {"heap_offset", [](runtime::Options& o) { o.heap_offset = 128; }, "is 0", "128 on"},
  };
  for (const Difference& difference : differences) {
    for (const int other : {1, 2}) {
      const std::string rank = "rank " + std::to_string(other);
      EXPECT_EQ(expect_all_fail(GetParam(), 3, Code::invalid_usage,
                                {difference.field, difference.first, difference.other, rank},
                                [&](int self) {
                                  runtime::Options options = small();
                                  if (self == other) difference.change(options);
                                  return options;
                                }),
                "")
          << difference.field;
    }
  }
}

// A value that cannot be, on one rank or on all: an error on all.
TEST_P(Creation, BadOptionsAreNamedOnAllRanks) {
  struct Bad {
    const char* field;
    void (*change)(runtime::Options&);
  };
  const Bad all_bad[] = {
      {"timeout", [](runtime::Options& o) { o.timeout = 0ms; }},
      {"timeout", [](runtime::Options& o) { o.timeout = -5ms; }},
      {"timeout", [](runtime::Options& o) { o.timeout = std::chrono::milliseconds::max(); }},
      {"chunk_bytes", [](runtime::Options& o) { o.chunk_bytes = 24; }},
      {"chunk_bytes", [](runtime::Options& o) { o.chunk_bytes = 0xfffffff0; }},
      {"slots", [](runtime::Options& o) { o.slots = 33; }},
      {"slots", [](runtime::Options& o) { o.slots = 0xffffffe0; }},
      {"regions", [](runtime::Options& o) { o.regions = 1025; }},
      {"heap_offset", [](runtime::Options& o) { o.heap_offset = 64; }},
      // The sum with the region's size would wrap to something small.
      {"heap_offset", [](runtime::Options& o) { o.heap_offset = ~std::size_t{127}; }},
      {"create_timeout", [](runtime::Options& o) { o.create_timeout = std::chrono::milliseconds::max(); }},
      {"create_timeout", [](runtime::Options& o) { o.create_timeout = 0ms; }},
      {"create_timeout", [](runtime::Options& o) { o.create_timeout = -1ms; }},
  };
  for (const Bad& bad : all_bad) {
    EXPECT_EQ(expect_all_fail(GetParam(), 2, Code::invalid_argument, {bad.field},
                              [&](int) {
                                runtime::Options options = small();
                                bad.change(options);
                                return options;
                              }),
              "")
        << bad.field << " on all ranks";
    EXPECT_EQ(expect_all_fail(GetParam(), 3, Code::invalid_argument, {bad.field},
                              [&](int rank) {
                                runtime::Options options = small();
                                if (rank == 1) bad.change(options);
                                return options;
                              }),
              "")
        << bad.field << " on one rank";
  }
}

// More memory than this machine has.
TEST_P(Creation, AHeapThatDoesNotFitIsRefused) {
  EXPECT_EQ(expect_all_fail(GetParam(), 2, Code::invalid_argument, {"bytes"},
                            [](int) {
                              runtime::Options options = small();
                              options.heap_offset = std::size_t{1} << 46;
                              return options;
                            }),
            "");
}

TEST_P(Creation, NineRanksAreRefused) {
  EXPECT_EQ(run_ranks(GetParam(), 9,
                      [](Exchange& exchange, Problems& trouble) {
                        auto comm = runtime::create_host(exchange, small());
                        if (comm.ok()) return trouble.add("created");
                        expect_failure(trouble, "creation", comm.status(), Code::invalid_argument,
                                       {"nranks: 9"});
                      }),
            "");
}

TEST(CreationAlone, WithoutAnExchange) {
  const auto comm = runtime::create_host(std::unique_ptr<Exchange>());
  ASSERT_FALSE(comm.ok());
  EXPECT_EQ(comm.status().code(), Code::invalid_argument);
}

// The communicator owns the exchange it was given.
TEST(CreationAlone, AnExchangeOfItsOwn) {
  auto exchanges = bootstrap::make_in_process_group(1);
  auto comm = runtime::create_host(std::move(exchanges[0]), small());
  ASSERT_TRUE(comm.ok());
  float value = 5;
  EXPECT_TRUE((*comm)->all_reduce(&value, &value, 1, DataType::f32, ReduceOp::sum, nullptr).ok());
  EXPECT_EQ(value, 5.0f);
}

TEST_P(Creation, ARankThatDoesNotComeIsNamed) {
  EXPECT_EQ(
      run_ranks(GetParam(), 3,
                [](Exchange& exchange, Problems& trouble) {
                  if (exchange.rank() == 1) {
                    std::this_thread::sleep_for(1s);
                    return;
                  }
                  runtime::Options options = small();
                  options.create_timeout = 200ms;
                  auto comm = runtime::create_host(exchange, options);
                  if (comm.ok()) return trouble.add("created");
                  // The other rank may have given up first and said so.
                  expect_failure(trouble, "creation", comm.status(), comm.status().code(), {"rank", "1"});
                  if (comm.status().code() != Code::timeout && comm.status().code() != Code::remote_error) {
                    trouble.add("%s", comm.status().to_string().c_str());
                  }
                }),
      "");
}

// One rank is held up before or after each single step of creation, the other one goes ahead and makes its
// first call at once: that call's data must not be wiped out by what the late rank still has to prepare.
TEST_P(Creation, AFirstCallDoesNotRunIntoALateRank) {
  using Fault = FaultyExchange::Fault;
  const std::chrono::milliseconds delay = kSlowDown == 1 ? 100ms : 30ms;
  int steps = 0;
  {
    const Shared<std::atomic<int>> counted;
    EXPECT_EQ(run_ranks(GetParam(), 2,
                        [&](Exchange& exchange, Problems& trouble) {
                          FaultyExchange counting(exchange, Fault::none, -1);
                          if (!runtime::create_host(counting, small()).ok()) trouble.add("not created");
                          if (exchange.rank() == 1) *counted = counting.steps();
                          meet(exchange, trouble);
                        }),
              "");
    steps = *counted;
  }
  ASSERT_GT(steps, 3);
  for (int step = 0; step < steps; ++step) {
    for (const Fault fault : {Fault::late, Fault::leaves_late}) {
      EXPECT_EQ(run_ranks(GetParam(), 2,
                          [&](Exchange& exchange, Problems& trouble) {
                            FaultyExchange slow(exchange, exchange.rank() == 1 ? fault : Fault::none, step,
                                                delay);
                            auto comm = runtime::create_host(slow, small());
                            if (!comm.ok()) return trouble.add("%s", comm.status().to_string().c_str());
                            Caller caller(**comm, 4096);
                            for (std::uint64_t i = 0; i < 8; ++i) {
                              const auto protocol = (i + static_cast<std::uint64_t>(step)) % 2 == 0
                                                        ? route::Protocol::ll
                                                        : route::Protocol::simple;
                              caller.run({DataType::f32, ReduceOp::sum, 100, protocol, {Values::numbers, i}},
                                         {}, trouble);
                            }
                            meet(exchange, trouble);
                          }),
                "")
          << "step " << step << (fault == Fault::late ? ", before it" : ", after it");
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__)  // UndefinedBehaviorSanitizer looks at an object's type through a pipe: no
                                    // room, false alarm
// One process has no room for another open file, then for one, for two, and so on: wherever that stops it,
// all of them learn why, until there is room enough and all have a communicator.
TEST(CreationOfProcesses, ALocalFailureIsToldToAll) {
  if (kinds().size() < 2) GTEST_SKIP() << "no processes under ThreadSanitizer";
  struct Outcome {
    std::atomic<int> created;
  };
  int failures = 0, created = 0;
  for (int room = 0; created == 0; ++room) {
    ASSERT_LT(room, 30);
    const Shared<Outcome> outcome;
    EXPECT_EQ(run_ranks(Kind::processes, 3,
                        [&](Exchange& exchange, Problems& trouble) {
                          rlimit before{};
                          ::getrlimit(RLIMIT_NOFILE, &before);
                          if (exchange.rank() == 2) {
                            // A new file takes the lowest free number, and that must be below the limit.
                            const int lowest = ::dup(0);
                            ::close(lowest);
                            const rlimit few{.rlim_cur = static_cast<rlim_t>(lowest + room),
                                             .rlim_max = before.rlim_max};
                            ::setrlimit(RLIMIT_NOFILE, &few);
                          }
                          auto comm = runtime::create_host(exchange, small());
                          ::setrlimit(RLIMIT_NOFILE, &before);
                          if (comm.ok()) {
                            ++outcome->created;
                          } else if (exchange.rank() == 2) {
                            expect_failure(trouble, "creation", comm.status(), Code::system_error, {});
                          } else {
                            expect_failure(trouble, "creation", comm.status(), comm.status().code(),
                                           {"rank 2"});
                          }
                          // Who has got one keeps it until all have had the chance to see that another one
                          // ended.
                          static_cast<void>(exchange.barrier(Deadline::after(120s)));
                        }),
              "")
        << "room for " << room;
    created = outcome->created;
    EXPECT_TRUE(created == 0 || created == 3) << created << " of 3 have a communicator, room for " << room;
    if (created == 0) ++failures;
  }
  EXPECT_GE(failures, 3);  // the shared memory, the eventfd, the peers
}
#endif

// NEARLIGHT_TIMEOUT_MS, set for the life of this object.
class Variable {
 public:
  explicit Variable(const char* value) { ::setenv("NEARLIGHT_TIMEOUT_MS", value, 1); }
  ~Variable() { ::unsetenv("NEARLIGHT_TIMEOUT_MS"); }
};

runtime::Options from_environment() {
  runtime::Options options = small();
  options.timeout.reset();
  return options;
}

TEST_P(Creation, ABadTimeoutVariableIsNamed) {
  for (const char* value : {"", " ", "abc", "0", "-1", "1.5", "1e3", " 10", "10 ", "10ms", "0x10", "+5",
                            "99999999999999999999", "31536000001"}) {
    const Variable variable(value);
    EXPECT_EQ(run_ranks(GetParam(), 2,
                        [&](Exchange& exchange, Problems& trouble) {
                          auto comm = runtime::create_host(exchange, from_environment());
                          if (comm.ok()) return trouble.add("created");
                          const std::string quoted = "\"" + std::string(value) + "\"";
                          expect_failure(trouble, "creation", comm.status(), Code::invalid_argument,
                                         {"NEARLIGHT_TIMEOUT_MS", quoted});
                        }),
              "")
        << "\"" << value << "\"";
  }
}

TEST_P(Creation, TheTimeoutVariableCounts) {
  const Variable variable("150");
  EXPECT_EQ(run_ranks(GetParam(), 2,
                      [](Exchange& exchange, Problems& trouble) {
                        auto comm = runtime::create_host(exchange, from_environment());
                        if (!comm.ok()) return trouble.add("%s", comm.status().to_string().c_str());
                        if (exchange.rank() == 0) {
                          float value = 1;
                          expect_failure(
                              trouble, "alone",
                              (*comm)->all_reduce(&value, &value, 1, DataType::f32, ReduceOp::sum, nullptr),
                              Code::timeout, {"150 ms", "rank 1"});
                        }
                        meet(exchange, trouble);
                      }),
            "");
}

// What the program says stands above the environment, even a bad one.
TEST_P(Creation, TheOptionStandsAboveTheVariable) {
  const Variable variable("nonsense");
  EXPECT_EQ(run_ranks(GetParam(), 2,
                      [](Exchange& exchange, Problems& trouble) {
                        auto comm = runtime::create_host(exchange, small());
                        if (!comm.ok()) trouble.add("%s", comm.status().to_string().c_str());
                        meet(exchange, trouble);
                      }),
            "");
}

TEST(CreationOfProcesses, VariablesThatDifferAreToldToAll) {
  if (kinds().size() < 2) GTEST_SKIP() << "no processes under ThreadSanitizer";
  const auto run = [](const char* value, Code code, std::initializer_list<std::string_view> words) {
    return run_ranks(Kind::processes, 3, [&](Exchange& exchange, Problems& trouble) {
      ::setenv("NEARLIGHT_TIMEOUT_MS", exchange.rank() == 1 ? value : "1000", 1);
      auto comm = runtime::create_host(exchange, from_environment());
      if (comm.ok()) return trouble.add("created");
      expect_failure(trouble, "creation", comm.status(), code, words);
    });
  };
  EXPECT_EQ(run("2000", Code::invalid_usage, {"timeout (ms) is 1000 ", "2000 on rank 1"}), "");
  EXPECT_EQ(run("two", Code::invalid_argument, {"NEARLIGHT_TIMEOUT_MS", "two"}), "");
}

}  // namespace
}  // namespace nearlight::test
