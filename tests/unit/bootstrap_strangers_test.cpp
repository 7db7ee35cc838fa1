// Others at the door: processes that are no rank, ranks of another build, other users.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "bootstrap/fd_message.hpp"
#include "bootstrap/meeting_word.hpp"
#include "tests/unit/bootstrap_meeting.hpp"

namespace nearlight::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::fresh_key;
using Kind = MeetingWord::Kind;

constexpr uid_t kNobody = 65534;

// A socket of the kind that ranks meet on.
UniqueFd raw_socket(const std::string& name, int (*what)(int, const sockaddr*, socklen_t)) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (what(fd.get(), reinterpret_cast<const sockaddr*>(&address), bytes) != 0) fd.reset();
  return fd;
}
// Waits until somebody listens.
UniqueFd knock(const std::string& key) {
  UniqueFd fd;
  test::wait_until([&] { return static_cast<bool>(fd = raw_socket(meeting_name(key), ::connect)); },
                   seconds(30));
  EXPECT_TRUE(static_cast<bool>(fd));
  return fd;
}
UniqueFd occupy(const std::string& name) {
  UniqueFd fd = raw_socket(name, ::bind);
  EXPECT_TRUE(static_cast<bool>(fd));
  EXPECT_EQ(::listen(fd.get(), 16), 0);
  return fd;
}

void say(const UniqueFd& fd, std::span<const std::byte> bytes) {
  EXPECT_EQ(send_message(fd.get(), bytes, {}), 0);
}
// The next word, or one of kind 0 when the other side has closed.
MeetingWord hear(const UniqueFd& fd) {
  MeetingWord word{};
  ReceivedMessage received;
  test::wait_until(
      [&] {
        received = receive_message(fd.get(), std::as_writable_bytes(std::span(&word, 1)), 100);
        return received.error != EAGAIN;
      },
      seconds(30));
  EXPECT_NE(received.error, EAGAIN) << "no answer";
  return received.bytes == sizeof word ? word : MeetingWord{};
}

MeetingWord hello(int rank, int nranks, const std::string& key) {
  MeetingWord word = MeetingWord::of(Kind::hello);
  word.rank = rank;
  word.nranks = nranks;
  word.pid = ::getpid();
  put_text(word.key, key);
  return word;
}

// A meeting of two in the background while `during` runs.
std::vector<Joined> meet_two_while(const std::string& key, const std::function<void()>& during,
                                   milliseconds second_comes_after) {
  std::vector<Joined> both;
  std::thread ranks([&] { both = come({{{0, 2, key}}, {{1, 2, key}, second_comes_after}}); });
  during();
  ranks.join();
  return both;
}

TEST(Strangers, WhoSaysNothingOrNonsenseHoldsNobodyUp) {
  const std::string key = fresh_key();
  std::vector<UniqueFd> knocking;
  const auto both = meet_two_while(
      key,
      [&] {
        for (int i = 0; i < 100; ++i) knocking.push_back(knock(key));  // and never a word
        std::vector<std::byte> garbage(5000, std::byte{0xa5});
        for (const std::size_t bytes : {1u, 8u, 47u, 48u, 1000u, 5000u}) {
          knocking.push_back(knock(key));
          say(knocking.back(), std::span(garbage).first(bytes));
        }
        // With a descriptor, a word that is no beginning, and a greeting for another key.
        knocking.push_back(knock(key));
        const int fd = 0;
        EXPECT_EQ(send_message(knocking.back().get(), garbage, std::span(&fd, 1)), 0);
        knocking.push_back(knock(key));
        say(knocking.back(), MeetingWord::of(Kind::ready).bytes());
        knocking.push_back(knock(key));
        say(knocking.back(), hello(1, 2, key + "x").bytes());
        // One that leaves at once.
        static_cast<void>(knock(key));
      },
      milliseconds(400));
  for (const Joined& one : both) EXPECT_TRUE(one.ok()) << one.status().to_string();
}

TEST(Strangers, AreToldOfWhenTheMeetingFails) {
  const std::string key = fresh_key();
  Joined zero = failure(Code::internal_error, "never came");
  std::thread rank([&] { zero = join_process_group({0, 2, key}, Deadline::after_ms(500)); });
  const UniqueFd stranger = knock(key);
  const std::byte garbage[3] = {};
  say(stranger, garbage);
  rank.join();
  expect_failed(zero, Code::timeout, {"rank(s) 1", "turned away", std::to_string(::getpid())});
}

