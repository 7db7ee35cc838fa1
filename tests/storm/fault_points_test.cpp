// Every point that creation comes by is made to fail, on every rank and every time it is passed: all ranks
// fail, in time and with a text that names the point or the rank; nothing is left; the next creation works.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "base/fault_point.hpp"
#include "bootstrap/in_process.hpp"
#include "bootstrap/process_group.hpp"
#include "runtime/create.hpp"
#include "tests/support/held.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::test {
namespace {

using namespace std::chrono_literals;
using fault_points::Creation;
using fault_points::Point;

constexpr int kRanks = 3;
// Who cannot be told why is missed at the end of this time.
constexpr auto kShort = 300ms;
// And who comes to a meeting that has failed already waits until then for another one.
constexpr auto kMeeting = 800ms;
// What a machine that is busy may add to a time limit, or to an answer that comes at once.
constexpr auto kSlack = 15s;

struct Attempt {
  std::array<Status, kRanks> created;
  bool passed = false;  // the rank in question came to the point as often
  std::chrono::nanoseconds longest{};
};

runtime::Options options(std::chrono::milliseconds limit) {
  runtime::Options options;
  options.timeout = options.create_timeout = limit;
  options.slots = 32;
  options.chunk_bytes = 256;
  return options;
}

// One creation from the very beginning: the meeting, the communicator, a first call.
Status create_and_call(std::unique_ptr<Exchange> exchange, std::chrono::milliseconds limit) {
  const auto comm = runtime::create_host(std::move(exchange), options(limit));
  NL_TRY(comm.status());
  std::int32_t value = 1;
  NL_TRY((*comm)->all_reduce(&value, &value, 1, DataType::i32, ReduceOp::sum, nullptr));
  if (value != kRanks) return failure(Code::internal_error, "the sum is %d", value);
  // A rank that leaves is noticed by others that still wait, so nobody does before all are done.
  return (*comm)->barrier(nullptr);
}

// Threads that meet as processes do, or that have met already.
Attempt attempt(Kind kind, int rank, std::chrono::milliseconds limit,
                const std::function<Status(const Point&)>& at) {
  Attempt outcome;
  std::array<std::chrono::nanoseconds, kRanks> took{};
  std::vector<std::unique_ptr<Exchange>> exchanges(kRanks);
  if (kind == Kind::threads) exchanges = bootstrap::make_in_process_group(kRanks);
  const std::string key = fresh_key();
  std::vector<std::thread> threads;
  for (int self = 0; self < kRanks; ++self) {
    threads.emplace_back([&, self] {
      const auto i = static_cast<std::size_t>(self);
      const std::int64_t begin_ns = clock_ns();
      std::optional<fault_points::Planted> planted;
      if (self == rank) planted.emplace(at);
      if (kind == Kind::met) {
        auto joined = bootstrap::join_process_group({self, kRanks, key}, Deadline::after(limit));
        if (joined.ok()) exchanges[i] = std::move(*joined);
        outcome.created[i] = joined.status();
      }
      if (exchanges[i] != nullptr) outcome.created[i] = create_and_call(std::move(exchanges[i]), limit);
      took[i] = std::chrono::nanoseconds(clock_ns() - begin_ns);
    });
  }
  for (std::thread& thread : threads) thread.join();
  outcome.longest = *std::max_element(took.begin(), took.end());
  return outcome;
}

bool is_in(const std::string& text, const std::string& word) { return text.find(word) != std::string::npos; }

bool is_before_the_exchange(const Point& point) {
  return is_in(point.name, "meeting.") || is_in(point.name, "board.");
}

std::chrono::milliseconds limit_at(const Point& point) {
  if (!point.heard) return kShort;
  return is_before_the_exchange(point) ? std::chrono::milliseconds(kMeeting) : 60s;
}

// The rank's `nth` passing of the point fails.
Attempt fail_at(Kind kind, const Point& point, int nth, int rank) {
  int count = 0;
  bool passed = false;
  Attempt outcome = attempt(kind, rank, limit_at(point), [&](const Point& here) -> Status {
    if (&here != &point || count++ != nth) return {};
    passed = true;
    return fault_points::planted_failure(point);
  });
  outcome.passed = passed;
  return outcome;
}

void expect_told(const Attempt& outcome, const Point& point, int rank) {
  EXPECT_LT(outcome.longest, (limit_at(point) > kMeeting ? 0ms : limit_at(point)) + kSlack);
  const std::string name = "rank " + std::to_string(rank), missed = "rank(s) " + std::to_string(rank);
  for (int self = 0; self < kRanks; ++self) {
    const Status& status = outcome.created[static_cast<std::size_t>(self)];
    EXPECT_FALSE(status.ok()) << "rank " << self << " has a communicator";
    const std::string text = status.to_string();
    const bool told = is_in(text, point.name), named = is_in(text, name) || is_in(text, missed);
    if (self == rank) {
      EXPECT_TRUE(told) << "rank " << self << ": " << text;
    } else {
      const bool too_late = is_before_the_exchange(point) && is_in(text, "rank 0 did not come in time");
      EXPECT_TRUE((named && (told || !point.heard)) || too_late) << "rank " << self << ": " << text;
    }
  }
}

// Those that a creation of this kind comes to, by name, with how often some rank came to it.
std::map<std::string, int> walk(Kind kind) {
  std::map<std::string, int> reached;
  // Warms up what the C library keeps of threads.
  EXPECT_TRUE(attempt(kind, -1, 60s, {}).created[0].ok());
  for (const Point* const point : fault_points::all()) {
    if (point->creation != Creation::host) continue;
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int nth = 0;; ++nth) {
        SCOPED_TRACE(std::string(point->name) + ", time " + std::to_string(nth) + ", on rank " +
                     std::to_string(rank) + ", " + name_of(kind));
        const Held before = Held::now();
        const Attempt outcome = fail_at(kind, *point, nth, rank);
        if (!outcome.passed) break;
        expect_told(outcome, *point, rank);
        reached[point->name] = std::max(reached[point->name], nth + 1);
        Problems left;
        expect_same(before, {}, left);
        EXPECT_EQ(left.text(), "");
        // Where a rank that is not taken in tries again, one passing is as good as the next.
        if (!point->heard || nth == 50) break;
      }
    }
    for (const Status& status : attempt(kind, -1, 60s, {}).created)
      EXPECT_TRUE(status.ok()) << "after " << point->name << ": " << status.to_string();
    if (testing::Test::HasFailure()) break;
  }
  return reached;
}

