// Waits that end by the time limit or because another thread says so.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "runtime/create.hpp"
#include "tests/support/kinds.hpp"

namespace nearlight::test {
namespace {

using namespace std::chrono_literals;

using Abort = ByKind;
INSTANTIATE_TEST_SUITE_P(Kinds, Abort, testing::ValuesIn(kinds()), kind_name);
using Timeout = ByKind;
INSTANTIATE_TEST_SUITE_P(Kinds, Timeout, testing::ValuesIn(kinds()), kind_name);

// Far above what ending a wait takes, far below the time limit of the calls.
constexpr std::int64_t kAtOnce_ns = 30'000'000'000;

runtime::Options with_timeout(std::chrono::milliseconds timeout) {
  runtime::Options options = patient();
  options.timeout = timeout;
  return options;
}

Status call(runtime::Communicator& comm, std::size_t count = 100,
            std::optional<route::Protocol> protocol = std::nullopt) {
  std::vector<float> data(count, 1.0f);
  runtime::CallOptions options;
  options.protocol = protocol;
  return comm.all_reduce(data.data(), data.data(), count, DataType::f32, ReduceOp::sum, nullptr, options);
}

TEST_P(Abort, EndsAWait) {
  const auto problems = run_communicators(
      GetParam(), 2, with_timeout(600s),
      [](runtime::Communicator& comm, Exchange& exchange, Problems& trouble) {
        if (comm.rank() == 0) {
          // Rank 1 does not come. The other thread cannot know when this one waits, so it tries again with
          // new patience.
          std::thread other([&] {
            std::this_thread::sleep_for(100ms);
            comm.abort();
          });
          const std::int64_t begin_ns = clock_ns();
          const Status status = call(comm);
          if (clock_ns() - begin_ns > kAtOnce_ns) trouble.add("abort took as long as the time limit");
          other.join();
          expect_failure(trouble, "the call", status, Code::aborted, {"rank 0"});
          expect_failure(trouble, "the next call", call(comm), Code::aborted, {"rank 0"});
          expect_failure(trouble, "status", comm.status(), Code::aborted, {});
          if (!comm.fault()) trouble.add("no fault is recorded");
        }
        meet(exchange, trouble);
        if (comm.rank() == 1) {
          if (!comm.status().ok())
            trouble.add("abort of one rank failed another one: %s", comm.status().to_string().c_str());
        }
      });
  EXPECT_EQ(problems, "");
}

TEST_P(Abort, BeforeACallTheCallFailsAtOnce) {
  const auto problems = run_communicators(
      GetParam(), 2, with_timeout(600s), [](runtime::Communicator& comm, Exchange&, Problems& trouble) {
        comm.abort();
        comm.abort();
        expect_failure(trouble, "status", comm.status(), Code::aborted, {"told to stop"});
        const std::int64_t begin_ns = clock_ns();
        for (const auto protocol : {route::Protocol::ll, route::Protocol::simple}) {
          expect_failure(trouble, "call", call(comm, 5000, protocol), Code::aborted, {"told to stop"});
        }
        if (clock_ns() - begin_ns > kAtOnce_ns) trouble.add("a call waited after abort");
      });
  EXPECT_EQ(problems, "");
}

// The first reason stays.
TEST_P(Abort, AfterATimeoutTheTimeoutStays) {
  const auto problems =
      run_communicators(GetParam(), 2, with_timeout(100ms),
                        [](runtime::Communicator& comm, Exchange& exchange, Problems& trouble) {
                          if (comm.rank() == 0) {
                            expect_failure(trouble, "the call", call(comm), Code::timeout, {"rank 1"});
                            comm.abort();
                            expect_failure(trouble, "after abort", comm.status(), Code::timeout, {"rank 1"});
                            expect_failure(trouble, "the next call", call(comm), Code::timeout, {"rank 1"});
                          }
                          meet(exchange, trouble);
                        });
  EXPECT_EQ(problems, "");
}

// Whoever comes first, the call has failed and says so: never ok with an output that nobody wrote.
TEST(AbortRace, WithATimeout) {
  Problems all;
  for (int i = 0; i < 400 / std::min(kSlowDown, 10); ++i) {
    runtime::Options options = with_timeout(1ms);
    options.slots = 32;
    options.chunk_bytes = 256;
    const auto problems = run_communicators(Kind::threads, 2, options,
                                            [i](runtime::Communicator& comm, Exchange&, Problems& trouble) {
                                              if (comm.rank() != 0) return;
                                              std::atomic<bool> waiting = false;
                                              std::thread other([&] {
                                                while (!waiting.load()) std::this_thread::yield();
                                                const std::int64_t begin_ns = clock_ns();
                                                while (clock_ns() - begin_ns < 900'000 + i % 40 * 10'000) {
                                                }
                                                comm.abort();
                                              });
                                              waiting = true;
                                              const Status status = call(comm);
                                              if (status.ok()) trouble.add("the call returned ok");
                                              other.join();
                                            });
    if (!problems.empty()) all.add("run %d:%s", i, problems.c_str());
  }
  EXPECT_EQ(all.text(), "");
}

// Everything that is known about the missing rank is in the record and in the text.
TEST_P(Timeout, TellsWhoWaitedForWhom) {
  constexpr std::int64_t kTimeout_ms = 200;
  for (const auto protocol : {route::Protocol::ll, route::Protocol::simple}) {
    const auto problems = run_communicators(
        GetParam(), 3, with_timeout(std::chrono::milliseconds(kTimeout_ms)),
        [&](runtime::Communicator& comm, Exchange& exchange, Problems& trouble) {
          // Everybody is in time for two calls of one round each.
          for (int i = 0; i < 2; ++i) {
            meet(exchange, trouble);
            const Status status = call(comm, 10, protocol);
            // The limit is short so that the test is; a machine that cannot keep it is told by the text.
            if (!status.ok()) return trouble.add("too slow for this test? %s", status.to_string().c_str());
          }
          if (comm.rank() != 2) {
            const std::int64_t begin_ns = clock_ns();
            const Status status = call(comm, 10, protocol);
            const std::int64_t took_ns = clock_ns() - begin_ns;
            if (took_ns < kTimeout_ms * 900'000)
              trouble.add("gave up after %lld ns", static_cast<long long>(took_ns));
            if (took_ns > kAtOnce_ns)
              trouble.add("gave up only after %lld ns", static_cast<long long>(took_ns));
            expect_failure(trouble, "the call", status, Code::timeout,
                           {"all_reduce", comm.rank() == 0 ? "on rank 0" : "on rank 1", "from rank 2",
                            "200 ms", "epoch 3"});
            const auto fault = comm.fault();
            if (!fault) return trouble.add("no fault is recorded");
            if (fault->rank != comm.rank() || fault->peer != 2)
              trouble.add("fault of rank %d by rank %d", fault->rank, fault->peer);
            if (fault->epoch != 3 || fault->expected != 3 ||
                fault->seen != 1) {  // the bank's last flag is two epochs old
              trouble.add("fault at epoch %u, expected %u, saw %u", fault->epoch, fault->expected,
                          fault->seen);
            }
            if (fault->slot != 0 || fault->region != 0 || fault->time_ns == 0)
              trouble.add("fault at slot %u, region %u", fault->slot, fault->region);
            if (fault->status.text() != status.text()) trouble.add("fault and call say different things");

            const std::int64_t again_ns = clock_ns();
            const Status again = call(comm, 10, protocol);
            if (again.code() != Code::timeout || again.text() != status.text())
              trouble.add("the next call: %s", again.to_string().c_str());
            if (clock_ns() - again_ns > kTimeout_ms * 900'000) {
              // Once more, in case the machine was busy just then: it must be possible without a wait.
              const std::int64_t third_ns = clock_ns();
              static_cast<void>(call(comm, 10, protocol));
              if (clock_ns() - third_ns > kTimeout_ms * 900'000)
                trouble.add("a call waited on a failed communicator");
            }
          }
          meet(exchange, trouble);
          if (comm.rank() == 2) {
            // What the others sent before they gave up is here; after that nothing comes any more.
            static_cast<void>(call(comm, 10, protocol));
            expect_failure(trouble, "the late rank", call(comm, 10, protocol), Code::timeout, {"on rank 2"});
          }
        });
    EXPECT_EQ(problems, "");
  }
}

// After a failure the group can be made anew on the same exchange.
TEST_P(Timeout, ANewCommunicatorWorks) {
  const auto problems = run_ranks(GetParam(), 3, [](Exchange& exchange, Problems& trouble) {
    for (int i = 0; i < 3; ++i) {
      {
        auto comm = runtime::create_host(exchange, with_timeout(20ms));
        if (!comm.ok()) return trouble.add("%s", comm.status().to_string().c_str());
        if (exchange.rank() != i)
          expect_failure(trouble, "a rank is missing", call(**comm), Code::timeout, {});
        meet(exchange, trouble);
      }
      auto comm = runtime::create_host(exchange, patient());
      if (!comm.ok()) return trouble.add("%s", comm.status().to_string().c_str());
      const Status status = call(**comm, 10'000);
      if (!status.ok()) trouble.add("the new one: %s", status.to_string().c_str());
      meet(exchange, trouble);
    }
  });
  EXPECT_EQ(problems, "");
}

}  // namespace
}  // namespace nearlight::test
