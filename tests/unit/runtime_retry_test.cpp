// Calls that are made again after a time-out: the verdict against an adversary, and CPU ranks that lose
// things.
#include "runtime/retry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/checks.hpp"
#include "runtime/create.hpp"
#include "tests/support/kinds.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::runtime {
namespace {

using test::Kind;
using test::Problems;

// ---- the states of run_with_retries, driven by an adversary
// ------------------------------------------------

struct Rules {
  bool barrier = true;     // a call ends with one
  bool looks_back = true;  // an input in the place of the output is not asked for again
  bool in_place = true;    // some calls are
};

// Ranks that make calls 1, 2, ... in one order. A wait ends well once all ranks have come to what it waits
// for, and in vain whenever the adversary likes. "" when nothing went wrong, else what did.
class Simulation {
 public:
  Simulation(int nranks, std::uint64_t seed, Rules rules)
      : rules_(rules), random_(seed * 0x9e3779b97f4a7c15u), ranks_(static_cast<std::size_t>(nranks)) {}

  std::string run(int steps) {
    for (int step = 0; step < steps && problem_.empty() && !over_; ++step) {
      Rank& rank = ranks_[below(ranks_.size())];
      if (rank.phase == Phase::resetting) {
        if (all([](const Rank& one) { return one.phase == Phase::resetting; })) decide();
        continue;
      }
      const bool in_vain = below(12) == 0;
      if (rank.phase == Phase::data && rank.sent == 0) begin(rank);
      if (in_vain) {
        rank.phase = Phase::resetting;
      } else if (rank.phase == Phase::data) {
        if (all([&](const Rank& one) { return one.sent >= rank.call; })) {
          rank.done = true;
          if (!rank.out_of_place) rank.input_is_there = false;
          if (rules_.barrier) {
            rank.phase = Phase::barrier;
            rank.came = rank.call;
          } else {
            finish(rank);
          }
        }
      } else if (all([&](const Rank& one) { return one.came >= rank.call; })) {
        finish(rank);
      }
    }
    return problem_;
  }
  std::uint64_t finished() const { return finished_; }
  std::uint64_t repeated() const { return repeated_; }
  bool gave_up() const { return over_; }

 private:
  enum class Phase { data, barrier, resetting };
  struct Rank {
    Phase phase = Phase::data;
    std::uint64_t call = 1;
    bool out_of_place = true, input_is_there = true, done = false;
    std::uint64_t sent = 0, came = 0;  // of this incarnation: the highest call whose data, whose barrier
  };

  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_() % end); }
  template <class Of>
  bool all(Of of) const {
    return std::all_of(ranks_.begin(), ranks_.end(), of);
  }
  void begin(Rank& rank) {
    if (!rank.input_is_there) problem_ = "an input was asked for that had been overwritten";
    for (const Rank& other : ranks_) {
      if (&other != &rank && other.sent > rank.call) problem_ = "two ranks are in different calls";
    }
    rank.sent = rank.call;
  }
  void finish(Rank& rank) {
    ++finished_;
    for (const Rank& other : ranks_) {
      // Its data were there, or they would not be here.
      if (other.call == rank.call && !other.done && rules_.barrier)
        problem_ = "a call is over that a rank lacks the data of";
    }
    ++rank.call;
    rank.phase = Phase::data;
    rank.done = false;
    rank.sent = 0;
    rank.out_of_place = !rules_.in_place || below(4) != 0;
    rank.input_is_there = true;
    // What it has sent of the call before stays sent.
    begin(rank);
  }
  void decide() {
    std::vector<RetryVote> votes;
    for (const Rank& rank : ranks_)
      votes.push_back({rank.call, rank.done, rank.out_of_place || !rules_.looks_back});
    std::vector<Verdict> verdicts;
    for (const RetryVote& vote : votes) verdicts.push_back(judge(vote, votes));
    for (const Verdict verdict : verdicts) over_ = over_ || verdict == Verdict::give_up;
    if (over_) {
      // A rank that has finished is told so and fails in its next call; nobody may repeat.
      for (const Verdict verdict : verdicts) {
        if (verdict == Verdict::repeat) problem_ = "one gives up, another repeats";
      }
      return;
    }
    for (Rank& rank : ranks_) rank.sent = rank.came = 0;
    std::uint64_t next = 0;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      Rank& rank = ranks_[i];
      if (verdicts[i] == Verdict::finished) {
        ++finished_;
        ++rank.call;
        rank.out_of_place = !rules_.in_place || below(4) != 0;
        rank.input_is_there = true;
      } else {
        ++repeated_;
      }
      rank.done = false;
      rank.phase = Phase::data;
      if (next != 0 && rank.call != next) problem_ = "ranks go on with different calls";
      next = rank.call;
    }
  }

  const Rules rules_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::string problem_;
  std::uint64_t finished_ = 0, repeated_ = 0;
  bool over_ = false;
};

