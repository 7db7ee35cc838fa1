// Communicators that come back: after time-outs, aborts and lost packets, and those that had not failed.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "runtime/create.hpp"
#include "runtime/recovery.hpp"
#include "tests/mp/recovery.hpp"
#include "tests/support/kinds.hpp"

namespace nearlight::test {
namespace {

using namespace std::chrono_literals;

using Reset = ByKind;
INSTANTIATE_TEST_SUITE_P(Kinds, Reset, testing::ValuesIn(kinds()), kind_name);

void reset(runtime::Communicator& comm, Problems& trouble) {
  if (const Status status = comm.reset(); !status.ok()) trouble.add("reset: %s", status.to_string().c_str());
  if (!comm.status().ok()) trouble.add("after the reset: %s", comm.status().to_string().c_str());
  if (comm.fault()) trouble.add("there is still a fault");
}

// One rank is missing, is late or loses what it sends: what the others have got of it lies in their scratch.
TEST_P(Reset, BringsRightResultsBackAfterATimeout) {
  // 27 of them are every protocol, missing rank and way of missing.
  const int times = GetParam() == Kind::threads ? 54 : 27;
  const auto problems =
      run_communicators(GetParam(), 3, with_timeout(150ms),
                        [times](runtime::Communicator& comm, Exchange& exchange, Problems& trouble) {
                          for (int time = 0; time < times && trouble.text().empty(); ++time) {
                            runtime::CallOptions how;
                            how.protocol = kProtocols[time / 3 % 3];
                            const std::size_t count = time % 2 == 0 ? 20 : 400;
                            const bool odd_one = comm.rank() == time / 9 % 3;
                            if (odd_one && time % 3 == 2) {
                              how.packet_fault = 1;
                              how.faulty_packet = static_cast<std::uint64_t>(time % 5);
                            }
                            Status status;
                            if (!odd_one || time % 3 == 2) status = call(comm, count, how);
                            meet(exchange, trouble);
                            // It sends what nobody waits for any more.
                            if (odd_one && time % 3 == 1) status = call(comm, count, how);
                            if (!odd_one && time % 3 != 2)
                              expect_failure(trouble, "the call", status, Code::timeout, {});
                            meet(exchange, trouble);
                            reset(comm, trouble);
                            expect_right_results(comm, trouble);
                          }
                        });
  EXPECT_EQ(problems, "");
}

TEST_P(Reset, NamesWhoDoesNotComeAndWorksWhenItDoes) {
  const Shared<std::atomic<int>> failed;
  const auto problems = run_communicators(
      GetParam(), 3, with_timeout(60s),
      [&](runtime::Communicator& comm, Exchange& exchange, Problems& trouble) {
        expect_right_results(comm, trouble);
        meet(exchange, trouble);
        if (comm.rank() != 2) {
          expect_failure(trouble, "reset", comm.reset(80ms), Code::timeout, {"rank(s)", "2"});
          expect_failure(trouble, "status", comm.status(), Code::aborted, {"reset", "not been completed"});
          expect_failure(trouble, "the next call", call(comm), Code::aborted, {"reset"});
          ++*failed;
        }
        wait_until([&] { return *failed == 2; }, 60'000ms);
        reset(comm, trouble);
        expect_right_results(comm, trouble);
        meet(exchange, trouble);
      });
  EXPECT_EQ(problems, "");
}

// Nothing has failed, and nothing is lost.
TEST_P(Reset, OfAHealthyCommunicator) {
  for (const int nranks : {1, 2, 4, 8}) {
    runtime::Options options = with_timeout(60s);
    const auto problems = run_communicators(GetParam(), nranks, options,
                                            [](runtime::Communicator& comm, Exchange&, Problems& trouble) {
                                              for (int time = 0; time < 5; ++time) {
                                                expect_right_results(comm, trouble);
                                                reset(comm, trouble);
                                                reset(comm, trouble);
                                              }
                                              expect_right_results(comm, trouble);
                                            });
    EXPECT_EQ(problems, "") << nranks << " ranks";
  }
}

// One was told to stop, one waited in vain for it, one does not know of anything.
TEST_P(Reset, OfRanksWithReasonsOfTheirOwn) {
  const auto problems = run_communicators(
      GetParam(), 3, with_timeout(150ms),
      [](runtime::Communicator& comm, Exchange& exchange, Problems& trouble) {
        for (int time = 0; time < 10 && trouble.text().empty(); ++time) {
          const int role = (comm.rank() + time) % 3;
          if (role == 0) comm.abort();
          if (role == 1)
            expect_failure(trouble, "the call", call(comm), Code::timeout, {"nothing from rank"});
          if (role == 2 && !comm.status().ok()) trouble.add("it has failed");
          meet(exchange, trouble);
          reset(comm, trouble);
          expect_right_results(comm, trouble);
        }
      });
  EXPECT_EQ(problems, "");
}

// Numbers of epochs far apart, on the same rank and near their end.
TEST_P(Reset, GoesOnWithAnEpochThatNobodyHasHad) {
  EXPECT_GT(runtime::epoch_after(0), 0u);
  EXPECT_GT(runtime::epoch_after(1000), 1000u + 1);
  EXPECT_LT(runtime::epoch_after(0xfffffff0u), 100u);
  EXPECT_GE(runtime::epoch_after(0xffffffffu), 2u);
  runtime::Options options = with_timeout(60s);
  options.initial_epoch = 0xffffffe0u;
  const auto problems = run_communicators(GetParam(), 2, options,
                                          [](runtime::Communicator& comm, Exchange&, Problems& trouble) {
                                            for (int time = 0; time < 4; ++time) {
                                              expect_right_results(comm, trouble);
                                              reset(comm, trouble);
                                            }
                                          });
  EXPECT_EQ(problems, "");
}

TEST_P(Reset, IsEndedByAbort) {
  const auto problems =
      run_communicators(GetParam(), 2, with_timeout(60s),
                        [](runtime::Communicator& comm, Exchange& exchange, Problems& trouble) {
                          if (comm.rank() == 0) {
                            std::thread other([&] {
                              std::this_thread::sleep_for(50ms);
                              comm.abort();
                            });
                            expect_failure(trouble, "reset", comm.reset(), Code::aborted, {"told to stop"});
                            other.join();
                            if (comm.status().ok()) trouble.add("it has not failed");
                          } else {
                            std::this_thread::sleep_for(100ms);
                            static_cast<void>(comm.reset());
                          }
                          meet(exchange, trouble);
                          reset(comm, trouble);
                          expect_right_results(comm, trouble);
                        });
  EXPECT_EQ(problems, "");
}

// In check mode a rank may be waiting for the others' calls.
TEST_P(Reset, EndsTheComparisonOfCalls) {
  runtime::Options options = with_timeout(60s);
  options.check = true;
  const auto problems = run_communicators(
      GetParam(), 3, options, [](runtime::Communicator& comm, Exchange&, Problems& trouble) {
        for (int time = 0; time < 3; ++time) {
          if (comm.rank() == time) {
            std::this_thread::sleep_for(20ms);
          } else {
            expect_failure(trouble, "the call", call(comm), Code::remote_error, {"starts over"});
          }
          reset(comm, trouble);
          expect_right_results(comm, trouble);
        }
      });
  EXPECT_EQ(problems, "");
}

TEST_P(Reset, RefusesALimitThatIsNone) {
  const auto problems = run_communicators(
      GetParam(), 2, with_timeout(60s),
      [](runtime::Communicator& comm, Exchange& exchange, Problems& trouble) {
        expect_failure(trouble, "reset", comm.reset(0ms), Code::invalid_argument, {"limit", "0 ms"});
        expect_failure(trouble, "reset", comm.reset(-5ms), Code::invalid_argument, {"limit"});
        meet(exchange, trouble);
        expect_right_results(comm, trouble);  // as it was
      });
  EXPECT_EQ(problems, "");
}

#if !defined(__SANITIZE_THREAD__)
TEST(ResetOfProcesses, NamesTheOneThatEnded) {
  const Shared<std::atomic<int>> there;
  const auto problems = run_ranks(
      Kind::processes, 3,
      [&](Exchange& exchange, Problems& trouble) {
        auto comm = runtime::create_host(exchange, with_timeout(60s));
        if (!comm.ok()) return trouble.add("%s", comm.status().to_string().c_str());
        expect_right_results(**comm, trouble);
        meet(exchange, trouble);
        ++*there;
        if (exchange.rank() == 1) return std::this_thread::sleep_for(60s);
        const std::int64_t begin_ns = clock_ns();
        for (int time = 0; time < 2; ++time)
          expect_failure(trouble, "reset", (*comm)->reset(), Code::remote_error, {"rank 1"});
        if (clock_ns() - begin_ns > 30'000'000'000) trouble.add("noticed late");
        ++*there;
        wait_until([&] { return *there == 5; }, 60'000ms);
      },
      {.on_started =
           [&](std::span<const pid_t> pids) {
             wait_until([&] { return *there == 3; }, 60'000ms);
             ::kill(pids[1], SIGKILL);
           }},
      1u << 1);
  EXPECT_EQ(problems, "");
}
#endif

}  // namespace
}  // namespace nearlight::test