// They do not pile up either: of too many that say nothing, the oldest is closed.
TEST(Strangers, TheOldestOfTooManySilentOnesIsClosed) {
  const std::string key = fresh_key();
  std::atomic<bool> over{false};
  std::thread rank([&] {
    expect_failed(join_process_group({0, 2, key}, Deadline::after_ms(3000)), Code::timeout, {"said nothing"});
    over = true;
  });
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 70; ++i) silent.push_back(knock(key));
  EXPECT_EQ(hear(silent[0]).kind, Kind{});
  EXPECT_FALSE(over);
  rank.join();
}

TEST(Strangers, ManyThatKeepComingDoNotMoveTheDeadline) {
  const std::string key = fresh_key();
  std::atomic<bool> over{false};
  std::thread pest([&] {
    while (!over) static_cast<void>(raw_socket(meeting_name(key), ::connect));
  });
  const auto begin = std::chrono::steady_clock::now();
  const auto zero = join_process_group({0, 2, key}, Deadline::after_ms(300));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(20));
  over = true;
  pest.join();
  expect_failed(zero, Code::timeout, {"rank(s) 1"});
}

TEST(Strangers, ARankOfAnotherVersionFailsAllAndIsToldOf) {
  const std::string key = fresh_key();
  MeetingWord other = hello(1, 3, key);
  put_text(other.head.version, "9.8.7");
  Joined zero = failure(Code::internal_error, "never came");
  std::thread rank([&] { zero = join_process_group({0, 3, key}, patience()); });
  const UniqueFd guest = knock(key);
  // Another version's words have another size.
  say(guest, other.bytes().first(sizeof(MeetingHead) + 20));
  const MeetingWord answer = hear(guest);
  EXPECT_EQ(answer.kind, Kind::refused);
  rank.join();
  expect_failed(zero, Code::invalid_usage,
                {"nearlight 9.8.7", std::string("nearlight ") + kMeetingVersion, "same build"});
}

TEST(Strangers, ARankOfAnotherLayoutFailsAllAndIsToldOf) {
  const std::string key = fresh_key();
  MeetingWord other = hello(1, 3, key);
  other.head.layout = 0xabcd;
  Joined zero = failure(Code::internal_error, "never came");
  std::thread rank([&] { zero = join_process_group({0, 3, key}, patience()); });
  const UniqueFd guest = knock(key);
  say(guest, other.bytes());
  EXPECT_EQ(hear(guest).kind, Kind::refused);
  rank.join();
  expect_failed(zero, Code::invalid_usage, {"layout 0000abcd", "same build"});
}

