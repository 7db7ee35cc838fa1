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
