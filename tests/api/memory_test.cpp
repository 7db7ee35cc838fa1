// The calls that are made again and again allocate nothing; a call that gets no memory says so and leaves
// nothing behind.
#include <dirent.h>

#include <cstring>

#include "tests/api/allocations.hpp"
#include "tests/api/api_support.hpp"

namespace nearlight::test {
namespace {

TEST(Allocations, AreCountedAndFailOnPurpose) {
  const std::uint64_t before = allocations_of_this_thread();
  {
    const std::unique_ptr<std::vector<int>> one(new std::vector<int>(100));
    EXPECT_EQ(allocations_of_this_thread(), before + 2);
  }
  const FailingAllocation failing(1);
  void* const first = std::malloc(10);
  void* const second = std::malloc(10);
  void* const third = std::malloc(10);
  EXPECT_NE(first, nullptr);
  EXPECT_EQ(second, nullptr);
  EXPECT_NE(third, nullptr);
  EXPECT_TRUE(failing.happened());
  std::free(first);
  std::free(third);
}

TEST(HotPath, AllReduceAllocatesNothing) {
  for (const int nranks : {1, 2, 3}) {
    const HostGroup group(nranks);
    group.run([](int, nearlightComm_t comm) {
      std::vector<float> send(100'000, 1.0f), recv(100'000);
      const auto all_sizes = [&] {
        for (const std::size_t count : {0, 1, 8, 1000, 100'000}) {
          for (const auto op : {nearlightSum, nearlightMax}) {
            ASSERT_EQ(
                nearlightAllReduce(send.data(), recv.data(), count, nearlightFloat32, op, comm, nullptr),
                nearlightSuccess);
          }
        }
      };
      const std::uint64_t before = allocations_of_this_thread();
      for (int i = 0; i < 20; ++i) all_sizes();
      EXPECT_EQ(allocations_of_this_thread(), before);
    });
  }
}

TEST(HotPath, QuestionsAllocateNothing) {
  const HostGroup group(2);
  const std::uint64_t before = allocations_of_this_thread();
  int number = 0;
  nearlightCommInfo_t info = NEARLIGHT_COMM_INFO_INITIALIZER;
  nearlightCommStatus_t status = NEARLIGHT_COMM_STATUS_INITIALIZER;
  nearlightRoute_t route = NEARLIGHT_ROUTE_INITIALIZER;
  int failures = 0;
  failures += nearlightCommRank(group[0], &number) != nearlightSuccess;
  failures += nearlightCommCount(group[0], &number) != nearlightSuccess;
  failures += nearlightCommGetInfo(group[0], &info) != nearlightSuccess;
  failures += nearlightCommGetStatus(group[0], &status) != nearlightSuccess;
  failures += nearlightExplain(group[0], nearlightCollectiveAllReduce, 64, nearlightFloat32, nearlightSum,
                               &route) != nearlightSuccess;
  EXPECT_EQ(allocations_of_this_thread(), before);
  EXPECT_EQ(failures, 0);
}

int open_descriptors() {
  int count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

// Makes a call fail at each of its allocations in turn, until none is left to fail. `call` gives the result;
// `undo` is for those that succeed.
void fail_at_each_allocation(const char* what, const std::function<nearlightResult_t()>& call,
                             const std::function<void()>& undo) {
  int failures = 0;
  for (std::int64_t n = 0;; ++n) {
    ASSERT_LT(n, 10'000) << what;
    nearlightResult_t result;
    bool happened;
    {
      const FailingAllocation failing(n);
      result = call();
      happened = failing.happened();
    }
    if (result == nearlightSuccess) {
      undo();
    } else {
      ++failures;
      EXPECT_EQ(result, nearlightSystemError)
          << what << ", allocation " << n << ": " << nearlightGetLastError();
      EXPECT_STRNE(nearlightGetLastError(), "") << what;
    }
    // Some allocations may fail without harm, so only the end of them is the end.
    if (!happened) break;
  }
  EXPECT_GT(failures, 3) << what;
}

TEST(ShortOfMemory, CreationSaysSoAndLeavesNothingBehind) {
  for (const int nranks : {1, 2, 4}) {
    std::vector<nearlightComm_t> comms(static_cast<std::size_t>(nranks), nullptr);
    nearlightConfig_t config = NEARLIGHT_CONFIG_INITIALIZER;
    config.slots = 32;
    config.chunk_bytes = 256;
    config.create_timeout_ms = 30'000;
    const auto create = [&] {
      std::fill(comms.begin(), comms.end(), nullptr);
      const nearlightResult_t result = nearlightCommCreateHostGroup(comms.data(), nranks, &config);
      if (result != nearlightSuccess) {
        for (const nearlightComm_t comm : comms) EXPECT_EQ(comm, nullptr);
      }
      return result;
    };
    const auto destroy = [&] {
      for (const nearlightComm_t comm : comms) EXPECT_EQ(nearlightCommDestroy(comm), nearlightSuccess);
    };
    ASSERT_EQ(create(), nearlightSuccess);
    destroy();
    const int before = open_descriptors();
    fail_at_each_allocation("nearlightCommCreateHostGroup", create, destroy);
    EXPECT_EQ(open_descriptors(), before);
    ASSERT_EQ(create(), nearlightSuccess) << nearlightGetLastError();
    destroy();
  }
}

TEST(ShortOfMemory, NoOperatorIsMade) {
  const HostGroup group(1);
  const float factor = 2;
  int failures = 0;
  for (std::int64_t n = 0;; ++n) {
    ASSERT_LT(n, 100);
    nearlightRedOp_t op = nearlightMin;
    nearlightResult_t result;
    bool happened;
    {
      const FailingAllocation failing(n);
      result = nearlightRedOpCreatePreMulSum(&op, &factor, nearlightFloat32, nearlightScalarHostImmediate,
                                             group[0]);
      happened = failing.happened();
    }
    if (result == nearlightSuccess) {
      EXPECT_EQ(nearlightRedOpDestroy(op, group[0]), nearlightSuccess);
    } else {
      ++failures;
      EXPECT_EQ(result, nearlightSystemError) << nearlightGetLastError();
      EXPECT_EQ(op, nearlightMin);
    }
    if (!happened) break;
  }
  EXPECT_GT(failures, 0);
}

// Two communicators of one rank, each of which sends a number to itself in a group.
class GroupShortOfMemory : public testing::Test {
 protected:
  nearlightResult_t post(int which) {
    const nearlightComm_t comm = which < 2 ? first_[0] : second_[0];
    int* const at = &data_[which / 2][which % 2];
    return which % 2 == 0 ? nearlightSend(at, 1, nearlightInt32, 0, comm, nullptr)
                          : nearlightRecv(at, 1, nearlightInt32, 0, comm, nullptr);
  }
  int arrived() const {
    int count = 0;
    for (const auto& pair : data_) count += pair[1] == pair[0] ? 1 : 0;
    return count;
  }

  const HostGroup first_{1}, second_{1};
  int data_[2][2] = {{1, 0}, {2, 0}};  // [communicator][sent, received]
};

// One call of a group has no memory: none of the group is started, also where the others go together.
TEST_F(GroupShortOfMemory, NothingIsStartedWithoutOne) {
  int failures = 0;
  for (int victim = 0; victim < 4; ++victim) {
    // Whatever room an earlier group has left is gone with it.
    ASSERT_EQ(nearlightGroupStart(), nearlightSuccess);
    bool happened = false;
    for (int which = 0; which < 4; ++which) {
      if (which != victim) {
        ASSERT_EQ(post(which), nearlightSuccess) << nearlightGetLastError();
        continue;
      }
      nearlightResult_t result;
      {
        const FailingAllocation failing(0);
        result = post(which);
        happened = failing.happened();
      }
      EXPECT_EQ(result, happened ? nearlightSystemError : nearlightSuccess);
      if (happened) {
        EXPECT_THAT(nearlightGetLastError(), testing::HasSubstr("out of memory"));
      }
    }
    if (happened) {
      ++failures;
      expect_error(nearlightGroupEnd(), nearlightSystemError,
                   {"nearlightGroupEnd", "no memory for a message", "none is started"});
      EXPECT_EQ(arrived(), 0) << "without message " << victim;
    } else {
      ASSERT_EQ(nearlightGroupEnd(), nearlightSuccess) << nearlightGetLastError();
      EXPECT_EQ(arrived(), 2);
    }
    data_[0][1] = data_[1][1] = 0;
  }
  EXPECT_GE(failures, 3);  // a vector that doubles has room for the fourth
  expect_error(nearlightGroupEnd(), nearlightInvalidUsage, {"no group"});
}

// The end of a group: what each communicator has in it is started as a whole or not at all, an error tells
// that one was not, and the thread is out of the group.
TEST_F(GroupShortOfMemory, TheEndStartsAllOfACommunicatorOrNothing) {
  int failures = 0, in_part = 0;
  for (std::int64_t n = 0;; ++n) {
    ASSERT_LT(n, 1000);
    ASSERT_EQ(nearlightGroupStart(), nearlightSuccess);
    for (int which = 0; which < 4; ++which) ASSERT_EQ(post(which), nearlightSuccess);
    nearlightResult_t result;
    bool happened;
    {
      const FailingAllocation failing(n);
      result = nearlightGroupEnd();
      happened = failing.happened();
    }
    if (result == nearlightSuccess) {
      EXPECT_EQ(arrived(), 2) << "allocation " << n;
    } else {
      ++failures;
      EXPECT_EQ(result, nearlightSystemError) << nearlightGetLastError();
      EXPECT_LT(arrived(), 2) << "allocation " << n;
      in_part += arrived() == 1 ? 1 : 0;
    }
    expect_error(nearlightGroupEnd(), nearlightInvalidUsage, {"no group"});
    data_[0][1] = data_[1][1] = 0;
    if (!happened) break;
  }
  EXPECT_GT(failures, 3);
  EXPECT_GT(in_part, 1) << "what one communicator has no memory for keeps the other's from starting";
}

// Each of the threads that creation needs, in turn.
TEST(ShortOfThreads, CreationSaysSoAndLeavesNothingBehind) {
  const int before = open_descriptors();
  for (int n = 0; n < 3; ++n) {
    nearlightComm_t comms[4] = {};
    nearlightConfig_t config = NEARLIGHT_CONFIG_INITIALIZER;
    config.create_timeout_ms = 30'000;
    {
      const FailingThread failing(n);
      expect_error(nearlightCommCreateHostGroup(comms, 4, &config), nearlightSystemError,
                   {"nearlightCommCreateHostGroup", "starting a thread"});
    }
    for (const nearlightComm_t comm : comms) EXPECT_EQ(comm, nullptr);
    EXPECT_EQ(open_descriptors(), before);
  }
  const HostGroup group(4);
}

// A text that cannot be put together is still an error with a text.
TEST(ShortOfMemory, ErrorsAreToldWithoutMemory) {
  const HostGroup group(1);
  float value = 1;
  {
    const FailingAllocation failing(0);
    const nearlightResult_t result =
        nearlightAllReduce(&value, nullptr, 1, nearlightFloat32, nearlightSum, group[0], nullptr);
    EXPECT_TRUE(failing.happened());
    EXPECT_EQ(result, nearlightSystemError);
  }
  EXPECT_STREQ(nearlightGetLastError(), "nearlightAllReduce on rank 0: out of memory");
  EXPECT_EQ(value, 1);
  // The communicator is as before.
  EXPECT_EQ(nearlightAllReduce(&value, &value, 1, nearlightFloat32, nearlightSum, group[0], nullptr),
            nearlightSuccess);
}

}  // namespace
}  // namespace nearlight::test
