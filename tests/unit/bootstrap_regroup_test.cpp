// Ranks that begin anew after a failure, with all or without some; for threads, forked processes and ranks
// that met.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/exchange.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::test {
namespace {

using std::chrono::milliseconds;

class RegroupOf : public testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Ranks, RegroupOf, testing::Values(Kind::threads, Kind::processes, Kind::met),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

Deadline patience() { return Deadline::after(std::chrono::seconds(60)); }
Deadline soon() { return Deadline::after(milliseconds(100)); }

void expect_ok(Problems& problems, const char* where, const Status& status) {
  if (!status.ok()) problems.add("%s: %s", where, status.to_string().c_str());
}

// All there tell their number of before.
void expect_members(Problems& problems, Exchange& exchange, int number, const std::vector<int>& members) {
  const auto all = gather_values(exchange, number, patience());
  if (!all.ok()) return problems.add("after: %s", all.status().to_string().c_str());
  if (*all != members) problems.add("after: %s", in_words(*all).c_str());
  if (exchange.rank() != std::find(members.begin(), members.end(), number) - members.begin())
    problems.add("rank %d became rank %d", number, exchange.rank());
}

TEST_P(RegroupOf, BringsAFailedExchangeBack) {
  for (const int nranks : {1, 2, 3, 8}) {
    EXPECT_EQ("", run_ranks(GetParam(), nranks, [&](Exchange& exchange, Problems& problems) {
                const std::vector<int> all = all_members(nranks);
                for (int time = 0; time < 20; ++time) {
                  // A rank that does something else fails all of them, each at a point of its own.
                  const bool other = exchange.rank() == time % nranks;
                  const auto bytes = static_cast<std::size_t>(other ? 8 : 4);
                  std::vector<std::byte> mine(bytes), gathered(bytes * static_cast<std::size_t>(nranks));
                  const Status spoilt = exchange.all_gather(mine, gathered, patience());
                  if (spoilt.ok() != (nranks == 1))
                    problems.add("all_gather: %s", spoilt.to_string().c_str());
                  expect_ok(problems, "regroup", exchange.regroup(all, patience()));
                  expect_members(problems, exchange, exchange.rank(), all);
                }
                meet(exchange, problems);
              }));
  }
}

// What is going on ends at once.
TEST_P(RegroupOf, EndsTheOthersCalls) {
  EXPECT_EQ("", run_ranks(GetParam(), 3, [&](Exchange& exchange, Problems& problems) {
              if (exchange.rank() == 1) {
                std::this_thread::sleep_for(milliseconds(30));
              } else {
                expect_failure(problems, "barrier", exchange.barrier(patience()), Code::remote_error,
                               {"rank 1", "starts over"});
              }
              expect_ok(problems, "regroup", exchange.regroup(all_members(3), patience()));
              expect_members(problems, exchange, exchange.rank(), {0, 1, 2});
              meet(exchange, problems);
            }));
}

TEST_P(RegroupOf, NamesWhoDoesNotComeAndWorksWhenItDoes) {
  const Shared<std::atomic<int>> failed;
  EXPECT_EQ("", run_ranks(GetParam(), 3, [&](Exchange& exchange, Problems& problems) {
              if (exchange.rank() == 2) {
                wait_until([&] { return *failed == 2; }, milliseconds(60'000));
              } else {
                expect_failure(problems, "regroup", exchange.regroup(all_members(3), soon()), Code::timeout,
                               {"rank(s)", "2"});
                expect_failure(problems, "barrier", exchange.barrier(soon()), Code::timeout, {"2"});
                ++*failed;
                wait_until([&] { return *failed == 2; }, milliseconds(60'000));
              }
              expect_ok(problems, "regroup", exchange.regroup(all_members(3), patience()));
              expect_members(problems, exchange, exchange.rank(), {0, 1, 2});
              meet(exchange, problems);
            }));
}

// Ranks that give up and come again after microseconds never find themselves in groups of different
// generations.
TEST_P(RegroupOf, IsForAllOrForNone) {
  EXPECT_EQ("", run_ranks(GetParam(), 3, [&](Exchange& exchange, Problems& problems) {
              for (int time = 0; time < 3000 / kSlowDown; ++time) {
                Status status;
                int tries = 0;
                do {
                  // One comes about when the others' limit is over.
                  const std::int64_t begin_ns = clock_ns();
                  while (exchange.rank() == time % 3 &&
                         clock_ns() - begin_ns < 15'000 + (time * 53 + tries * 17) % 150 * 1000) {
                  }
                  const std::chrono::microseconds limit(20);
                  status =
                      exchange.regroup(all_members(3), tries < 2000 ? Deadline::after(limit) : patience());
                } while (!status.ok() && status.code() == Code::timeout && ++tries < 2010);
                if (!status.ok()) return problems.add("time %d: %s", time, status.to_string().c_str());
                const auto times = gather_values(exchange, time, patience());
                if (!times.ok()) return problems.add("time %d: %s", time, times.status().to_string().c_str());
                if (*times != std::vector<int>(3, time))
                  return problems.add("time %d: %s", time, in_words(*times).c_str());
              }
              meet(exchange, problems);
            }));
}

TEST_P(RegroupOf, LeavesRanksOut) {
  const Shared<std::atomic<int>> done;
  EXPECT_EQ("", run_ranks(GetParam(), 5, [&](Exchange& exchange, Problems& problems) {
              const int number = exchange.rank();
              if (number == 0 || number == 3) {
                // Late, and still with those who are gone on.
                wait_until([&] { return *done >= 3; }, milliseconds(60'000));
                expect_failure(problems, "regroup", exchange.regroup(all_members(5), patience()),
                               Code::remote_error, {"without this rank"});
                ++*done;
                wait_until([&] { return *done == 5; }, milliseconds(60'000));
                return;
              }
              expect_ok(problems, "regroup", exchange.regroup(std::vector{1, 2, 4}, patience()));
              expect_members(problems, exchange, number, {1, 2, 4});
              // A descriptor comes from the right one.
              UniqueFd mine(::dup(0));
              const auto fd = exchange.share_fd(exchange.rank() == 1 ? mine.get() : -1, 1, patience());
              expect_ok(problems, "share_fd", fd.status());
              ++*done;
              wait_until([&] { return *done >= 3; }, milliseconds(60'000));
              // Once more.
              if (number != 2) {
                expect_ok(problems, "regroup", exchange.regroup(std::vector{0, 2}, patience()));
                expect_members(problems, exchange, number, {1, 4});
                meet(exchange, problems);
              }
              wait_until([&] { return *done == 5; }, milliseconds(60'000));
            }));
}

TEST_P(RegroupOf, NamesWhoMeansOthers) {
  const Shared<std::atomic<int>> failed;
  EXPECT_EQ("", run_ranks(GetParam(), 3, [&](Exchange& exchange, Problems& problems) {
              const int rank = exchange.rank();
              const std::vector<int> mine = rank == 1 ? std::vector{1, 2} : std::vector{0, 1, 2};
              const Status status = exchange.regroup(mine, Deadline::after(milliseconds(300)));
              expect_failure(problems, "regroup", status, Code::invalid_usage,
                             {rank == 1 ? "rank 2 with ranks 0, 1, 2" : "rank 1 with ranks 1, 2",
                              rank == 1 ? "goes on with ranks 1, 2" : "goes on with ranks 0, 1, 2"});
              ++*failed;
              wait_until([&] { return *failed == 3; }, milliseconds(60'000));
              expect_ok(problems, "again", exchange.regroup(all_members(3), patience()));
              expect_members(problems, exchange, rank, {0, 1, 2});
              meet(exchange, problems);
            }));
}

// A descriptor of a round that was broken off is not taken for a later one's.
TEST_P(RegroupOf, ForgetsDescriptorsOnTheirWay) {
  const Shared<std::atomic<int>> failed;
  EXPECT_EQ("", run_ranks(GetParam(), 3, [&](Exchange& exchange, Problems& problems) {
              const int rank = exchange.rank();
              UniqueFd wrong(::open("/dev/null", O_RDONLY | O_CLOEXEC));
              UniqueFd right(::memfd_create("right", MFD_CLOEXEC));
              // Rank 2 does not take part, so nobody takes what rank 0 has sent.
              const Status broken =
                  rank == 2 ? Status() : exchange.share_fd(rank == 0 ? wrong.get() : -1, 0, soon()).status();
              if (broken.ok() != (rank == 2)) problems.add("share_fd: %s", broken.to_string().c_str());
              ++*failed;
              wait_until([&] { return *failed == 3; }, milliseconds(60'000));
              expect_ok(problems, "regroup", exchange.regroup(all_members(3), patience()));
              if (rank == 0 && ::ftruncate(right.get(), 4321) != 0) problems.add("ftruncate");
              auto got = exchange.share_fd(rank == 0 ? right.get() : -1, 0, patience());
              if (!got.ok()) return problems.add("share_fd: %s", got.status().to_string().c_str());
              struct stat info {};
              if (::fstat(got->get(), &info) != 0 || info.st_size != 4321) problems.add("another descriptor");
              meet(exchange, problems);
            }));
}

TEST_P(RegroupOf, RefusesListsThatAreNone) {
  EXPECT_EQ("", run_ranks(GetParam(), 2, [&](Exchange& exchange, Problems& problems) {
              const int self = exchange.rank(), other = 1 - self;
              const auto refused = [&](std::vector<int> members, const char* word) {
                expect_failure(problems, word, exchange.regroup(members, soon()), Code::invalid_argument,
                               {"members", word});
              };
              refused({}, "itself");
              refused({other}, "itself");
              refused({0, 1, 2}, "no rank of 2");
              refused({-1, self}, "-1");
              refused({1, 0}, "after");
              refused({self, self}, "after");
              meet(exchange, problems);  // it is as it was
            }));
}

// A rank that has left, or whose process has ended, is named; the others go on without it.
TEST_P(RegroupOf, NamesWhoIsGone) {
  const Kind kind = GetParam();
  const Shared<std::atomic<int>> done;
  std::atomic<bool> left{false};
  const auto problems = run_ranks(
      kind, 3,
      [&](Exchange& exchange, Problems& trouble) {
        if (exchange.rank() == 1) {
          ++*done;
          if (kind != Kind::processes) return;  // its exchange ends with the thread that owns it
          std::this_thread::sleep_for(std::chrono::seconds(60));
        }
        wait_until([&] { return *done == 1; }, milliseconds(60'000));
        const int number = exchange.rank();
        if (kind == Kind::processes) {
          expect_failure(trouble, "regroup", exchange.regroup(all_members(3), patience()), Code::remote_error,
                         {"rank 1"});
        }
        expect_ok(trouble, "regroup", exchange.regroup(std::vector{0, 2}, patience()));
        expect_members(trouble, exchange, number, {0, 2});
        meet(exchange, trouble);
      },
      {.on_started =
           [&](std::span<const pid_t> pids) {
             wait_until([&] { return *done == 1; }, milliseconds(60'000));
             ::kill(pids[1], SIGKILL);
           }},
      1u << 1);
  EXPECT_EQ(problems, "");
}

}  // namespace
}  // namespace nearlight::test
