// What a failure's text says of the rank that was missed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "bootstrap/in_process.hpp"
#include "runtime/create.hpp"
#include "tests/support/kinds.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::runtime {
namespace {

using test::Kind;
using test::Problems;

Options short_limit() {
  Options options = test::patient();
  options.timeout = std::chrono::milliseconds(1000 * test::kPatience);
  return options;
}

Status sum(Communicator& comm) {
  float value = 1;
  return comm.all_reduce(&value, &value, 1, DataType::f32, ReduceOp::sum, nullptr);
}

class RankHealth : public testing::TestWithParam<Kind> {};

TEST_P(RankHealth, AMissedRankIsSaidToBeBetweenCalls) {
  const auto problems = test::run_communicators(
      GetParam(), 2, short_limit(), [](Communicator& comm, Exchange& exchange, Problems& trouble) {
        if (comm.rank() == 0) {
          test::expect_failure(trouble, "the first", sum(comm), Code::timeout, {"; rank 1 has made no call"});
          test::meet(exchange, trouble);
          test::meet(exchange, trouble);
          // By now rank 1 would say something else.
          test::expect_failure(trouble, "later", comm.status(), Code::timeout, {"; rank 1 has made no call"});
        } else {
          test::meet(exchange, trouble);
          // What rank 0 has sent is there, so it goes well.
          if (const Status status = sum(comm); !status.ok()) trouble.add("%s", status.to_string().c_str());
          test::meet(exchange, trouble);
        }
        test::meet(exchange, trouble);
        if (const Status status = comm.reset(); !status.ok()) trouble.add("%s", status.to_string().c_str());
        for (int i = 0; i < 3; ++i) {
          if (const Status status = sum(comm); !status.ok()) trouble.add("%s", status.to_string().c_str());
        }
        test::meet(exchange, trouble);
        const char* const calls = "; rank 1 has made its call 4 (all_reduce), and none since, epoch ";
        if (comm.rank() == 0) test::expect_failure(trouble, "the fourth", sum(comm), Code::timeout, {calls});
        test::meet(exchange, trouble);
      });
  EXPECT_EQ(problems, "");
}

// Rank 0 waits for rank 1, which waits for rank 2, which is away: 1 gives up first and tells the others so.
TEST_P(RankHealth, AMissedRankThatHasFailedSaysWhomItMissed) {
  const auto problems = test::run_communicators(
      GetParam(), 3, short_limit(), [](Communicator& comm, Exchange& exchange, Problems& trouble) {
        if (comm.rank() == 1)
          test::expect_failure(trouble, "rank 1", sum(comm), Code::timeout, {"nothing from rank"});
        test::meet(exchange, trouble);
        if (comm.rank() == 0) {
          const Status status = sum(comm);
          // It has what 1 had sent before it gave up, and misses 2; or it looks at 1's words in the dump.
          if (status.text().find("rank 2 has made no call") == std::string::npos)
            trouble.add("%s", status.to_string().c_str());
          const std::string dump = comm.dump();
          if (dump.find("rank 1 has failed (timeout: it missed rank ") == std::string::npos ||
              dump.find("); it has made its call 1 (all_reduce)") == std::string::npos)
            trouble.add("%s", dump.c_str());
        }
        test::meet(exchange, trouble);
      });
  EXPECT_EQ(problems, "");
}

INSTANTIATE_TEST_SUITE_P(Of, RankHealth, testing::ValuesIn(test::kinds()), test::kind_name);

TEST(RankHealthAtTheEnd, OneThatHasEndedItsCommunicatorIsSaidTo) {
  auto exchanges = bootstrap::make_in_process_group(2);
  std::unique_ptr<Communicator> comms[2];
  std::thread other([&] {
    auto created = create_host(std::move(exchanges[1]), short_limit());
    if (created.ok()) comms[1] = std::move(*created);
  });
  auto created = create_host(std::move(exchanges[0]), short_limit());
  other.join();
  ASSERT_TRUE(created.ok() && comms[1] != nullptr);
  comms[0] = std::move(*created);
  EXPECT_THAT(comms[0]->dump(), testing::HasSubstr("rank 1 has made no call\n"));
  comms[1].reset();
  EXPECT_THAT(sum(*comms[0]).text(), testing::HasSubstr("; rank 1 has ended its communicator"));
}

}  // namespace
}  // namespace nearlight::runtime