struct Found {
  int problems = 0, gave_up = 0;
  std::uint64_t finished = 0, repeated = 0;
  std::string first;
};
Found simulate(Rules rules, int runs) {
  Found found;
  for (int seed = 0; seed < runs; ++seed) {
    for (const int nranks : {2, 3, 4}) {
      Simulation simulation(nranks, static_cast<std::uint64_t>(seed), rules);
      const std::string problem = simulation.run(400);
      if (!problem.empty() && found.first.empty())
        found.first = "seed " + std::to_string(seed) + ", " + std::to_string(nranks) + " ranks: " + problem;
      found.problems += problem.empty() ? 0 : 1;
      found.gave_up += simulation.gave_up() ? 1 : 0;
      found.finished += simulation.finished();
      found.repeated += simulation.repeated();
    }
  }
  return found;
}

TEST(Retry, HoldsAgainstAnAdversary) {
  const Found found = simulate({}, 3000);
  EXPECT_EQ(found.first, "");
  EXPECT_GT(found.finished, 10'000u);
  EXPECT_GT(found.repeated, 1'000u);
  EXPECT_GT(found.gave_up, 100);
}
// Where no call is in place everything can be made again.
TEST(Retry, NeverGivesUpOnCallsThatAreOutOfPlace) {
  const Found found = simulate({.in_place = false}, 3000);
  EXPECT_EQ(found.first, "");
  EXPECT_EQ(found.gave_up, 0);
}
// Without the barrier a rank may have finished, and its program have overwritten, what another still needs.
TEST(RetryMutant, WithoutTheBarrierThatIsLost) {
  EXPECT_GT(simulate({.barrier = false, .in_place = false}, 300).gave_up, 0);
}
TEST(RetryMutant, AnInputThatIsGoneIsAskedFor) {
  const Found found = simulate({.looks_back = false}, 300);
  EXPECT_THAT(found.first, testing::HasSubstr("overwritten"));
}

// ---- CPU ranks
// ----------------------------------------------------------------------------------------------

Options with_retries(std::uint32_t retries) {
  Options options = test::patient();
  options.timeout = std::chrono::milliseconds(700 * test::kPatience);
  options.retries = retries;
  options.retry_backoff = std::chrono::milliseconds(5);
  return options;
}

Status sum(Communicator& comm, bool in_place, const CallOptions& options, Problems& trouble) {
  std::vector<float> send(700, static_cast<float>(comm.rank() + 1)), recv(700, -1);
  float* const to = in_place ? send.data() : recv.data();
  NL_TRY(comm.all_reduce(send.data(), to, send.size(), DataType::f32, ReduceOp::sum, nullptr, options));
  const int n = comm.nranks();
  for (std::size_t i = 0; i < send.size(); ++i) {
    if (to[i] != static_cast<float>(n * (n + 1) / 2)) {
      trouble.add("element %zu is %g", i, static_cast<double>(to[i]));
      break;
    }
  }
  return {};
}

class Retries : public testing::TestWithParam<Kind> {};

// Something of the last rank's is lost now and then, by each protocol whose data tell of their arrival; all
// calls are right.
TEST_P(Retries, WhatIsLostIsAskedForAgain) {
  const auto problems = test::run_communicators(
      GetParam(), 3, with_retries(4), [](Communicator& comm, Exchange& exchange, Problems& trouble) {
        for (int call = 0; call < 12; ++call) {
          CallOptions options;
          constexpr route::Protocol kTell[] = {route::Protocol::ll, route::Protocol::sentinel,
                                               route::Protocol::ll128};
          options.protocol = kTell[call / 4];
          if (comm.rank() == 2 && call % 4 == 1) {
            options.packet_fault = 1;
            options.faulty_packet = 1;
          }
          if (const Status status = sum(comm, false, options, trouble); !status.ok())
            trouble.add("call %d: %s", call, status.to_string().c_str());
          if (const Status status = comm.barrier(nullptr); !status.ok())
            trouble.add("barrier %d: %s", call, status.to_string().c_str());
        }
        const Counters counters = comm.counters();
        const std::uint64_t made = counters.of(Collective::all_reduce);
        if (made != 12 || counters.failures != 0)
          trouble.add("%llu calls, %llu failures", static_cast<unsigned long long>(made),
                      static_cast<unsigned long long>(counters.failures));
        if (!comm.status().ok()) trouble.add("%s", comm.status().to_string().c_str());
        test::meet(exchange, trouble);
      });
  EXPECT_EQ(problems, "");
}

TEST_P(Retries, SoAreCollectivesByParts) {
  const auto problems = test::run_communicators(
      GetParam(), 2, with_retries(4), [](Communicator& comm, Exchange& exchange, Problems& trouble) {
        for (int call = 0; call < 4; ++call) {
          CallOptions options;
          options.protocol = route::Protocol::ll;
          if (comm.rank() == 1 && call == 1) {
            options.packet_fault = 1;
            options.faulty_packet = 1;
          }
          const std::vector<float> send(50, static_cast<float>(10 * call + comm.rank()));
          std::vector<float> recv(100, -1);
          const CollectiveCall gather{Collective::all_gather, send.data(), recv.data(), send.size(),
                                      DataType::f32};
          if (const Status status = comm.collective(gather, nullptr, options); !status.ok())
            trouble.add("call %d: %s", call, status.to_string().c_str());
          for (std::size_t i = 0; i < recv.size(); ++i) {
            if (recv[i] == static_cast<float>(10 * call) + (i < 50 ? 0.f : 1.f)) continue;
            trouble.add("call %d, element %zu: %g", call, i, static_cast<double>(recv[i]));
            break;
          }
        }
        test::meet(exchange, trouble);
      });
  EXPECT_EQ(problems, "");
}

// In place the others' outputs may have gone over their inputs: all fail, and stay failed until a reset.
TEST_P(Retries, InPlaceIsNotAskedForAgain) {
  const auto problems = test::run_communicators(
      GetParam(), 2, with_retries(2), [](Communicator& comm, Exchange& exchange, Problems& trouble) {
        CallOptions options;
        if (comm.rank() == 1) {
          options.packet_fault = 1;
          options.faulty_packet = 1;
        }
        const Status status = sum(comm, true, options, trouble);
        if (status.code() != Code::timeout) trouble.add("%s", status.to_string().c_str());
        if (comm.status().ok()) trouble.add("it has not failed");
        test::meet(exchange, trouble);
        // This one's input is there, but it would take the failure for a time-out of its own.
        if (const Status next = sum(comm, false, {}, trouble); next.code() != Code::timeout)
          trouble.add("the next call: %s", next.to_string().c_str());
        // Nor need all ranks make equally many of those.
        if (comm.rank() == 0 && comm.barrier(nullptr).code() != Code::timeout) trouble.add("the barrier");
        if (comm.status().ok()) trouble.add("it is well again");
        test::meet(exchange, trouble);
        if (const Status again = comm.reset(); !again.ok()) trouble.add("%s", again.to_string().c_str());
        if (const Status well = sum(comm, true, {}, trouble); !well.ok())
          trouble.add("%s", well.to_string().c_str());
        if (const Status healed = sum(comm, false, options, trouble); !healed.ok())
          trouble.add("healed: %s", healed.to_string().c_str());
      });
  EXPECT_EQ(problems, "");
}

// A call that one rank alone gets wrong is none, and the ranks still mean the same call by its number.
TEST_P(Retries, AWrongArgumentIsNoCall) {
  const auto problems = test::run_communicators(
      GetParam(), 2, with_retries(2), [](Communicator& comm, Exchange&, Problems& trouble) {
        CallOptions options;
        if (comm.rank() == 1) {
          float value = 1;
          const Status wrong =
              comm.all_reduce(&value, nullptr, 1, DataType::f32, ReduceOp::sum, nullptr, options);
          if (wrong.code() != Code::invalid_argument) trouble.add("%s", wrong.to_string().c_str());
          options.packet_fault = 1;
          options.faulty_packet = 1;
        }
        if (const Status status = sum(comm, false, options, trouble); !status.ok())
          trouble.add("%s", status.to_string().c_str());
      });
  EXPECT_EQ(problems, "");
}

// An abort while a rank pauses before it tries again ends the pause, and is not forgotten by the reset.
TEST_P(Retries, AnAbortEndsThePauseForGood) {
  Options options = with_retries(2);
  options.retry_backoff = std::chrono::milliseconds(10'000);
  const auto problems = test::run_communicators(
      GetParam(), 2, options, [](Communicator& comm, Exchange& exchange, Problems& trouble) {
        CallOptions faulty;
        if (comm.rank() == 1) {
          faulty.packet_fault = 1;
          faulty.faulty_packet = 1;
        }
        std::atomic<std::int64_t> aborted_ns{0};
        std::thread aborting([&] {
          test::wait_until([&] { return !comm.status().ok(); }, std::chrono::seconds(60));
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          aborted_ns = test::clock_ns();
          comm.abort();
        });
        const Status status = sum(comm, false, faulty, trouble);
        const std::int64_t ended_ns = test::clock_ns();
        aborting.join();
        if (status.code() != Code::aborted) trouble.add("%s", status.to_string().c_str());
        if (ended_ns - aborted_ns > 5'000'000'000) trouble.add("it went on pausing");
        if (comm.status().ok()) trouble.add("the abort is forgotten");
        test::meet(exchange, trouble);
        if (const Status again = comm.reset(); !again.ok()) trouble.add("%s", again.to_string().c_str());
        if (const Status well = sum(comm, false, {}, trouble); !well.ok())
          trouble.add("%s", well.to_string().c_str());
      });
  EXPECT_EQ(problems, "");
}

// A rank that stays away is not waited for for ever, and is named.
TEST_P(Retries, ARankThatStaysAwayIsNamedInBoundedTime) {
  const test::Shared<std::atomic<bool>> over;
  // The exchange is spent afterwards.
  const auto problems = test::run_ranks(GetParam(), 2, [&over](Exchange& exchange, Problems& trouble) {
    Options options = with_retries(1);
    options.timeout = std::chrono::milliseconds(200 * test::kPatience);  // the reset waits for three of them
    const auto created = create_host(exchange, options);
    if (!created.ok()) return trouble.add("%s", created.status().to_string().c_str());
    Communicator& comm = **created;
    if (comm.rank() == 0) {
      const std::int64_t begin = test::clock_ns();
      test::expect_failure(trouble, "the call", sum(comm, false, {}, trouble), Code::timeout,
                           {"making a call again", "rank(s) 1"});
      if (test::clock_ns() - begin > 30'000'000'000) trouble.add("it took more than 30 s");
      *over = true;
    } else {
      test::wait_until([&] { return over->load(); }, std::chrono::seconds(60));
    }
  });
  EXPECT_EQ(problems, "");
}

INSTANTIATE_TEST_SUITE_P(Of, Retries, testing::ValuesIn(test::kinds()), test::kind_name);

TEST(RetryPolicies, AreBounded) {
  Options options;
  options.retries = 17;
  EXPECT_THAT(effective_retry(options, false).status().text(),
              testing::HasSubstr("retries: 17 is more than 16"));
  options.retries = 1;
  EXPECT_EQ(effective_retry(options, false)->attempts, 1u);
  EXPECT_THAT(effective_retry(options, true).status().text(), testing::HasSubstr("GPU rank"));
  options.retry_backoff = std::chrono::milliseconds(0);
  EXPECT_THAT(effective_retry(options, false).status().text(), testing::HasSubstr("retry_backoff: 0 ms"));
  options = {};
  ::setenv("NEARLIGHT_RETRIES", "3", 1);
  EXPECT_EQ(effective_retry(options, false)->attempts, 3u);
  EXPECT_EQ(effective_retry(options, true)->attempts, 0u);
  ::unsetenv("NEARLIGHT_RETRIES");
  const RetryPolicy policy{.attempts = 16, .backoff = std::chrono::milliseconds(100)};
  EXPECT_EQ(policy.wait_before(0).count(), 100);
  EXPECT_EQ(policy.wait_before(2).count(), 400);
  EXPECT_EQ(policy.wait_before(15).count(), 10'000);
}

}  // namespace
}  // namespace nearlight::runtime
