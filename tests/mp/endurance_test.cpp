// The long forms of what order_test.cpp does in short.
#include <gtest/gtest.h>

#include "tests/mp/sequences.hpp"
#include "tests/support/kinds.hpp"

namespace nearlight::test {
namespace {

using Endurance = ByKind;
INSTANTIATE_TEST_SUITE_P(Kinds, Endurance, testing::ValuesIn(kinds()), kind_name);

TEST_P(Endurance, AnotherSizeEachCallOnFourRanks) {
  EXPECT_EQ(run_random_sizes(GetParam(), 4, 100'000, 64 * 1024), "");
}
TEST_P(Endurance, AnotherSizeEachCallOnEightRanks) {
  EXPECT_EQ(run_random_sizes(GetParam(), 8, 100'000, 32 * 1024), "");
}

TEST_P(Endurance, EveryWayMixedWithARankThatIsLate) {
  for (const int nranks : {2, 3, 8}) {
    EXPECT_EQ(run_mixed_and_late(GetParam(), nranks, 100'000, 5), "") << nranks << " ranks";
  }
}

// A million small calls of both protocols, the value of each checked.
TEST_P(Endurance, AMillionCalls) {
  for (const int nranks : {2, 5, 8}) {
    const int calls = nranks == 2 ? 1'000'000 : 200'000;
    const auto problems = run_communicators(
        GetParam(), nranks, patient(), [&](runtime::Communicator& comm, Exchange&, Problems& trouble) {
          std::int32_t send[8], recv[8];
          const auto ranks = static_cast<std::uint32_t>(nranks);
          for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(calls); ++i) {
            for (std::uint32_t at = 0; at < 8; ++at)
              send[at] = static_cast<std::int32_t>(i * 8 + at + static_cast<std::uint32_t>(comm.rank()));
            runtime::CallOptions how;
            how.protocol = i / 3 % 2 == 0 ? route::Protocol::ll : route::Protocol::simple;
            const Status status = comm.all_reduce(send, recv, 8, DataType::i32, ReduceOp::sum, nullptr, how);
            if (!status.ok()) return trouble.add("call %u: %s", i, status.to_string().c_str());
            for (std::uint32_t at = 0; at < 8; ++at) {
              const std::uint32_t sum = (i * 8 + at) * ranks + ranks * (ranks - 1) / 2;
              if (recv[at] != static_cast<std::int32_t>(sum))
                return trouble.add("call %u: %d at %u", i, recv[at], at);
            }
          }
        });
    EXPECT_EQ(problems, "") << nranks << " ranks";
  }
}

}  // namespace
}  // namespace nearlight::test