// Takes one connection, hears the greeting and answers with `bytes`.
Joined join_one_that_answers(const std::function<void(const UniqueFd&)>& answer, milliseconds limit) {
  const std::string key = fresh_key();
  const UniqueFd listener = occupy(meeting_name(key));
  std::thread host([&] {
    const UniqueFd guest(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_EQ(hear(guest).kind, Kind::hello);
    answer(guest);
    static_cast<void>(hear(guest));  // its end
  });
  auto joined = join_process_group({1, 2, key}, Deadline::after(limit));
  host.join();
  return joined;
}

TEST(Strangers, AnotherProgramOnTheNameIsNamed) {
  const auto joined = join_one_that_answers(
      [](const UniqueFd& guest) { say(guest, std::as_bytes(std::span("who are you?"))); }, seconds(60));
  expect_failed(joined, Code::invalid_usage, {std::to_string(::getpid()), "is no rank of nearlight"});
}

TEST(Strangers, ARankZeroOfAnotherVersionIsNamed) {
  const auto joined = join_one_that_answers(
      [](const UniqueFd& guest) {
        MeetingWord word = MeetingWord::of(Kind::refused);
        put_text(word.head.version, "0.0.9");
        say(guest, word.bytes().first(100));
      },
      seconds(60));
  expect_failed(joined, Code::invalid_usage, {"rank 0", "nearlight 0.0.9", "same build"});
}

TEST(Strangers, OneThatNeverAnswersIsNamedAtTheDeadline) {
  const auto joined = join_one_that_answers([](const UniqueFd&) {}, milliseconds(300));
  expect_failed(joined, Code::timeout, {"process " + std::to_string(::getpid()), "does not answer"});
}

// What a host says out of turn, or hands out too little of, is no seat.
TEST(Strangers, AHostThatBreaksTheRulesIsAnError) {
  const auto nothing_with_it = [](const UniqueFd& guest) {
    MeetingWord word = MeetingWord::of(Kind::waiting);
    say(guest, word.bytes());
    word = MeetingWord::of(Kind::welcome);
    word.pids[0] = word.pids[1] = ::getpid();
    say(guest, word.bytes());
    EXPECT_EQ(hear(guest).kind, Kind::leaves);
  };
  expect_failed(join_one_that_answers(nothing_with_it, seconds(60)), Code::internal_error,
                {"0 descriptors", "5"});
  const auto too_soon = [](const UniqueFd& guest) { say(guest, MeetingWord::of(Kind::go).bytes()); };
  expect_failed(join_one_that_answers(too_soon, seconds(60)), Code::internal_error, {"no answer"});
  const auto short_board = [](const UniqueFd& guest) {
    MeetingWord word = MeetingWord::of(Kind::waiting);
    say(guest, word.bytes());
    word = MeetingWord::of(Kind::welcome);
    word.pids[0] = word.pids[1] = ::getpid();
    const UniqueFd memory(::memfd_create("nearlight-test", MFD_CLOEXEC));
    const int fds[5] = {memory.get(), memory.get(), memory.get(), memory.get(), memory.get()};
    EXPECT_EQ(send_message(guest.get(), word.bytes(), fds), 0);
    EXPECT_EQ(hear(guest).kind, Kind::leaves);
  };
  expect_failed(join_one_that_answers(short_board, seconds(60)), Code::internal_error, {"board", "0 bytes"});
}

// A rank 0 that gives up after it has handed everything out, and is gone before this rank can answer: why it
// did is heard all the same.
TEST(Strangers, WhatWasSaidBeforeTheEndIsHeard) {
  for (int round = 0; round < 50; ++round) {
    const std::string key = fresh_key();
    const UniqueFd listener = occupy(meeting_name(key));
    std::thread host([&] {
      const auto created = SharedBoard::create(2);
      ASSERT_TRUE(created.ok());
      const int memory = created->memory.get();
      const int fds[5] = {memory, memory, memory, memory, memory};
      MeetingWord word = MeetingWord::of(Kind::welcome);
      word.pids[0] = word.pids[1] = ::getpid();
      const UniqueFd guest(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      say(guest, MeetingWord::of(Kind::waiting).bytes());
      EXPECT_EQ(send_message(guest.get(), word.bytes(), fds), 0);
      say(guest, MeetingWord::telling(Kind::refused, failure(Code::unsupported, "because")).bytes());
    });
    const auto joined = join_process_group({1, 2, key}, patience());
    host.join();
    expect_failed(joined, Code::unsupported, {"because"});
  }
}

// A rank 0 that cannot get its name, because who has it does not answer, says who that is.
TEST(Strangers, RankZeroNamesWhoHasItsName) {
  const std::string key = fresh_key();
  const UniqueFd listener = occupy(meeting_name(key));
  expect_failed(join_process_group({0, 2, key}, Deadline::after_ms(200)), Code::timeout,
                {"process " + std::to_string(::getpid()), "does not answer"});
}

TEST(Strangers, RankZeroDoesNotMissItselfWhenItsNameIsTaken) {
  const std::string key = fresh_key();
  const UniqueFd silent = raw_socket(meeting_name(key), ::bind);
  const auto zero = join_process_group({0, 2, key}, Deadline::after_ms(100));
  expect_failed(zero, Code::timeout, {"@" + meeting_name(key), "does not listen"});
  EXPECT_EQ(zero.status().text().find("rank 0 did not come"), std::string::npos) << zero.status().text();
}

TEST(Strangers, AGuestOfAnotherPidNamespaceIsRefused) {
  const std::string key = fresh_key();
  Joined zero = failure(Code::internal_error, "never came");
  std::thread rank([&] { zero = join_process_group({0, 3, key}, patience()); });
  MeetingWord word = hello(1, 3, key);
  word.pid = 7;  // its own number for itself
  const UniqueFd guest = knock(key);
  say(guest, word.bytes());
  EXPECT_EQ(hear(guest).kind, Kind::refused);
  rank.join();
  expect_failed(zero, Code::unsupported, {"rank 1", "PID namespace"});
}

TEST(Strangers, AGuestThatLeavesWithoutAWordIsNamed) {
  const std::string key = fresh_key();
  Joined zero = failure(Code::internal_error, "never came");
  std::thread rank([&] { zero = join_process_group({0, 3, key}, patience()); });
  UniqueFd guest = knock(key);
  say(guest, hello(2, 3, key).bytes());
  EXPECT_EQ(hear(guest).kind, Kind::waiting);
  guest.reset();
  rank.join();
  expect_failed(zero, Code::remote_error, {"rank 2", "has left", "rank(s) 1 had not come"});
}

TEST(Strangers, AGuestThatFallsSilentIsNamedAtTheDeadline) {
  const std::string key = fresh_key();
  Joined zero = failure(Code::internal_error, "never came");
  std::thread rank([&] { zero = join_process_group({0, 2, key}, Deadline::after_ms(500)); });
  const UniqueFd guest = knock(key);
  say(guest, hello(1, 2, key).bytes());
  rank.join();
  expect_failed(zero, Code::timeout, {"rank(s) 1 came and then fell silent"});
  EXPECT_EQ(zero.status().text().find("in time"), std::string::npos) << zero.status().text();
}

// ---- processes that are killed in the middle
// ----------------------------------------------------------------

// While it waits for the last of the ranks: the others need not wait for the deadline.
TEST(KilledMeanwhile, ARankIsNamedAtOnce) {
  const std::string key = fresh_key();
  const Child victim([&] {
    const UniqueFd host = knock(key);
    say(host, hello(1, 3, key).bytes());
    if (hear(host).kind != Kind::waiting) return 1;
    return ::raise(SIGKILL);
  });
  const auto begin = std::chrono::steady_clock::now();
  const auto here = join_process_group({0, 3, key}, patience());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));
  expect_failed(here, Code::remote_error,
                {"rank 1 " + process(victim) + " has ended", "rank(s) 2 had not come"});
}

