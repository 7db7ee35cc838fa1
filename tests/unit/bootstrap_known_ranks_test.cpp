// Ranks that know each other by an exchange that carries no descriptors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/host_place.hpp"
#include "bootstrap/in_process.hpp"
#include "bootstrap/known_ranks.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight {
namespace {

using std::chrono::seconds;
using test::Problems;
using testing::HasSubstr;

Deadline patience() { return Deadline::after(seconds(60)); }

// As NCCL's: no descriptors, no processes. `alter` may change what this rank tells the others.
class Bare final : public Exchange {
 public:
  explicit Bare(Exchange& real, std::function<void(std::span<std::byte>)> alter = {})
      : real_(real), alter_(std::move(alter)) {}
  int rank() const override { return real_.rank(); }
  int nranks() const override { return real_.nranks(); }
  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Deadline deadline) override {
    std::vector<std::byte> told(mine.begin(), mine.end());
    if (alter_) alter_(told);
    return real_.all_gather(told, all, deadline);
  }
  Status barrier(Deadline deadline) override { return real_.barrier(deadline); }
  Result<UniqueFd> share_fd(int, int, Deadline) override { return failure(Code::unsupported, "share_fd"); }
  bool same_process() const override { return false; }
  std::vector<pid_t> processes() const override { return {}; }

 private:
  Exchange& real_;
  std::function<void(std::span<std::byte>)> alter_;
};

class KnownRanks : public testing::TestWithParam<std::pair<test::Kind, int>> {};

TEST_P(KnownRanks, MeetOnceMore) {
  const auto body = [](Exchange& real, Problems& problems) {
    Bare known(real);
    // Twice: nothing of the first meeting is in the way of the second.
    for (int turn = 0; turn < 2; ++turn) {
      auto met = bootstrap::meet_known_ranks(known, patience());
      if (!met.ok()) return problems.add("meet_known_ranks: %s", met.status().to_string().c_str());
      if ((*met)->rank() != real.rank() || (*met)->nranks() != real.nranks())
        problems.add("the ranks are others");
      const auto all = gather_values(**met, real.rank() * 3, patience());
      for (int rank = 0; all.ok() && rank < real.nranks(); ++rank) {
        if ((*all)[static_cast<std::size_t>(rank)] != rank * 3) problems.add("gathered something else");
      }
      if (!all.ok()) problems.add("gather: %s", all.status().to_string().c_str());
      // What the first exchange could not.
      const UniqueFd own(real.rank() == 0 ? ::dup(2) : -1);
      const auto shared = (*met)->share_fd(own.get(), 0, patience());
      if (!shared.ok()) problems.add("share_fd: %s", shared.status().to_string().c_str());
      if (static_cast<int>((*met)->processes().size()) != real.nranks()) problems.add("no processes known");
    }
  };
  EXPECT_EQ(test::run_ranks(GetParam().first, GetParam().second, body), "");
}
INSTANTIATE_TEST_SUITE_P(Every, KnownRanks,
                         testing::Values(std::pair(test::Kind::threads, 1), std::pair(test::Kind::threads, 2),
                                         std::pair(test::Kind::threads, 5),
                                         std::pair(test::Kind::processes, 3)),
                         [](const auto& one) {
                           return std::string(test::name_of(one.param.first)) + "_" +
                                  std::to_string(one.param.second);
                         });

// Several groups of one process and user at once: each has a key of its own.
TEST(KnownRanksAtOnce, GroupsDoNotMeetEachOther) {
  constexpr int kGroups = 4;
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  std::vector<std::vector<std::unique_ptr<Exchange>>> groups;
  for (int group = 0; group < kGroups; ++group) groups.push_back(bootstrap::make_in_process_group(2));
  for (int group = 0; group < kGroups; ++group) {
    for (auto& real : groups[static_cast<std::size_t>(group)]) {
      threads.emplace_back([group, &real, &right] {
        Bare known(*real);
        auto met = bootstrap::meet_known_ranks(known, patience());
        if (!met.ok()) return;
        const auto all = gather_values(**met, group, patience());
        if (all.ok() && (*all)[0] == group && (*all)[1] == group) ++right;
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 2 * kGroups);
}

// A rank that says it is on another host: all fail at once, with both named, and nobody waits for the other.
TEST(KnownRanksElsewhere, AllAreToldWhoCannotMeet) {
  const auto body = [](Exchange& real, Problems& problems) {
    const auto lie = [](std::span<std::byte> told) {
      // The place comes first in what is told; its boot is its first field. A verdict is not as long.
      if (told.size() == sizeof(HostPlace) + 16) told[0] = std::byte{'?'};
    };
    Bare known(real, real.rank() == 2 ? lie : std::function<void(std::span<std::byte>)>());
    const auto met = bootstrap::meet_known_ranks(known, patience());
    test::expect_failure(problems, "meet_known_ranks", met.status(), Code::unsupported,
                         {"rank 0", "rank 2", "one host"});
  };
  EXPECT_EQ(test::run_ranks(test::Kind::threads, 3, body), "");
}

TEST(HostPlaceOf, ProcessesOfOneHostMeetAndOthersDoNot) {
  const HostPlace here = this_host_place();
  EXPECT_EQ(here.pid, ::getpid());
  EXPECT_TRUE(here.can_meet(here));
  EXPECT_TRUE(here.same_numbers(here));
  HostPlace other = here;
  other.pid += 1;
  EXPECT_TRUE(here.can_meet(other));
  other = here;
  other.network_namespace += 1;
  EXPECT_FALSE(here.can_meet(other));
  EXPECT_TRUE(here.same_numbers(other));
  other = here;
  other.user += 1;
  EXPECT_FALSE(here.can_meet(other));
  other = here;
  other.pid_namespace += 1;
  EXPECT_FALSE(here.can_meet(other));
  EXPECT_FALSE(here.same_numbers(other));
  other = here;
  other.boot[3] = static_cast<char>(other.boot[3] + 1);
  EXPECT_FALSE(here.can_meet(other));
  // What is not known equals nothing, not even itself.
  other = here;
  other.network_namespace = 0;
  EXPECT_FALSE(other.can_meet(other));
  other = {};
  EXPECT_FALSE(other.same_numbers(other));
}

}  // namespace
}  // namespace nearlight
