// Asking a communicator for its state: by whom, how long it may take, what it leaves behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <thread>

#include "bootstrap/in_process.hpp"
#include "runtime/create.hpp"
#include "runtime/dump_service.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::test {
namespace {

using runtime::ask_for_dumps;
using runtime::DumpService;
using testing::HasSubstr;

// The services that this test starts are the only ones of this process.
TEST(DumpService, AnswersEachWhoAsks) {
  EXPECT_EQ(ask_for_dumps(::getpid(), Deadline::after_ms(10'000)).status().code(), Code::invalid_usage);
  {
    auto first = DumpService::start([] { return std::string("one"); });
    auto second = DumpService::start([] { return std::string(3'000'000, 'x'); });
    ASSERT_TRUE(first.ok() && second.ok());
    for (int i = 0; i < 3; ++i) {
      const auto texts = ask_for_dumps(::getpid(), Deadline::after_ms(30'000));
      ASSERT_TRUE(texts.ok()) << texts.status().to_string();
      EXPECT_THAT(texts.value(), testing::UnorderedElementsAre("one", std::string(3'000'000, 'x')));
    }
  }
  EXPECT_EQ(ask_for_dumps(::getpid(), Deadline::after_ms(10'000)).status().code(), Code::invalid_usage);
}

TEST(DumpService, OneThatHangsIsNotWaitedForLongerThanAsked) {
  std::atomic<bool> let_go{false};
  auto service = DumpService::start([&] {
    while (!let_go.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return std::string("late");
  });
  ASSERT_TRUE(service.ok());
  const Status status = ask_for_dumps(::getpid(), Deadline::after_ms(100)).status();
  EXPECT_EQ(status.code(), Code::timeout) << status.to_string();
  let_go = true;
  const auto texts = ask_for_dumps(::getpid(), Deadline::after_ms(30'000));
  ASSERT_TRUE(texts.ok()) << texts.status().to_string();
  EXPECT_THAT(texts.value(), testing::ElementsAre("late"));
}

TEST(DumpService, LooksWithoutBeingAsked) {
  std::atomic<int> looks{0};
  auto service = DumpService::start([] { return std::string(); }, [&] { ++looks; }, false);
  ASSERT_TRUE(service.ok());
  EXPECT_EQ(ask_for_dumps(::getpid(), Deadline::after_ms(1000)).status().code(), Code::invalid_usage);
  EXPECT_TRUE(wait_until([&] { return looks.load() >= 2; }, std::chrono::seconds(60)));
}

// Connects to this process's service as another user; how many bytes come.
int bytes_for_a_stranger(pid_t pid, int number) {
  if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 100;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = "nearlight-dump-" + std::to_string(pid) + "-" + std::to_string(number);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), length) != 0) return 101;
  char buffer[64];
  return static_cast<int>(::recv(socket, buffer, sizeof buffer, 0));
}

TEST(DumpService, OtherUsersGetNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  std::atomic<int> told{0};
  auto service = DumpService::start([&] { return ++told, std::string("secret"); });
  ASSERT_TRUE(service.ok());
  // The number of a service is one more than the last one's of the process; one of them is this one's.
  const pid_t parent = ::getpid();
  int connected = 0;
  for (int number = 1; number <= 64; ++number) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) ::_exit(bytes_for_a_stranger(parent, number));
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 101) continue;
    EXPECT_EQ(WEXITSTATUS(status), 0);
    ++connected;
  }
  EXPECT_EQ(connected, 1);
  EXPECT_EQ(told.load(), 0);
  EXPECT_TRUE(ask_for_dumps(parent, Deadline::after_ms(30'000)).ok());
  EXPECT_EQ(told.load(), 1);
}

// Dumps while calls run: nothing is torn, nobody waits.
TEST(Dump, OfRanksThatAreAtWork) {
  const auto problems = run_communicators(
      Kind::threads, 2, patient(), [](runtime::Communicator& comm, Exchange&, Problems& trouble) {
        std::atomic<bool> done{false};
        std::thread reader([&] {
          while (!done.load()) {
            const std::string text = comm.dump();
            if (text.find("status: ok\n") == std::string::npos) trouble.add("%s", text.c_str());
          }
        });
        std::vector<float> data(1000, 0.0f);
        for (int i = 0; i < 300; ++i) {
          const std::size_t count = i % 3 == 0 ? 1000 : 5;
          const Status status =
              comm.all_reduce(data.data(), data.data(), count, DataType::f32, ReduceOp::sum, nullptr);
          if (!status.ok()) trouble.add("%s", status.to_string().c_str());
        }
        done = true;
        reader.join();
        if (comm.dump().find("#300 all_reduce of 5 float, sum, one_shot ll: done") == std::string::npos)
          trouble.add("%s", comm.dump().c_str());
      });
  EXPECT_EQ(problems, "");
}

// A reset clears what a dump reads. Races are for the thread sanitizer to find.
TEST(Dump, OfRanksThatAreReset) {
  const auto problems = run_communicators(
      Kind::threads, 2, patient(), [](runtime::Communicator& comm, Exchange&, Problems& trouble) {
        std::atomic<bool> done{false};
        std::thread reader([&] {
          while (!done.load()) {
            if (comm.dump().find("what has come") == std::string::npos) trouble.add("half a dump");
          }
        });
        float value = 0;
        for (int i = 0; i < 20; ++i) {
          Status status = comm.all_reduce(&value, &value, 1, DataType::f32, ReduceOp::sum, nullptr);
          if (status.ok()) status = comm.reset();
          if (!status.ok()) trouble.add("%s", status.to_string().c_str());
        }
        done = true;
        reader.join();
      });
  EXPECT_EQ(problems, "");
}

TEST(Dump, EachTimeOutAfterAResetIsWrittenDown) {
  char folder[] = "/tmp/nearlight-dumps-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  ::setenv("NEARLIGHT_DUMP_DIR", folder, 1);
  const auto files = [&folder] {
    const std::filesystem::directory_iterator all(folder);
    return std::distance(begin(all), end(all));
  };
  auto options = patient();
  options.timeout = std::chrono::milliseconds(50);
  const auto problems = run_communicators(
      Kind::threads, 2, options, [&](runtime::Communicator& comm, Exchange&, Problems& trouble) {
        float value = 0;
        for (int time = 1; time <= 2; ++time) {
          if (comm.rank() == 0) {
            for (int call = 0; call < 2; ++call) {
              expect_failure(trouble, "a call alone",
                             comm.all_reduce(&value, &value, 1, DataType::f32, ReduceOp::sum, nullptr),
                             Code::timeout, {});
            }
            if (files() != time) trouble.add("%d files after time-out %d", static_cast<int>(files()), time);
          }
          if (const Status status = comm.reset(); !status.ok()) trouble.add("%s", status.to_string().c_str());
        }
      });
  ::unsetenv("NEARLIGHT_DUMP_DIR");
  std::filesystem::remove_all(folder);
  EXPECT_EQ(problems, "");
}

// One rank alone has no region to look at.
TEST(Dump, OfOneRank) {
  auto group = bootstrap::make_in_process_group(1);
  auto comm = runtime::create_host(*group[0], patient());
  ASSERT_TRUE(comm.ok());
  EXPECT_THAT((*comm)->dump(), HasSubstr("rank 0 of 1"));
  EXPECT_THAT((*comm)->dump(), testing::Not(HasSubstr("what has come")));
}

}  // namespace
}  // namespace nearlight::test
