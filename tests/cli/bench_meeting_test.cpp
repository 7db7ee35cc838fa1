#include "cli/bench/meeting.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "tests/support/ranks.hpp"

namespace nearlight::bench {
namespace {

using test::Kind;
using test::Problems;
using test::run_ranks;

constexpr std::chrono::milliseconds kPatience{60'000};

TEST(Meeting, AllRanksLeaveTogetherAndKnowTheMoment) {
  for (const Kind kind : {Kind::threads, Kind::processes}) {
    EXPECT_EQ(run_ranks(kind, 3,
                        [](Exchange& exchange, Problems& problems) {
                          auto meeting = Meeting::create(exchange, 4, kPatience);
                          if (!meeting.ok()) return problems.add("%s", meeting.status().to_string().c_str());
                          for (int turn = 0; turn < 200; ++turn) {
                            auto start_ns = (*meeting)->align();
                            if (!start_ns.ok())
                              return problems.add("%s", start_ns.status().to_string().c_str());
                            if (now_ns() < *start_ns) problems.add("left too early");
                            (*meeting)->mine()[0] = static_cast<double>(*start_ns);
                            if (!(*meeting)->barrier().ok()) return problems.add("barrier");
                            for (int rank = 0; rank < 3; ++rank) {
                              if ((*meeting)->of(rank)[0] != static_cast<double>(*start_ns))
                                problems.add("another start");
                            }
                            if (!(*meeting)->barrier().ok()) return problems.add("barrier");
                          }
                        }),
              "");
  }
}

TEST(Meeting, TakesTheSlowestOfEachSampleAndTheSum) {
  EXPECT_EQ(run_ranks(Kind::threads, 3,
                      [](Exchange& exchange, Problems& problems) {
                        auto meeting = Meeting::create(exchange, 3, kPatience);
                        if (!meeting.ok()) return problems.add("%s", meeting.status().to_string().c_str());
                        const int rank = exchange.rank();
                        const double own[3][3] = {{1, 5, 9}, {2, 4, 9}, {3, 3, 8}};
                        std::copy(own[rank], own[rank] + 3, (*meeting)->mine().begin());
                        double out[3];
                        if (!(*meeting)->slowest(out).ok()) return problems.add("slowest");
                        if (out[0] != 3 || out[1] != 5 || out[2] != 9)
                          problems.add("%g %g %g", out[0], out[1], out[2]);
                        auto sum = (*meeting)->total(rank + 0.5);
                        if (!sum.ok() || *sum != 4.5) problems.add("sum");
                        double many[4];
                        if ((*meeting)->slowest(many).code() != Code::internal_error)
                          problems.add("no room, no failure");
                      }),
            "");
}

TEST(Meeting, AFailureReachesThoseWhoWait) {
  EXPECT_EQ(run_ranks(Kind::threads, 3,
                      [](Exchange& exchange, Problems& problems) {
                        auto meeting = Meeting::create(exchange, 1, kPatience);
                        if (!meeting.ok()) return problems.add("%s", meeting.status().to_string().c_str());
                        if (exchange.rank() == 2)
                          return (*meeting)->fail(failure(Code::cuda_error, "planted"));
                        test::expect_failure(problems, "barrier", (*meeting)->barrier(), Code::remote_error,
                                             {"rank 2", "planted"});
                      }),
            "");
}

TEST(Meeting, SpreadIsHowFarTheRanksLieApart) {
  EXPECT_EQ(run_ranks(Kind::processes, 3,
                      [](Exchange& exchange, Problems& problems) {
                        auto meeting = Meeting::create(exchange, 2, kPatience);
                        if (!meeting.ok()) return problems.add("%s", meeting.status().to_string().c_str());
                        (*meeting)->mine()[0] = exchange.rank() == 1 ? 10 : 30 + exchange.rank();
                        (*meeting)->mine()[1] = -5;
                        double apart[2] = {};
                        const Status status = (*meeting)->spread(apart);
                        if (!status.ok()) return problems.add("%s", status.to_string().c_str());
                        if (apart[0] != 22 || apart[1] != 0) problems.add("%g, %g", apart[0], apart[1]);
                        test::meet(exchange, problems);
                      }),
            "");
}

TEST(Meeting, AMissingRankEndsTheWaitAtTheLimit) {
  EXPECT_EQ(run_ranks(Kind::threads, 2,
                      [](Exchange& exchange, Problems& problems) {
                        auto meeting = Meeting::create(exchange, 1, std::chrono::milliseconds(300));
                        if (!meeting.ok()) return problems.add("%s", meeting.status().to_string().c_str());
                        if (exchange.rank() == 0) {
                          test::expect_failure(problems, "barrier", (*meeting)->barrier(), Code::timeout,
                                               {"300 ms"});
                        }
                        test::meet(exchange, problems);
                      }),
            "");
}

TEST(Meeting, AKilledProcessEndsTheWaitLongBeforeTheLimit) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(run_ranks(
                Kind::processes, 2,
                [](Exchange& exchange, Problems& problems) {
                  auto meeting = Meeting::create(exchange, 1, kPatience);
                  if (!meeting.ok()) return problems.add("%s", meeting.status().to_string().c_str());
                  if (exchange.rank() == 1) kill(getpid(), SIGKILL);
                  test::expect_failure(problems, "barrier", (*meeting)->barrier(), Code::remote_error,
                                       {"rank 1"});
                },
                {}, 1u << 1),
            "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience / 2);
}

}  // namespace
}  // namespace nearlight::bench
