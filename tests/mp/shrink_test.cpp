// Communicators of the ranks that are left.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "algorithm/one_shot.hpp"
#include "bootstrap/process_group.hpp"
#include "runtime/create.hpp"
#include "tests/mp/faulty_exchange.hpp"
#include "tests/mp/recovery.hpp"
#include "tests/support/kinds.hpp"

namespace nearlight::test {
namespace {

using namespace std::chrono_literals;

using Shrink = ByKind;
INSTANTIATE_TEST_SUITE_P(Kinds, Shrink, testing::ValuesIn(kinds()), kind_name);

using Created = std::unique_ptr<runtime::Communicator>;

Created expect_shrunk(runtime::Communicator& comm, const std::vector<int>& members, Problems& trouble) {
  auto smaller = comm.shrink(members);
  if (!smaller.ok()) {
    trouble.add("shrink: %s", smaller.status().to_string().c_str());
    return nullptr;
  }
  const auto place = std::find(members.begin(), members.end(), comm.rank()) - members.begin();
  if ((*smaller)->rank() != place || (*smaller)->nranks() != static_cast<int>(members.size()))
    trouble.add("rank %d became rank %d of %d", comm.rank(), (*smaller)->rank(), (*smaller)->nranks());
  expect_right_results(**smaller, trouble);
  if (comm.status().ok()) trouble.add("the old one has not failed");
  expect_failure(trouble, "reset of the old one", comm.reset(), Code::invalid_usage, {"shrunk"});
  expect_failure(trouble, "once more", comm.shrink(members).status(), Code::invalid_usage, {"shrunk"});
  return std::move(*smaller);
}

// Run by every rank of `nranks`; nobody goes before all are done.
std::string run(Kind kind, int nranks, const runtime::Options& options,
                const std::function<void(Created, Problems&)>& body) {
  const Shared<std::atomic<int>> done;
  return run_ranks(kind, nranks, [&](Exchange& exchange, Problems& trouble) {
    auto comm = runtime::create_host(exchange, options);
    if (!comm.ok()) return trouble.add("%s", comm.status().to_string().c_str());
    body(std::move(*comm), trouble);
    ++*done;
    wait_until([&] { return *done == nranks; }, 60'000ms);
  });
}

TEST_P(Shrink, GoesOnWithoutSome) {
  const auto problems = run(GetParam(), 5, with_timeout(60s), [](Created comm, Problems& trouble) {
    const int number = comm->rank();
    expect_right_results(*comm, trouble);
    if (number == 0 || number == 3) return;
    Created smaller = expect_shrunk(*comm, {1, 2, 4}, trouble);
    if (smaller == nullptr) return;
    comm.reset();
    // It is like any other.
    if (const Status status = smaller->reset(); !status.ok()) trouble.add("%s", status.to_string().c_str());
    expect_right_results(*smaller, trouble);
    if (number == 2) return;
    const Created two = expect_shrunk(*smaller, {0, 2}, trouble);
    if (two == nullptr || number == 1) return;
    expect_shrunk(*two, {1}, trouble);
  });
  EXPECT_EQ(problems, "");
}

TEST_P(Shrink, NamesWhoDoesNotComeAndGoesOnWithFewer) {
  const Shared<std::atomic<int>> failed;
  const auto problems = run(GetParam(), 4, with_timeout(60s), [&](Created comm, Problems& trouble) {
    if (comm->rank() >= 2) return;
    expect_failure(trouble, "shrink", comm->shrink(std::vector{0, 1, 2}, 100ms).status(), Code::timeout,
                   {"2"});
    expect_failure(trouble, "status", comm->status(), Code::aborted, {});
    ++*failed;
    wait_until([&] { return *failed == 2; }, 60'000ms);
    expect_shrunk(*comm, {0, 1}, trouble);
  });
  EXPECT_EQ(problems, "");
}

TEST_P(Shrink, NamesTheFirstThatMeansOthers) {
  const Shared<std::atomic<int>> failed;
  const auto problems = run(GetParam(), 3, with_timeout(60s), [&](Created comm, Problems& trouble) {
    const int rank = comm->rank();
    const std::vector<int> mine = rank == 1 ? std::vector{1, 2} : std::vector{0, 1, 2};
    expect_failure(
        trouble, "shrink", comm->shrink(mine, 300ms).status(), Code::invalid_usage,
        {rank == 1 ? "ranks 1, 2, rank 2 with ranks 0, 1, 2" : "ranks 0, 1, 2, rank 1 with ranks 1, 2"});
    ++*failed;
    wait_until([&] { return *failed == 3; }, 60'000ms);
    if (rank != 0) expect_shrunk(*comm, {1, 2}, trouble);
  });
  EXPECT_EQ(problems, "");
}

TEST_P(Shrink, RefusesListsThatAreNone) {
  const auto problems = run(GetParam(), 2, with_timeout(60s), [](Created comm, Problems& trouble) {
    const int self = comm->rank();
    const auto refused = [&](const std::vector<int>& members, const char* word) {
      expect_failure(trouble, word, comm->shrink(members, 100ms).status(), Code::invalid_argument,
                     {"members", word});
    };
    refused({}, "itself");
    refused({1 - self}, "itself");
    refused({0, 1, 2}, "no rank of 2");
    refused({1, 0}, "after");
    expect_failure(trouble, "limit", comm->shrink(std::vector{0, 1}, 0ms).status(), Code::invalid_argument,
                   {"limit"});
    expect_right_results(*comm, trouble);  // as it was
  });
  EXPECT_EQ(problems, "");
}

// Ranks that meet where nobody can be left out: refused before anything is ended.
TEST_P(Shrink, IsRefusedWhereTheRanksMeetAllOrNone) {
  const auto problems = run_ranks(GetParam(), 2, [](Exchange& exchange, Problems& trouble) {
    FaultyExchange plain(exchange, FaultyExchange::Fault::none, 0);
    auto comm = runtime::create_host(plain, with_timeout(60s));
    if (!comm.ok()) return trouble.add("%s", comm.status().to_string().c_str());
    expect_failure(trouble, "shrink", (*comm)->shrink(std::vector{0, 1}).status(), Code::unsupported,
                   {"none can be left out"});
    expect_right_results(**comm, trouble);
    meet(exchange, trouble);
  });
  EXPECT_EQ(problems, "");
}

#if !defined(__SANITIZE_THREAD__)
struct Board {
  std::atomic<int> calling, done;
};

// One rank after the other is killed in a call, and those that are left go on: ranks of one parent, and ranks
// that met by a key.
void kill_one_after_the_other(bool met, int nranks, algorithm::DelayPoint point, route::Protocol protocol) {
  const Shared<Board> board;
  const std::string key = fresh_key();
  const auto problems = run_ranks(
      Kind::processes, nranks,
      [&](Exchange& exchange, Problems& trouble) {
        const int number = exchange.rank();
        runtime::Options options = with_timeout(60s);
        Result<Created> comm = failure(Code::internal_error, "not yet");
        if (met) {
          auto own = bootstrap::join_process_group({number, nranks, key}, Deadline::after(60s));
          comm = own.ok() ? runtime::create_host(std::move(*own), options) : own.status();
        } else {
          comm = runtime::create_host(exchange, options);
        }
        if (!comm.ok()) return trouble.add("%s", comm.status().to_string().c_str());
        Created here = std::move(*comm);
        expect_right_results(*here, trouble);
        // Numbers change, the victim is always rank 1 and then the last but one rank is left.
        while (here->nranks() > 2 && trouble.text().empty()) {
          if (here->rank() == 1) {
            runtime::CallOptions how;
            how.protocol = protocol;
            how.delay_point = static_cast<std::uint32_t>(point);
            how.delay_ns = 300'000'000'000;
            std::thread killer([&] {
              std::this_thread::sleep_for(10ms);
              ::kill(::getpid(), SIGKILL);
            });
            static_cast<void>(call(*here, 300, how));
            killer.join();
            return trouble.add("it survived");
          }
          runtime::CallOptions how;
          how.protocol = protocol;
          Status status;
          while (status.ok()) status = call(*here, 300, how);
          expect_failure(trouble, "the call", status, Code::remote_error, {"rank 1", "has ended"});
          expect_failure(trouble, "reset", here->reset(), Code::remote_error, {"rank 1"});
          std::vector<int> left = all_members(here->nranks());
          expect_failure(trouble, "shrink with the dead one", here->shrink(left).status(), Code::remote_error,
                         {"rank 1"});
          left.erase(left.begin() + 1);
          here = expect_shrunk(*here, left, trouble);
          if (here == nullptr) return;
        }
        ++board->done;
        wait_until([&] { return board->done == 2; }, 60'000ms);
      },
      {}, (1u << (nranks - 1)) - 2);
  EXPECT_EQ(problems, "");
  EXPECT_EQ(board->done, 2);
}

TEST(ShrinkOfProcesses, AfterKillsOfForkedRanks) {
  kill_one_after_the_other(false, 4, algorithm::DelayPoint::before_publish, route::Protocol::ll);
  kill_one_after_the_other(false, 5, algorithm::DelayPoint::after_arrival, route::Protocol::simple);
  kill_one_after_the_other(false, 3, algorithm::DelayPoint::after_read, route::Protocol::sentinel);
}
TEST(ShrinkOfProcesses, AfterKillsOfRanksThatMet) {
  kill_one_after_the_other(true, 4, algorithm::DelayPoint::before_publish, route::Protocol::sentinel);
  kill_one_after_the_other(true, 5, algorithm::DelayPoint::after_arrival, route::Protocol::ll);
  kill_one_after_the_other(true, 3, algorithm::DelayPoint::after_read, route::Protocol::simple);
}
#endif

}  // namespace
}  // namespace nearlight::test