std::set<std::string> names_of(const std::map<std::string, int>& reached) {
  std::set<std::string> names;
  for (const auto& [name, times] : reached) names.insert(name);
  return names;
}

TEST(FaultPoints, EachFailsAllThreads) {
  const auto reached = walk(Kind::threads);
  EXPECT_EQ(names_of(reached), (std::set<std::string>{"exchange.round", "memory.reserve", "memory.mmap",
                                                      "memory.provide", "memory.touch", "create.settings"}));
  EXPECT_GT(reached.at("exchange.round"), 5);
}

// All there are.
TEST(FaultPoints, EachFailsAllThatMeet) {
  std::set<std::string> all;
  for (const Point* const point : fault_points::all()) {
    if (point->creation == Creation::host) all.insert(point->name);
  }
  const auto reached = walk(Kind::met);
  EXPECT_EQ(names_of(reached), all);
  EXPECT_GT(reached.at("exchange.round"), 5);
}

#if !defined(__SANITIZE_THREAD__)
// Of processes with one parent, which makes their board and lines before they are there.
TEST(FaultPoints, EachFailsAllProcesses) {
  std::set<std::string> reached;
  for (const Point* const point : fault_points::all()) {
    const std::string name = point->name;
    if (point->creation != Creation::host || is_before_the_exchange(*point)) continue;
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int nth = 0; nth < 50; ++nth) {
        struct Seen {
          std::atomic<bool> passed;
        };
        const Shared<Seen> seen;
        const Held before = Held::now();
        const auto problems = run_ranks(Kind::processes, kRanks, [&](Exchange& exchange, Problems& trouble) {
          // The C library keeps the stack of a thread that has ended for the next one.
          std::thread([] {}).join();
          const Held at_first = Held::now();
          const std::int64_t begin_ns = clock_ns();
          Status created;
          {
            std::optional<fault_points::Planted> planted;
            int count = 0;
            if (exchange.rank() == rank) {
              planted.emplace([&](const Point& here) -> Status {
                if (&here != point || count++ != nth) return {};
                seen->passed = true;
                return fault_points::planted_failure(*point);
              });
            }
            created = runtime::create_host(exchange, options(60s)).status();
          }
          // A step of the library that failed leaves the group's exchange as it was; a failed exchange does
          // not, and then the barrier fails.
          const bool met = exchange.barrier(Deadline::after(60s)).ok();
          if (!seen->passed) {
            if (!created.ok()) trouble.add("nothing planted: %s", created.to_string().c_str());
            return;
          }
          if (clock_ns() - begin_ns > std::chrono::nanoseconds(kSlack).count()) trouble.add("too late");
          expect_failure(trouble, "creation", created, created.code(), {point->name});
          if (exchange.rank() != rank)
            expect_failure(trouble, "creation", created, created.code(), {"rank " + std::to_string(rank)});
          expect_same(at_first, {}, trouble);
          if (!met) return;
          const auto again = runtime::create_host(exchange, options(60s));
          if (!again.ok()) trouble.add("the next creation: %s", again.status().to_string().c_str());
          static_cast<void>(exchange.barrier(Deadline::after(60s)));
        });
        ASSERT_EQ(problems, "") << name << ", time " << nth << ", on rank " << rank;
        if (!seen->passed) break;
        reached.insert(name);
        Problems left;
        expect_same(before, {}, left);
        EXPECT_EQ(left.text(), "") << name;
      }
    }
  }
  EXPECT_EQ(reached, (std::set<std::string>{"exchange.round", "exchange.duplicate", "exchange.send",
                                            "exchange.receive", "memory.memfd_create", "memory.ftruncate",
                                            "memory.seal", "memory.reserve", "memory.mmap", "memory.provide",
                                            "memory.touch", "create.settings", "watch.eventfd", "watch.pidfd",
                                            "watch.thread"}));
}
#endif

