// Meetings of ranks that keep the rules, and of those that come wrong. What an exchange promises once they
// have met is in bootstrap_exchange_test.cpp.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <random>

#include "tests/unit/bootstrap_meeting.hpp"

namespace nearlight::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::fresh_key;

// Every rank gathers a number of the group's; true when all saw all of them.
void expect_together(const std::vector<Joined>& group, int number) {
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    ASSERT_TRUE(group[rank].ok()) << "rank " << rank << ": " << group[rank].status().to_string();
  }
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&, rank] {
      Exchange& exchange = **group[rank];
      EXPECT_EQ(exchange.rank(), static_cast<int>(rank));
      EXPECT_EQ(exchange.nranks(), static_cast<int>(group.size()));
      const auto all = gather_values(exchange, number * 1000 + exchange.rank(), patience());
      ASSERT_TRUE(all.ok()) << all.status().to_string();
      for (std::size_t r = 0; r < group.size(); ++r)
        EXPECT_EQ((*all)[r], number * 1000 + static_cast<int>(r));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<Comer> group_of(int nranks, const std::string& key) {
  std::vector<Comer> comers;
  for (int rank = 0; rank < nranks; ++rank) comers.push_back({{rank, nranks, key}});
  return comers;
}

TEST(Meeting, AnyNumberOfRanks) {
  for (const int nranks : {1, 2, 3, 8, kMaxProcessRanks})
    expect_together(come(group_of(nranks, fresh_key())), 1);
}

TEST(Meeting, WhoeverComesLast) {
  for (int last = 0; last < 3; ++last) {
    auto comers = group_of(3, fresh_key());
    comers[static_cast<std::size_t>(last)].delay = milliseconds(150);
    expect_together(come(comers), last);
  }
}

// Groups of the same ranks one after the other, with no pause and no order between them: each number is only
// ever seen by its own group. A rank may be in the next meeting while another is still leaving the last.
TEST(Meeting, OneAfterTheOtherUnderOneKey) {
  constexpr int kRanks = 3, kMeetings = 50;
  const std::string key = fresh_key();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      std::mt19937 random(static_cast<unsigned>(rank));
      for (int meeting = 0; meeting < kMeetings; ++meeting) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 3 == 0 ? random() % 20'000 : 0));
        const auto exchange = join_process_group({rank, kRanks, key}, patience());
        ASSERT_TRUE(exchange.ok()) << "meeting " << meeting << ": " << exchange.status().to_string();
        const auto numbers = gather_values(**exchange, meeting, patience());
        ASSERT_TRUE(numbers.ok()) << "meeting " << meeting << ": " << numbers.status().to_string();
        for (const int number : *numbers) ASSERT_EQ(number, meeting);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Meeting, OtherKeysAreOtherGroups) {
  const std::string stem(190, 'k');  // so long that the name of the socket holds a hash
  std::vector<std::vector<Joined>> groups(4);
  std::vector<std::thread> threads;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    threads.emplace_back([&, group] {
      groups[group] =
          come(group_of(2, stem + std::to_string(::getpid()).substr(0, 8) + std::to_string(group)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t group = 0; group < groups.size(); ++group)
    expect_together(groups[group], static_cast<int>(group));
}

TEST(Meeting, NamesFitAndDiffer) {
  const std::string plain = meeting_name("job 7");
  EXPECT_EQ(plain, "nearlight/" + std::to_string(::geteuid()) + "/job 7");
  const std::string long_a = meeting_name(std::string(199, 'x') + "a");
  const std::string long_b = meeting_name(std::string(199, 'x') + "b");
  EXPECT_NE(long_a, long_b);
  const std::string tail(99, 'x');
  EXPECT_NE(meeting_name(std::string(100, 'x') + "a" + tail),
            meeting_name(std::string(100, 'x') + "b" + tail));
  EXPECT_LE(long_a.size(), 107u);  // sockaddr_un's path without its first byte
  EXPECT_LE(meeting_name(std::string(64, 'x')).size(), 107u);
}

TEST(Meeting, MissingRanksAreNamedToAll) {
  const std::string key = fresh_key();
  for (const Joined& one :
       come({{{0, 4, key}, {}, milliseconds(300)}, {{2, 4, key}, {}, milliseconds(300)}})) {
    ASSERT_FALSE(one.ok());
    // Whoever gives up first tells the other.
    EXPECT_THAT(one.status().code(), testing::AnyOf(Code::timeout, Code::remote_error));
    EXPECT_THAT(one.status().text(), testing::HasSubstr("rank(s) 1, 3 did not come"));
    EXPECT_THAT(one.status().text(), testing::HasSubstr(key));
  }
}

TEST(Meeting, MissingRankZeroIsNamed) {
  const auto begin = std::chrono::steady_clock::now();
  const std::string key = fresh_key();
  const auto ranks = come({{{1, 3, key}, {}, milliseconds(200)}, {{2, 3, key}, {}, milliseconds(200)}});
  for (const Joined& one : ranks)
    expect_failed(one, Code::timeout,
                  {"rank 0 did not come", key, "nobody listens at @" + meeting_name(key)});
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, milliseconds(195));
  EXPECT_LT(took, seconds(20));
}

TEST(Meeting, OneWhoGivesUpEarlyTellsTheOthersWhy) {
  const std::string key = fresh_key();
  const auto begin = std::chrono::steady_clock::now();
  const auto ranks = come({{{0, 3, key}}, {{1, 3, key}, {}, milliseconds(200)}});
  expect_failed(ranks[0], Code::remote_error, {"rank 1", "gave up", "rank(s) 2"});
  expect_failed(ranks[1], Code::timeout, {"rank(s) 2 did not come"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(20));
}

TEST(Meeting, ARankThatComesTwiceFailsAll) {
  const std::string key = fresh_key();
  const auto ranks = come({{{0, 3, key}}, {{1, 3, key}}, {{1, 3, key}, milliseconds(50)}});
  for (const Joined& one : ranks)
    expect_failed(one, Code::invalid_usage, {"rank 1 came twice", std::to_string(::getpid()), key});
}

// Two groups at one time under one key: both are told.
TEST(Meeting, RankZeroTwiceFailsBothGroups) {
  const std::string key = fresh_key();
  const auto ranks = come({{{0, 3, key}}, {{0, 3, key}, milliseconds(50)}, {{1, 3, key}}});
  for (const Joined& one : ranks)
    expect_failed(one, Code::invalid_usage,
                  {"rank 0 came twice", "two groups at one time need two keys", key});
}

TEST(Meeting, DifferentNumbersOfRanksFailAll) {
  const std::string key = fresh_key();
  for (const Joined& one : come({{{0, 3, key}}, {{1, 2, key}, milliseconds(50)}, {{2, 3, key}}}))
    expect_failed(one, Code::invalid_usage, {"nranks", "3 ranks", "rank 1", "for 2", key});
}

TEST(Meeting, WrongArgumentsFailBeforeAnybodyIsMet) {
  const auto try_one = [](const GroupPlace& place) { return join_process_group(place, patience()); };
  expect_failed(try_one({0, 0, "k"}), Code::invalid_argument, {"nranks: 0", "1 and 64"});
  expect_failed(try_one({0, 65, "k"}), Code::invalid_argument, {"nranks: 65"});
  expect_failed(try_one({-1, 2, "k"}), Code::invalid_argument, {"rank: -1", "2"});
  expect_failed(try_one({2, 2, "k"}), Code::invalid_argument, {"rank: 2"});
  expect_failed(try_one({0, 2, ""}), Code::invalid_argument, {"key: 0 bytes", "200"});
  expect_failed(try_one({0, 2, std::string(201, 'k')}), Code::invalid_argument, {"key: 201 bytes"});
  expect_failed(try_one({0, 2, "a\nb"}), Code::invalid_argument, {"key", "control"});
}

TEST(Meeting, LeavesNoDescriptors) {
  const auto once = [] {
    expect_together(come(group_of(4, fresh_key())), 1);
    const std::string key = fresh_key();
    for (const Joined& one : come({{{0, 3, key}}, {{1, 3, key}}, {{1, 3, key}, milliseconds(20)}}))
      EXPECT_FALSE(one.ok());
    EXPECT_FALSE(join_process_group({0, 2, key}, Deadline::after_ms(20)).ok());
    EXPECT_FALSE(join_process_group({1, 2, key}, Deadline::after_ms(20)).ok());
  };
  once();
  const int before = open_descriptors();
  for (int i = 0; i < 3; ++i) once();
  EXPECT_EQ(open_descriptors(), before);
}

// ---- ranks as forked processes: these are killed, or short of something
// ------------------------------------

// Nothing is left of a group that was killed: the same key is good at once.
TEST(MeetingOfProcesses, AfterAKillTheKeyIsFree) {
  const std::string key = fresh_key();
  for (int round = 0; round < 3; ++round) {
    Child zero([&] { return join_process_group({0, 3, key}, patience()).ok() ? 1 : 2; });
    std::this_thread::sleep_for(milliseconds(50));
    zero.kill();
    EXPECT_EQ(zero.end(), -SIGKILL);
  }
  expect_together(come(group_of(3, key)), 1);
}

// After the meeting there is no parent that could tell.
TEST(MeetingOfProcesses, ARankThatIsKilledLaterEndsTheOthersWaits) {
  for (int victim_rank = 0; victim_rank < 2; ++victim_rank) {
    const std::string key = fresh_key();
    const Child victim([&] {
      const auto exchange = join_process_group({victim_rank, 2, key}, patience());
      if (!exchange.ok() || !(*exchange)->barrier(patience()).ok()) return 1;
      ::raise(SIGKILL);
      return 2;
    });
    const auto exchange = join_process_group({1 - victim_rank, 2, key}, patience());
    ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
    EXPECT_EQ((*exchange)->processes()[static_cast<std::size_t>(victim_rank)], victim.pid());
    EXPECT_TRUE((*exchange)->barrier(patience()).ok());
    const auto begin = std::chrono::steady_clock::now();
    const Status status = (*exchange)->barrier(patience());
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
    EXPECT_EQ(status.code(), Code::remote_error) << status.to_string();
    EXPECT_THAT(status.text(), testing::HasSubstr("rank " + std::to_string(victim_rank) + " " +
                                                  process(victim) + " has ended"));
  }
}

// A rank that came, did its part and ended is not missed.
TEST(MeetingOfProcesses, ARankThatEndedAfterItsPartIsNotMissed) {
  const std::string key = fresh_key();
  Child other([&] {
    const auto exchange = join_process_group({1, 2, key}, patience());
    return exchange.ok() && (*exchange)->barrier(patience()).ok() ? 0 : 1;
  });
  const auto exchange = join_process_group({0, 2, key}, patience());
  ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_TRUE((*exchange)->barrier(patience()).ok());
  EXPECT_EQ(other.end(), 0);
  const Status status = (*exchange)->barrier(patience());
  EXPECT_EQ(status.code(), Code::remote_error) << status.to_string();
}

// A rank that may not open what it is handed tells the others.
TEST(MeetingOfProcesses, LackOfDescriptorsInOneRankFailsAll) {
  const std::string key = fresh_key();
  Child poor([&] {
    const int next = ::dup(0);
    ::close(next);
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(next + 3);  // a socket, a pidfd and one of the five it is given
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const auto here = join_process_group({1, 2, key}, patience());
    const bool as_expected = here.status().code() == Code::system_error &&
                             here.status().text().find("limit of open files") != std::string::npos;
    return as_expected ? 0 : 1;
  });
  const std::string name = process(poor);
  const auto here = join_process_group({0, 2, key}, patience());
  expect_failed(here, Code::remote_error, {"rank 1 " + name + " gave up", "descriptors were cut off"});
  EXPECT_EQ(poor.end(), 0);
}

#if !defined(__SANITIZE_ADDRESS__)  // UndefinedBehaviorSanitizer looks at an object's type through a pipe: no
                                    // room, false alarm
// The same on rank 0's side.
TEST(MeetingOfProcesses, LackOfDescriptorsInRankZeroFailsAll) {
  const std::string key = fresh_key();
  for (int spare = 1; spare < 12; ++spare) {
    Child poor([&] {
      const int next = ::dup(0);
      ::close(next);
      rlimit limit{};
      ::getrlimit(RLIMIT_NOFILE, &limit);
      limit.rlim_cur = static_cast<rlim_t>(next + spare);
      ::setrlimit(RLIMIT_NOFILE, &limit);
      const auto here = join_process_group({0, 2, key}, patience());
      return here.ok() ? 0 : here.status().code() == Code::system_error ? 3 : 1;
    });
    const pid_t poor_pid = poor.pid();
    // Where rank 0 cannot even take this rank in, nobody is told: it waits for a rank 0 that can.
    const auto here = join_process_group({1, 2, key}, Deadline::after_ms(2000));
    const int other = poor.end();
    if (here.ok()) {
      EXPECT_EQ(other, 0);
      EXPECT_GT(spare, 5);
      return;
    }
    EXPECT_EQ(other, 3) << "with " << spare;
    if (here.status().code() == Code::timeout) {
      expect_failed(here, Code::timeout,
                    {"rank 0 did not come", "process " + std::to_string(poor_pid) + " had the name"});
    } else {
      expect_failed(here, Code::system_error,
                    {"rank 0 (process " + std::to_string(poor_pid) + "): ", "open files"});
    }
  }
  ADD_FAILURE() << "12 descriptors were not enough";
}
#endif

}  // namespace
}  // namespace nearlight::bootstrap
