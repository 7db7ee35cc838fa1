// Processes that are killed or stopped in the middle of a collective.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <thread>

#include "algorithm/one_shot.hpp"
#include "runtime/create.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::test {
namespace {

using namespace std::chrono_literals;
using algorithm::DelayPoint;

// Far above what it takes, far below the time limits it must beat.
constexpr auto kSoon = 60s;

struct Board {
  std::atomic<int> there;               // ranks that are about to make the call in question
  std::atomic<int> reported;            // ranks that have told what they saw
  std::atomic<bool> released;           // the stopped rank runs again
  std::atomic<bool> over;               // the stopped rank has ended its calls
  std::atomic<std::int64_t> struck_ns;  // when the signal was sent
};

Status call(runtime::Communicator& comm, std::size_t count, const runtime::CallOptions& options = {}) {
  std::vector<float> data(count, 1.0f);
  return comm.all_reduce(data.data(), data.data(), count, DataType::f32, ReduceOp::sum, nullptr, options);
}

// Calls until one fails, but not for ever.
Status call_until_failure(runtime::Communicator& comm, const std::function<Status(int)>& one) {
  const Deadline deadline = Deadline::after(2 * kSoon);
  for (int i = 0; comm.rank() >= 0 && !deadline.passed(); ++i) {
    Status status = one(i);
    if (!status.ok()) return status;
  }
  return {};
}

bool is_stopped(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  const auto after_name = text.rfind(") ");
  return after_name != std::string::npos && text.compare(after_name + 2, 1, "T") == 0;
}

struct Kill {
  int nranks;
  int victim;
  route::Protocol protocol;
  DelayPoint point;  // where the victim is when it is killed; none: somewhere
  std::size_t count;
};

void run_kill(const Kill& kill) {
  SCOPED_TRACE(std::string(algorithm::name_of(kill.protocol)) + ", rank " + std::to_string(kill.victim) +
               " of " + std::to_string(kill.nranks) + ", point " +
               std::to_string(static_cast<int>(kill.point)) + ", " + std::to_string(kill.count) +
               " elements");
  const Shared<Board> board;
  runtime::Options options = patient();
  options.timeout = 600s;
  options.slots = 32;
  options.chunk_bytes = 256;
  const std::string victim = "rank " + std::to_string(kill.victim);
  const auto problems = run_ranks(
      Kind::processes, kill.nranks,
      [&](Exchange& exchange, Problems& trouble) {
        auto created = runtime::create_host(exchange, options);
        if (!created.ok()) return trouble.add("%s", created.status().to_string().c_str());
        runtime::Communicator& comm = **created;
        runtime::CallOptions how;
        how.protocol = kill.protocol;
        for (int i = 0; i < 20; ++i) {
          const Status status = call(comm, kill.count, how);
          if (!status.ok()) return trouble.add("before the kill: %s", status.to_string().c_str());
        }
        ++board->there;
        if (comm.rank() == kill.victim) {
          if (kill.point != DelayPoint::none) {
            how.delay_point = static_cast<std::uint32_t>(kill.point);
            how.delay_ns = 300'000'000'000;
          }
          static_cast<void>(call_until_failure(comm, [&](int) { return call(comm, kill.count, how); }));
          return trouble.add("the victim survived");
        }
        const Status status = call_until_failure(comm, [&](int) { return call(comm, kill.count, how); });
        const std::int64_t took_ns = clock_ns() - board->struck_ns;
        expect_failure(trouble, "the call", status, Code::remote_error, {victim, "has ended"});
        if (took_ns > std::chrono::nanoseconds(kSoon).count())
          trouble.add("noticed only after %lld ns", static_cast<long long>(took_ns));
        expect_failure(trouble, "status", comm.status(), Code::remote_error, {victim});
        expect_failure(trouble, "the next call", call(comm, 3, {}), Code::remote_error, {victim});
        const auto fault = comm.fault();
        if (!fault || fault->peer != kill.victim) trouble.add("the record does not name the victim");
        // Nobody leaves before all have seen it: a rank that ends is noticed, too.
        ++board->reported;
        wait_until([&] { return board->reported == kill.nranks - 1; }, kSoon);
      },
      {.on_started =
           [&](std::span<const pid_t> pids) {
             wait_until([&] { return board->there == kill.nranks; }, kSoon);
             std::this_thread::sleep_for(20ms);
             board->struck_ns = clock_ns();
             ::kill(pids[static_cast<std::size_t>(kill.victim)], SIGKILL);
           }},
      1u << kill.victim);
  EXPECT_EQ(problems, "");
  EXPECT_EQ(board->reported, kill.nranks - 1);
}

TEST(KilledRank, IsNamedWhereverItWas) {
  for (const route::Protocol protocol : {route::Protocol::ll, route::Protocol::simple}) {
    for (const DelayPoint point :
         {DelayPoint::before_publish, DelayPoint::after_arrival, DelayPoint::after_read}) {
      run_kill({4, 2, protocol, point, 20});
    }
    run_kill({3, 0, protocol, DelayPoint::after_arrival, 700});  // between two rounds of a message
  }
}

TEST(KilledRank, IsNamedAtAnyMoment) {
  for (int victim = 0; victim < 3; ++victim) {
    run_kill(
        {3, victim, victim == 1 ? route::Protocol::simple : route::Protocol::ll, DelayPoint::none, 1000});
  }
  run_kill({8, 7, route::Protocol::simple, DelayPoint::none, 5000});
  run_kill({2, 1, route::Protocol::ll, DelayPoint::none, 5});
}

// A rank that ends of itself is noticed as well.
TEST(EndedRank, IsNamed) {
  const Shared<Board> board;
  runtime::Options options = patient();
  options.timeout = 600s;
  const auto problems = run_ranks(Kind::processes, 3, [&](Exchange& exchange, Problems& trouble) {
    auto comm = runtime::create_host(exchange, options);
    if (!comm.ok()) return trouble.add("%s", comm.status().to_string().c_str());
    const Status status = call(**comm, 10);
    if (!status.ok()) return trouble.add("%s", status.to_string().c_str());
    if (exchange.rank() == 1) {
      // The others have got everything of this call; the next they make without this rank.
      wait_until([&] { return board->there == 2; }, kSoon);
      return;
    }
    ++board->there;
    expect_failure(trouble, "the next call", call(**comm, 10), Code::remote_error, {"rank 1", "has ended"});
    ++board->reported;
    wait_until([&] { return board->reported == 2; }, kSoon);
  });
  EXPECT_EQ(problems, "");
}

// Who ends right after its last call has spoilt nobody's result: everything it owed was sent before.
TEST(EndedRank, HasNotSpoiltItsLastCall) {
  for (int group = 0; group < 60 / kSlowDown; ++group) {
    const auto problems = run_ranks(Kind::processes, 3, [&](Exchange& exchange, Problems& trouble) {
      auto comm = runtime::create_host(exchange, patient());
      if (!comm.ok()) return trouble.add("%s", comm.status().to_string().c_str());
      for (std::size_t i = 0; i < 4; ++i) {
        runtime::CallOptions how;
        how.protocol = i % 2 == 0 ? route::Protocol::ll : route::Protocol::simple;
        std::vector<std::int32_t> data(20 + i, exchange.rank());
        const Status status = (*comm)->all_reduce(data.data(), data.data(), data.size(), DataType::i32,
                                                  ReduceOp::sum, nullptr, how);
        // Nobody waits for anybody before it ends; only after the last call may the communicator know of
        // that.
        if (!status.ok()) trouble.add("call %zu: %s", i, status.to_string().c_str());
        if (status.ok() && data[0] != 3) trouble.add("call %zu: %d", i, data[0]);
      }
    });
    ASSERT_EQ(problems, "") << "group " << group;
  }
}

// The others run into their time limit and say for whom they waited; the stopped rank, once it runs again,
// ends as well.
TEST(StoppedRank, IsNamedByTheTimeLimit) {
  constexpr int kRanks = 3, kVictim = 1;
  constexpr std::int64_t kTimeout_ms = 400;
  for (const route::Protocol protocol : {route::Protocol::ll, route::Protocol::simple}) {
    const Shared<Board> board;
    runtime::Options options = patient();
    // The limit of a wait counts for the calls before the stop as well: those are made with patience by a
    // communicator of their own.
    options.timeout = std::chrono::milliseconds(kTimeout_ms);
    const auto problems = run_ranks(
        Kind::processes, kRanks,
        [&](Exchange& exchange, Problems& trouble) {
          auto created = runtime::create_host(exchange, options);
          if (!created.ok()) return trouble.add("%s", created.status().to_string().c_str());
          runtime::Communicator& comm = **created;
          runtime::CallOptions how;
          how.protocol = protocol;
          meet(exchange, trouble);
          if (exchange.rank() == kVictim) {
            ++board->there;
            // Stopped while it is held up in front of its first store, so that nobody has anything of this
            // call from it.
            how.delay_point = static_cast<std::uint32_t>(DelayPoint::before_publish);
            how.delay_ns = 2'000'000'000;
            Status status = call(comm, 50, how);
            how.delay_ns = 0;
            if (status.ok()) status = call_until_failure(comm, [&](int) { return call(comm, 50, how); });
            if (!board->released) trouble.add("it was never stopped");
            if (status.code() != Code::timeout && status.code() != Code::remote_error) {
              trouble.add("the stopped rank: %s", status.to_string().c_str());
            }
            board->over = true;
            return;
          }
          if (!wait_until([&] { return board->struck_ns != 0; }, kSoon))
            return trouble.add("nobody was stopped");
          const std::int64_t begin_ns = clock_ns();
          const Status status = call_until_failure(comm, [&](int) { return call(comm, 50, how); });
          const std::int64_t took_ns = clock_ns() - begin_ns;
          if (board->released) trouble.add("the stopped rank ran before the call failed");
          if (took_ns < kTimeout_ms * 900'000)
            trouble.add("gave up after %lld ns", static_cast<long long>(took_ns));
          if (took_ns > std::chrono::nanoseconds(kSoon).count())
            trouble.add("gave up only after %lld ns", static_cast<long long>(took_ns));
          const std::string self = "on rank " + std::to_string(comm.rank());
          expect_failure(trouble, "the call", status, Code::timeout,
                         {self, "from rank 1", "400 ms", "epoch 1"});
          const auto fault = comm.fault();
          if (!fault || fault->peer != kVictim || fault->rank != comm.rank() || fault->epoch != 1)
            trouble.add("the record is wrong");
          // At once: the best of three, should the machine be busy.
          std::int64_t best_ns = std::numeric_limits<std::int64_t>::max();
          for (int i = 0; i < 3; ++i) {
            const std::int64_t again_ns = clock_ns();
            expect_failure(trouble, "the next call", call(comm, 50, how), Code::timeout, {"rank 1"});
            best_ns = std::min(best_ns, clock_ns() - again_ns);
          }
          if (best_ns > kTimeout_ms * 500'000)
            trouble.add("later calls take %lld ns", static_cast<long long>(best_ns));
          ++board->reported;
          wait_until([&] { return board->over.load(); }, kSoon);
        },
        {.on_started = [&](std::span<const pid_t> pids) {
          wait_until([&] { return board->there == 1; }, kSoon);
          std::this_thread::sleep_for(50ms);
          ::kill(pids[kVictim], SIGSTOP);
          wait_until([&] { return is_stopped(pids[kVictim]); }, kSoon);
          board->struck_ns = clock_ns();
          wait_until([&] { return board->reported == kRanks - 1; }, kSoon);
          board->released = true;
          ::kill(pids[kVictim], SIGCONT);
        }});
    EXPECT_EQ(problems, "") << algorithm::name_of(protocol);
    EXPECT_EQ(board->reported, kRanks - 1);
    EXPECT_TRUE(board->over);
  }
}

// Stopped anywhere, for less than the time limit: nobody notices.
TEST(StoppedRank, ThatRunsAgainInTimeIsForgiven) {
  constexpr int kRanks = 3;
  struct Stops {
    std::atomic<bool> done;
    std::atomic<int> calls;
  };
  const Shared<Stops> stops;
  const auto problems =
      run_ranks(Kind::processes, kRanks,
                [&](Exchange& exchange, Problems& trouble) {
                  auto comm = runtime::create_host(exchange, patient());
                  if (!comm.ok()) return trouble.add("%s", comm.status().to_string().c_str());
                  for (bool last = false; !last;) {
                    // All ranks must agree when to stop: the sum says how many want to.
                    std::vector<std::int32_t> data(3000, exchange.rank() == 0 && stops->done ? 1 : 0);
                    const std::vector<std::int32_t> send = data;
                    const Status status = (*comm)->all_reduce(send.data(), data.data(), data.size(),
                                                              DataType::i32, ReduceOp::sum, nullptr);
                    if (!status.ok()) return trouble.add("%s", status.to_string().c_str());
                    for (const std::int32_t value : data) {
                      if (value != data[0]) return trouble.add("a wrong sum");
                    }
                    last = data[0] != 0;
                    if (exchange.rank() == 0) ++stops->calls;
                  }
                  meet(exchange, trouble);
                },
                {.on_started = [&](std::span<const pid_t> pids) {
                  for (std::size_t i = 0; i < 12; ++i) {
                    const int before = stops->calls;
                    wait_until([&] { return stops->calls > before + 50; }, kSoon);
                    ::kill(pids[i % kRanks], SIGSTOP);
                    std::this_thread::sleep_for(5ms);
                    ::kill(pids[i % kRanks], SIGCONT);
                  }
                  stops->done = true;
                }});
  EXPECT_EQ(problems, "");
  EXPECT_GT(stops->calls, 12 * 50);
}

// Killed before it creates its communicator: creation fails everywhere, with a reason.
TEST(KilledRank, DuringCreation) {
  const Shared<Board> board;
  const auto problems = run_ranks(
      Kind::processes, 3,
      [&](Exchange& exchange, Problems& trouble) {
        if (exchange.rank() == 1) {
          ++board->there;
          std::this_thread::sleep_for(2 * kSoon);
          return;
        }
        const std::int64_t begin_ns = clock_ns();
        auto comm = runtime::create_host(exchange, patient());
        if (comm.ok()) return trouble.add("created with a rank missing");
        expect_failure(trouble, "creation", comm.status(), Code::remote_error, {"rank 1"});
        if (clock_ns() - begin_ns > std::chrono::nanoseconds(kSoon).count()) trouble.add("noticed late");
      },
      {.on_started =
           [&](std::span<const pid_t> pids) {
             wait_until([&] { return board->there == 1; }, kSoon);
             ::kill(pids[1], SIGKILL);
           }},
      1u << 1);
  EXPECT_EQ(problems, "");
}

}  // namespace
}  // namespace nearlight::test
