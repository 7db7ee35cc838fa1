// What every Exchange promises, for threads, for forked processes and for ranks that met.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/exchange.hpp"
#include "bootstrap/board_exchange.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::test {
namespace {

using std::chrono::milliseconds;

class ExchangeOf : public testing::TestWithParam<Kind> {
 protected:
  std::string run(int nranks, const std::function<void(Exchange&, Problems&)>& body) {
    return run_ranks(GetParam(), nranks, body);
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, ExchangeOf, testing::Values(Kind::threads, Kind::processes, Kind::met),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

// For calls that are expected to succeed.
Deadline patience() { return Deadline::after(std::chrono::seconds(60)); }

void expect_ok(Problems& problems, const char* where, const Status& status) {
  if (!status.ok()) problems.add("%s: %s", where, status.to_string().c_str());
}

std::byte pattern(int rank, std::size_t index, int round) {
  return static_cast<std::byte>(
      (static_cast<std::size_t>(rank) * 131 + index * 7 + static_cast<std::size_t>(round) * 17) & 255);
}

// Gathers `bytes` of a pattern and compares all of them.
void gather_pattern(Exchange& exchange, std::size_t bytes, int round, Problems& problems) {
  const auto nranks = static_cast<std::size_t>(exchange.nranks());
  std::vector<std::byte> mine(bytes), all(bytes * nranks, std::byte{0xee});
  for (std::size_t i = 0; i < bytes; ++i) mine[i] = pattern(exchange.rank(), i, round);
  if (const Status status = exchange.all_gather(mine, all, patience()); !status.ok()) {
    return problems.add("all_gather of %zu bytes: %s", bytes, status.to_string().c_str());
  }
  for (std::size_t rank = 0; rank < nranks; ++rank) {
    for (std::size_t i = 0; i < bytes; ++i) {
      if (all[rank * bytes + i] == pattern(static_cast<int>(rank), i, round)) continue;
      return problems.add("all_gather of %zu bytes: byte %zu of rank %zu is wrong", bytes, i, rank);
    }
  }
}

TEST_P(ExchangeOf, GathersInRankOrder) {
  for (const int nranks : {1, 2, 3, 8}) {
    EXPECT_EQ("", run(nranks, [&](Exchange& exchange, Problems& problems) {
                if (exchange.nranks() != nranks) problems.add("nranks() is %d", exchange.nranks());
                const auto ranks = gather_values(exchange, exchange.rank(), patience());
                if (!ranks.ok()) return problems.add("%s", ranks.status().to_string().c_str());
                for (int r = 0; r < nranks; ++r) {
                  if (ranks.value()[static_cast<std::size_t>(r)] != r) problems.add("rank %d is wrong", r);
                }
              }));
  }
}

TEST_P(ExchangeOf, GathersAnyNumberOfBytes) {
  EXPECT_EQ("", run(3, [](Exchange& exchange, Problems& problems) {
              // Around the 16 KiB that processes move at a time, and far beyond.
              for (const std::size_t bytes :
                   {0u, 1u, 7u, 4096u, 16383u, 16384u, 16385u, 32768u, 100003u, 1u << 20}) {
                gather_pattern(exchange, bytes, 0, problems);
              }
            }));
}

TEST_P(ExchangeOf, ManyRoundsOfChangingSize) {
  EXPECT_EQ("", run(4, [](Exchange& exchange, Problems& problems) {
              for (int round = 0; round < 500 && problems.none(); ++round) {
                if (round % 3 == 0) expect_ok(problems, "barrier", exchange.barrier(patience()));
                gather_pattern(exchange, static_cast<std::size_t>(round * 37 % 900), round, problems);
              }
            }));
}

TEST_P(ExchangeOf, BarrierWaitsForTheLast) {
  const Shared<std::atomic<bool>> last_came;
  EXPECT_EQ("", run(3, [&](Exchange& exchange, Problems& problems) {
              if (exchange.rank() == 2) {
                std::this_thread::sleep_for(milliseconds(100));
                last_came->store(true);
              }
              expect_ok(problems, "barrier", exchange.barrier(patience()));
              if (!last_came->load()) problems.add("through before the last rank came");
            }));
}

TEST_P(ExchangeOf, DifferentByteCountsNameRanksAndSizes) {
  EXPECT_EQ("", run(3, [](Exchange& exchange, Problems& problems) {
              const std::size_t bytes = exchange.rank() == 2 ? 24 : 8;
              std::vector<std::byte> mine(bytes), all(bytes * 3, std::byte{0x77});
              const Status status = exchange.all_gather(mine, all, patience());
              expect_failure(problems, "all_gather", status, Code::invalid_usage,
                             {"rank 0", "8 bytes", "rank 2", "24"});
              for (const std::byte byte : all) {
                if (byte != std::byte{0x77}) return problems.add("the output was written");
              }
              // Unusable from now on, at once.
              const auto start = std::chrono::steady_clock::now();
              if (exchange.barrier(patience()).ok()) problems.add("usable after a failure");
              if (std::chrono::steady_clock::now() - start > std::chrono::seconds(5))
                problems.add("waited after a failure");
            }));
}

TEST_P(ExchangeOf, DifferentCallsNameRanksAndCalls) {
  EXPECT_EQ("", run(2, [](Exchange& exchange, Problems& problems) {
              const Status status = exchange.rank() == 0 ? exchange.barrier(patience())
                                                         : gather_values(exchange, 1, patience()).status();
              expect_failure(problems, "call", status, Code::invalid_usage,
                             {"rank 0", "barrier", "rank 1", "all_gather"});
            }));
}

TEST_P(ExchangeOf, DifferentRootsNameRanksAndRoots) {
  EXPECT_EQ("", run(2, [](Exchange& exchange, Problems& problems) {
              const auto fd = exchange.share_fd(exchange.rank() == 0 ? 0 : -1, exchange.rank(), patience());
              if (fd.ok()) return problems.add("share_fd went well");
            }));
}

TEST_P(ExchangeOf, OutputOfAWrongSizeIsRefusedAndToldToTheOthers) {
  EXPECT_EQ("", run(2, [](Exchange& exchange, Problems& problems) {
              std::vector<std::byte> mine(8), all(exchange.rank() == 0 ? 15 : 16);
              const Status status = exchange.all_gather(mine, all, patience());
              if (exchange.rank() == 0) {
                expect_failure(problems, "all_gather", status, Code::invalid_argument, {"all", "15"});
              } else {
                expect_failure(problems, "all_gather", status, Code::remote_error, {"rank 0"});
              }
            }));
}

TEST_P(ExchangeOf, TimeoutNamesTheMissingRanks) {
  const Shared<std::atomic<int>> finished;
  EXPECT_EQ("", run(4, [&](Exchange& exchange, Problems& problems) {
              const auto start = std::chrono::steady_clock::now();
              if (exchange.rank() == 1 || exchange.rank() == 3) {
                if (!wait_until([&] { return finished->load() == 2; }, milliseconds(60'000)))
                  problems.add("no end");
                const Status late = exchange.barrier(patience());
                expect_failure(problems, "late rank", late, Code::remote_error, {"gave up"});
                return;
              }
              const Status status = exchange.barrier(Deadline::after_ms(300));
              const auto took = std::chrono::steady_clock::now() - start;
              // One of the two notices first; the other may learn it from that one.
              if (status.code() == Code::timeout) {
                expect_failure(problems, "barrier", status, Code::timeout, {"barrier", "1, 3"});
                if (took < milliseconds(290)) problems.add("gave up too early");
              } else {
                expect_failure(problems, "barrier", status, Code::remote_error, {"gave up", "1, 3"});
              }
              if (took > std::chrono::seconds(20)) problems.add("gave up too late");
              finished->fetch_add(1);
            }));
}

TEST_P(ExchangeOf, AgreeTellsTheFirstFailureToAll) {
  EXPECT_EQ("", run(4, [](Exchange& exchange, Problems& problems) {
              expect_ok(problems, "agree", agree(exchange, Status(), patience()));
              const Status mine =
                  exchange.rank() >= 2 ? failure(Code::unsupported, "reason %d", exchange.rank()) : Status();
              const Status all = agree(exchange, mine, patience());
              if (exchange.rank() == 3) {
                expect_failure(problems, "agree", all, Code::unsupported, {"reason 3"});
              } else {
                expect_failure(problems, "agree", all, Code::unsupported, {"reason 2"});
              }
              expect_ok(problems, "barrier after it", exchange.barrier(patience()));
            }));
}

TEST_P(ExchangeOf, DescriptorReachesEveryRank) {
  for (int root = 0; root < 3; ++root) {
    EXPECT_EQ("", run(3, [root](Exchange& exchange, Problems& problems) {
                for (int round = 0; round < 3; ++round) {
                  UniqueFd mine;
                  if (exchange.rank() == root) {
                    mine = UniqueFd(::memfd_create("nearlight-test", MFD_CLOEXEC));
                    if (::ftruncate(mine.get(), 100 + round) != 0) problems.add("ftruncate");
                  }
                  auto got = exchange.share_fd(mine.get(), root, patience());
                  if (!got.ok()) return problems.add("share_fd: %s", got.status().to_string().c_str());
                  if (got->get() == mine.get()) problems.add("not a descriptor of its own");
                  mine.reset();
                  if (::lseek(got->get(), 0, SEEK_END) != 100 + round) problems.add("another file");
                  if ((::fcntl(got->get(), F_GETFD) & FD_CLOEXEC) == 0) problems.add("would survive exec");
                }
              }));
  }
}

TEST_P(ExchangeOf, BadDescriptorFailsOnAllRanks) {
  EXPECT_EQ("", run(3, [](Exchange& exchange, Problems& problems) {
              const auto got = exchange.share_fd(-1, 1, patience());
              expect_failure(problems, "share_fd", got.status(), Code::system_error,
                             {"share_fd", "rank 1", "Bad file"});
            }));
}

TEST_P(ExchangeOf, RootOutsideTheGroupIsRefused) {
  EXPECT_EQ("", run(1, [](Exchange& exchange, Problems& problems) {
              expect_failure(problems, "share_fd", exchange.share_fd(0, 1, patience()).status(),
                             Code::invalid_argument, {"root", "1"});
            }));
}

TEST_P(ExchangeOf, KnowsWhereTheRanksLive) {
  const bool threads = GetParam() == Kind::threads;
  EXPECT_EQ("", run(3, [threads](Exchange& exchange, Problems& problems) {
              if (exchange.same_process() != threads) problems.add("same_process() is wrong");
              const auto pids = gather_values(exchange, ::getpid(), patience());
              if (!pids.ok()) return problems.add("%s", pids.status().to_string().c_str());
              if (exchange.processes() != (threads ? std::vector<pid_t>{} : pids.value()))
                problems.add("processes()");
            }));
}

// A rank with a stray pointer is an error for the others, not their end.
TEST(Board, ThatWasOverwrittenIsAnError) {
  for (const std::uint32_t first_failure : {1u, 2u, 0x7fffffffu, 0xffffffffu}) {
    auto created = bootstrap::SharedBoard::create(1);
    ASSERT_TRUE(created.ok()) << created.status().to_string();
    auto lines = bootstrap::make_fd_lines(1);
    ASSERT_TRUE(lines.ok()) << lines.status().to_string();
    const auto board = std::make_shared<const bootstrap::SharedBoard>(std::move(created->board));
    bootstrap::BoardExchange exchange(board, std::move(*lines), 0);
    auto& text = board->rank(0).failure;
    std::memset(text, 'x', sizeof text);
    board->rank(0).pid = 0x78787878;  // what follows a text without an end must not become part of it
    board->header().first_failure = first_failure;
    const Status status = exchange.barrier(patience());
    EXPECT_EQ(status.code(), first_failure == 1 ? Code::remote_error : Code::internal_error)
        << status.to_string();
    EXPECT_LE(status.text().size(), sizeof text + 100);
  }
}

}  // namespace
}  // namespace nearlight::test
