// Calls that follow each other closely: fast and slow ranks, buffers used again, sizes that change.
#include <gtest/gtest.h>
#include <sched.h>

#include <cstring>
#include <vector>

#include "algorithm/one_shot.hpp"
#include "tests/mp/sequences.hpp"
#include "tests/support/kinds.hpp"

namespace nearlight::test {
namespace {

using Order = ByKind;
INSTANTIATE_TEST_SUITE_P(Kinds, Order, testing::ValuesIn(kinds()), kind_name);

constexpr auto& kProtocols = algorithm::kProtocols;

TEST_P(Order, AnotherSizeEachCall) {
  EXPECT_EQ(run_random_sizes(GetParam(), 4, 4'000 / kSlowDown, 64 * 1024), "");
}

TEST_P(Order, AnotherSizeEachCallOnEightRanks) {
  EXPECT_EQ(run_random_sizes(GetParam(), 8, 500 / kSlowDown, 64 * 1024), "");
}

// One rank is held up at one point of a call while the others go on with two more calls and other data:
// nothing that it has still to read may be overwritten, and nothing that it has not sent may be taken as
// received.
TEST_P(Order, ARankThatIsHeldUpLosesNothing) {
  using algorithm::DelayPoint;
  constexpr std::uint64_t kDelay_ns = 4'000'000;
  constexpr std::size_t kCalls = 3;
  struct Case {
    int nranks;
    int slow;  // the rank that is held up
    std::size_t count;
  };
  runtime::Options options = patient();
  options.slots = 32;  // 64 floats a round
  options.chunk_bytes = 256;
  options.packets = 16;
  options.lines = 4;
  options.deterministic = false;  // one of the ways needs it; the numbers add up to the same in any order
  for (const Case& one : {Case{2, 0, 16}, Case{2, 1, 16}, Case{2, 1, 300}, Case{4, 2, 64}, Case{3, 0, 130}}) {
    const auto problems = run_communicators(
        GetParam(), one.nranks, options, [&](runtime::Communicator& comm, Exchange&, Problems& trouble) {
          const auto value = [&](int round, std::size_t call, int rank, std::size_t i) {
            return static_cast<float>(static_cast<std::size_t>(round) * 100 + call * 10 + i % 7 +
                                      static_cast<std::size_t>(rank) * 1000);
          };
          int round = 0;  // an odd number of calls each: both buffers are hit
          for (const Way& way : kWays) {
            for (const DelayPoint point :
                 {DelayPoint::before_publish, DelayPoint::after_arrival, DelayPoint::after_read}) {
              for (int repeat = 0; repeat < 2; ++repeat, ++round) {
                std::vector<float> send[kCalls], recv[kCalls];
                for (std::size_t call = 0; call < kCalls; ++call) {
                  send[call].resize(one.count);
                  recv[call].assign(one.count, -1.0f);
                  for (std::size_t i = 0; i < one.count; ++i)
                    send[call][i] = value(round, call, comm.rank(), i);
                }
                for (std::size_t call = 0; call < kCalls; ++call) {
                  runtime::CallOptions how;
                  how.algorithm = way.algorithm;
                  how.protocol = way.protocol;
                  const bool held_up = comm.rank() == one.slow && call == 0;
                  if (held_up) {
                    how.delay_point = static_cast<std::uint32_t>(point);
                    how.delay_ns = kDelay_ns;
                  }
                  const std::int64_t begin_ns = clock_ns();
                  const Status status = comm.all_reduce(send[call].data(), recv[call].data(), one.count,
                                                        DataType::f32, ReduceOp::sum, nullptr, how);
                  if (!status.ok()) return trouble.add("%s", status.to_string().c_str());
                  if (held_up && clock_ns() - begin_ns < static_cast<std::int64_t>(kDelay_ns)) {
                    trouble.add("the rank was not held up");
                  }
                }
                for (std::size_t call = 0; call < kCalls; ++call) {
                  for (std::size_t i = 0; i < one.count; ++i) {
                    float sum = 0;
                    for (int rank = 0; rank < one.nranks; ++rank) sum += value(round, call, rank, i);
                    if (recv[call][i] == sum) continue;
                    trouble.add("%s, point %u, call %zu, element %zu: %g, expected %g",
                                algorithm::name_of(way.protocol), static_cast<unsigned>(point), call, i,
                                static_cast<double>(recv[call][i]), static_cast<double>(sum));
                    break;
                  }
                }
              }
            }
          }
        });
    EXPECT_EQ(problems, "") << one.nranks << " ranks, rank " << one.slow << " slow, " << one.count
                            << " elements";
  }
}

// n + 1 and 2n + 1 calls, where n is a number of buffers that come round: banks, slots, chunks of a message.
TEST_P(Order, BackToBackCalls) {
  runtime::Options options = patient();
  options.slots = 32;
  options.chunk_bytes = 256;
  options.packets = 16;
  options.lines = 4;
  constexpr std::uint64_t kBytes[] = {4, 256, 260, 2048};
  for (const int nranks : {2, 3, 8}) {
    const auto problems = run_communicators(
        GetParam(), nranks, options, [&](runtime::Communicator& comm, Exchange&, Problems& trouble) {
          Caller caller(comm, 4096);
          std::uint64_t number = 0;
          for (const route::Protocol protocol : kProtocols) {
            for (const std::uint64_t bytes : kBytes) {
              for (const int n : {2, kSlowDown == 1 ? 32 : 5}) {
                for (const int calls : {n + 1, 2 * n + 1}) {
                  for (int i = 0; i < calls; ++i) {
                    const Call call{
                        DataType::f32, ReduceOp::sum, bytes / 4, protocol, {Values::pattern, ++number}};
                    caller.run(call, {}, trouble);
                  }
                }
              }
            }
          }
        });
    EXPECT_EQ(problems, "") << nranks << " ranks";
  }
}

// Eight ranks take turns on one core.
TEST_P(Order, MoreRanksThanCores) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &before)) continue;
    CPU_SET(core, &one);
    break;
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const auto problems = run_random_sizes(GetParam(), 8, 300 / std::min(kSlowDown, 10), 4096);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(problems, "");
}

TEST_P(Order, ProtocolsMixedWithARankThatIsLate) {
  for (const int nranks : {2, 3, 5}) {
    EXPECT_EQ(run_mixed_and_late(GetParam(), nranks, 500 / std::min(kSlowDown, 6), 3), "")
        << nranks << " ranks";
  }
}

// The bits of a row do not depend on the message that it comes in, nor on the way the message takes.
TEST_P(Order, ARowIsTheSameInEveryMessage) {
  constexpr std::size_t kRow = 24;  // elements
  constexpr std::size_t kRows[] = {1, 2, 7, 64, 500, 4096 / kSlowDown};
  for (const int nranks : {2, 3, 8}) {
    const auto problems = run_communicators(
        GetParam(), nranks, patient(), [&](runtime::Communicator& comm, Exchange&, Problems& trouble) {
          std::vector<std::uint16_t> first;
          for (const std::size_t rows : kRows) {
            for (int way = -1; way < static_cast<int>(std::size(kWays)); ++way) {
              runtime::CallOptions how;
              // What adds in the order of arrival promises no such thing.
              if (way >= 0 && kWays[way].algorithm == route::Algorithm::two_shot_atomic) continue;
              if (way >= 0) {
                how.algorithm = kWays[way].algorithm;
                how.protocol = kWays[way].protocol;
              }
              // The last row is the one that is looked at; the others differ.
              std::vector<std::uint16_t> send(rows * kRow), recv(rows * kRow);
              const Source noise{Values::numbers, 100 + rows}, row{Values::numbers, 7};
              for (std::size_t i = 0; i < send.size(); ++i) {
                const bool looked_at = i >= (rows - 1) * kRow;
                send[i] = static_cast<std::uint16_t>(input_bits(looked_at ? row : noise, DataType::bf16,
                                                                comm.rank(),
                                                                looked_at ? i - (rows - 1) * kRow : i));
              }
              const Status status = comm.all_reduce(send.data(), recv.data(), send.size(), DataType::bf16,
                                                    ReduceOp::sum, nullptr, how);
              if (!status.ok()) return trouble.add("%s", status.to_string().c_str());
              const std::vector<std::uint16_t> last(recv.end() - kRow, recv.end());
              if (first.empty()) first = last;
              if (last != first) trouble.add("other bits in a message of %zu rows, way %d", rows, way);
            }
          }
        });
    EXPECT_EQ(problems, "") << nranks << " ranks";
  }
}

}  // namespace
}  // namespace nearlight::test