// A rank that is held up anywhere, for less than the time limit, spoils nothing.
TEST(FaultPoints, ARankHeldUpAtEachIsWaitedFor) {
  for (const Kind kind : {Kind::threads, Kind::met}) {
    for (int rank = 0; rank < kRanks; ++rank) {
      for (const Point* const point : fault_points::all()) {
        if (point->creation != Creation::host) continue;
        const Attempt outcome = attempt(kind, rank, 60s, [&](const Point& here) -> Status {
          if (&here == point) std::this_thread::sleep_for(3ms);
          return {};
        });
        for (const Status& status : outcome.created)
          EXPECT_TRUE(status.ok()) << point->name << " on rank " << rank << ": " << status.to_string();
      }
    }
  }
}

// A rank that is held up for longer is missed by the others at the end of their time.
TEST(FaultPoints, ARankHeldUpForTooLongIsNamed) {
  for (const char* const name : {"meeting.connect", "meeting.seat", "memory.mmap", "watch.thread"}) {
    const Attempt outcome = attempt(Kind::met, 1, kShort, [&](const Point& here) -> Status {
      if (here.name == std::string(name)) std::this_thread::sleep_for(3 * kShort);
      return {};
    });
    for (const int self : {0, 2}) {
      const Status& status = outcome.created[static_cast<std::size_t>(self)];
      const std::string text = status.to_string();
      // The first that gives up is heard by the others.
      EXPECT_TRUE(status.code() == Code::timeout || status.code() == Code::remote_error) << text;
      EXPECT_TRUE(is_in(text, "rank(s) 1")) << name << ", rank " << self << ": " << text;
    }
    EXPECT_FALSE(outcome.created[1].ok());
  }
}

// What rank 0 said before it got stuck is repeated as its word only.
TEST(FaultPoints, RankZeroHeldUpInTheMeetingIsNamed) {
  // The longer, the surer that the others have come by then.
  const Attempt outcome =
      attempt(Kind::met, 0, kMeeting, [&, count = 0](const Point& here) mutable -> Status {
        if (&here == &fault_points::kMeetingGuestPidfd && ++count == 2)
          std::this_thread::sleep_for(2 * kMeeting);
        return {};
      });
  for (const int self : {1, 2}) {
    const std::string text = outcome.created[static_cast<std::size_t>(self)].to_string();
    EXPECT_TRUE(is_in(text, "rank 0 (process")) << "rank " << self << ": " << text;
  }
}

TEST(FaultPoints, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Point* const point : fault_points::all()) {
    EXPECT_TRUE(names.insert(point->name).second) << point->name;
    EXPECT_TRUE(is_in(fault_points::planted_failure(*point).text(), point->name));
  }
  EXPECT_GE(names.size(), 50u);
}

TEST(FaultPoints, AHookHoldsForItsThreadAndItsLife) {
  EXPECT_TRUE(fault_points::pass(fault_points::kSettings).ok());
  {
    const fault_points::Planted outer(fault_points::planted_failure);
    EXPECT_FALSE(fault_points::pass(fault_points::kSettings).ok());
    {
      const fault_points::Planted inner([](const Point&) { return Status(); });
      EXPECT_TRUE(fault_points::pass(fault_points::kSettings).ok());
    }
    EXPECT_FALSE(fault_points::pass(fault_points::kSettings).ok());
    std::thread([] { EXPECT_TRUE(fault_points::pass(fault_points::kSettings).ok()); }).join();
  }
  EXPECT_TRUE(fault_points::pass(fault_points::kSettings).ok());
}

}  // namespace
}  // namespace nearlight::test