TEST(KilledMeanwhile, RankZeroIsNamedAtOnce) {
  const std::string key = fresh_key();
  const Child victim([&] {
    const UniqueFd listener = occupy(meeting_name(key));
    const UniqueFd guest(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (hear(guest).kind != Kind::hello) return 1;
    say(guest, MeetingWord::of(Kind::waiting).bytes());
    return ::raise(SIGKILL);
  });
  const auto begin = std::chrono::steady_clock::now();
  const auto here = join_process_group({1, 3, key}, patience());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));
  expect_failed(here, Code::remote_error, {"rank 0 " + process(victim) + " has ended"});
}

// ---- other users; only root can become one
// ------------------------------------------------------------------

// In a child: becomes another user.
bool become_nobody() { return ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0; }

TEST(OtherUsers, AreTurnedAwayWithoutAnAnswer) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string key = fresh_key();
  const std::string name = meeting_name(key);
  Child other([&] {
    if (!become_nobody()) return 99;
    UniqueFd fd;
    if (!test::wait_until([&] { return static_cast<bool>(fd = raw_socket(name, ::connect)); }, seconds(30)))
      return 1;
    if (send_message(fd.get(), hello(1, 2, key).bytes(), {}) == EPIPE) return 0;  // it has closed already
    return hear(fd).kind == Kind{} ? 0 : 2;
  });
  Joined zero = failure(Code::internal_error, "never came");
  std::thread rank([&] { zero = join_process_group({0, 2, key}, patience()); });
  EXPECT_EQ(other.end(), 0);
  const auto one = join_process_group({1, 2, key}, patience());
  rank.join();
  EXPECT_TRUE(zero.ok()) << zero.status().to_string();
  EXPECT_TRUE(one.ok()) << one.status().to_string();
}

TEST(OtherUsers, WhoHoldTheNameAreNamed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string key = fresh_key();
  const std::string name = meeting_name(key);
  const test::Shared<std::atomic<int>> state;  // 1: has the name, 2: may go
  Child other([&] {
    if (!become_nobody()) return 99;
    const UniqueFd listener = occupy(name);
    *state = 1;
    return test::wait_until([&] { return *state == 2; }, seconds(30)) ? 0 : 1;
  });
  EXPECT_TRUE(test::wait_until([&] { return *state == 1; }, seconds(30)));
  for (const int rank : {0, 1}) {
    expect_failed(join_process_group({rank, 2, key}, patience()), Code::invalid_usage,
                  {"process " + std::to_string(other.pid()), "user 65534", name});
  }
  *state = 2;
  EXPECT_EQ(other.end(), 0);
}

TEST(OtherUsers, MeetUnderTheSameKey) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string key = fresh_key();
  const test::Shared<std::atomic<bool>> begin;
  Child theirs([&] {
    if (!become_nobody() || !test::wait_until([&] { return begin->load(); }, seconds(30))) return 99;
    const auto both = come({{{0, 2, key}}, {{1, 2, key}}});
    return both[0].ok() && both[1].ok() ? 0 : 1;
  });
  Joined zero = failure(Code::internal_error, "never came");
  std::thread rank([&] { zero = join_process_group({0, 2, key}, patience()); });
  static_cast<void>(knock(key));  // rank 0 waits
  *begin = true;
  EXPECT_EQ(theirs.end(), 0);
  const auto one = join_process_group({1, 2, key}, patience());
  rank.join();
  EXPECT_TRUE(zero.ok()) << zero.status().to_string();
  EXPECT_TRUE(one.ok()) << one.status().to_string();
}

}  // namespace
}  // namespace nearlight::bootstrap
