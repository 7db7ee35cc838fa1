#include "memory/shm_heap.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <thread>

#include "bootstrap/fork_group.hpp"
#include "bootstrap/in_process.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::test {
namespace {

using memory::create_shm_heap;
using memory::HeapView;

Deadline patience() { return Deadline::after(std::chrono::seconds(60)); }

class ShmHeapOf : public testing::TestWithParam<Kind> {
 protected:
  std::string run(int nranks, const std::function<void(Exchange&, Problems&)>& body) {
    return run_ranks(GetParam(), nranks, body);
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, ShmHeapOf, testing::Values(Kind::threads, Kind::processes),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

int open_descriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Mappings of shared heaps in this process.
int heap_mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:nearlight-heap") != std::string::npos) ++count;
  }
  return count;
}

// Kilobytes that /proc/self/status gives under `name`.
long status_kb(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stol(line.substr(name.size() + 1));
  }
  return -1;
}

void write_and_read(const HeapView& view, Exchange& exchange, Problems& problems) {
  const auto value = [](int rank, std::size_t at) {
    return static_cast<char>(rank * 53 + static_cast<int>(at % 97) + 1);
  };
  for (std::size_t at = 0; at < view.bytes; at += std::max<std::size_t>(1, view.bytes / 1000)) {
    view.mine()[at] = value(view.rank, at);
  }
  view.mine()[view.bytes - 1] = value(view.rank, 5);
  meet(exchange, problems);
  for (int peer = 0; peer < view.nranks; ++peer) {
    for (std::size_t at = 0; at + 1 < view.bytes; at += std::max<std::size_t>(1, view.bytes / 1000)) {
      if (view.part(peer)[at] != value(peer, at))
        return problems.add("byte %zu of rank %d is wrong", at, peer);
    }
    if (view.part(peer)[view.bytes - 1] != value(peer, 5))
      problems.add("last byte of rank %d is wrong", peer);
  }
  meet(exchange, problems);
  // And the other way round: everyone writes into everyone's part.
  for (int peer = 0; peer < view.nranks; ++peer) {
    if (static_cast<std::size_t>(view.rank) < view.bytes)
      view.part(peer)[view.rank] = static_cast<char>(100 + view.rank);
  }
  meet(exchange, problems);
  for (int peer = 0; peer < view.nranks; ++peer) {
    if (static_cast<std::size_t>(peer) < view.bytes && view.mine()[peer] != 100 + peer)
      problems.add("rank %d did not write", peer);
  }
}

TEST_P(ShmHeapOf, SharesZeroedMemory) {
  for (const int nranks : {1, 2, 5}) {
    for (const std::size_t bytes :
         {std::size_t{1}, std::size_t{4096}, std::size_t{4097}, std::size_t{3} << 20}) {
      EXPECT_EQ("", run(nranks, [&](Exchange& exchange, Problems& problems) {
                  auto heap = create_shm_heap(exchange, bytes, patience());
                  if (!heap.ok()) return problems.add("%s", heap.status().to_string().c_str());
                  const HeapView& view = (*heap)->view();
                  if (std::strcmp((*heap)->kind(), "shm") != 0) problems.add("kind is %s", (*heap)->kind());
                  if (view.rank != exchange.rank() || view.nranks != nranks || view.bytes != bytes)
                    problems.add("view");
                  if (view.stride < bytes || view.stride % 4096 != 0)
                    problems.add("stride is %zu", view.stride);
                  if (reinterpret_cast<std::uintptr_t>(view.base) % 4096 != 0)
                    problems.add("base is %p", static_cast<void*>(view.base));
                  for (int peer = 0; peer < nranks; ++peer) {
                    const char* const part = view.part(peer);
                    if (std::any_of(part, part + bytes, [](char byte) { return byte != 0; }))
                      problems.add("not zeroed");
                  }
                  meet(exchange, problems);
                  write_and_read(view, exchange, problems);
                }));
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // their shadow memory has faults of its own
TEST_P(ShmHeapOf, PagesAreInPlace) {
  EXPECT_EQ("", run(2, [](Exchange& exchange, Problems& problems) {
              auto heap = create_shm_heap(exchange, 1 << 20, patience());
              if (!heap.ok()) return problems.add("%s", heap.status().to_string().c_str());
              const HeapView& view = (*heap)->view();
              meet(exchange, problems);
              rusage before{}, after{};
              ::getrusage(RUSAGE_THREAD, &before);
              for (int peer = 0; peer < 2; ++peer) {
                for (std::size_t at = 0; at < view.bytes; at += 4096)
                  static_cast<volatile char*>(view.part(peer))[at + 64 * exchange.rank()] = 1;
              }
              ::getrusage(RUSAGE_THREAD, &after);
              // 512 pages; a few faults may have other reasons.
              if (after.ru_minflt - before.ru_minflt > 50)
                problems.add("%ld page faults", after.ru_minflt - before.ru_minflt);
              meet(exchange, problems);
            }));
}
#endif

TEST_P(ShmHeapOf, DifferentSizesFailOnAllRanks) {
  EXPECT_EQ("", run(3, [](Exchange& exchange, Problems& problems) {
              const auto heap = create_shm_heap(exchange, exchange.rank() == 1 ? 8192 : 4096, patience());
              expect_failure(problems, "create", heap.status(), Code::invalid_argument,
                             {"bytes", "rank 0", "4096", "rank 1", "8192"});
              meet(exchange, problems);  // the exchange is still fine
            }));
}

TEST_P(ShmHeapOf, ImpossibleSizesFailOnAllRanks) {
  EXPECT_EQ("", run(2, [](Exchange& exchange, Problems& problems) {
              for (const std::size_t bytes : {std::size_t{0}, std::size_t{1} << 46, ~std::size_t{0}}) {
                const auto heap = create_shm_heap(exchange, bytes, patience());
                expect_failure(problems, "create", heap.status(), Code::invalid_argument,
                               {"bytes", std::to_string(bytes)});
              }
              meet(exchange, problems);
            }));
}

TEST_P(ShmHeapOf, MissingRankEndsInTime) {
  const Shared<std::atomic<bool>> done;
  EXPECT_EQ("", run(2, [&](Exchange& exchange, Problems& problems) {
              if (exchange.rank() == 1) {
                if (!wait_until([&] { return done->load(); }, std::chrono::seconds(60)))
                  problems.add("no end");
                return;
              }
              const auto heap = create_shm_heap(exchange, 4096, Deadline::after_ms(200));
              expect_failure(problems, "create", heap.status(), Code::timeout, {"rank(s) 1"});
              done->store(true);
            }));
}

struct Usage {
  int descriptors, mappings;
  long size_kb;
};
// One rank after the other: looking opens a descriptor that a thread beside it would count.
Usage usage_in_turn(Exchange& exchange, Problems& problems) {
  Usage usage{};
  for (int turn = 0; turn < exchange.nranks(); ++turn) {
    meet(exchange, problems);
    if (turn == exchange.rank()) usage = {open_descriptors(), heap_mappings(), status_kb("VmSize")};
  }
  meet(exchange, problems);
  return usage;
}

TEST_P(ShmHeapOf, LeavesNothingBehind) {
  constexpr std::size_t kBytes = std::size_t{16} << 20;
  EXPECT_EQ("", run(2, [](Exchange& exchange, Problems& problems) {
              const auto once = [&](bool fail) {
                const std::size_t bytes = fail && exchange.rank() == 1 ? kBytes / 2 : kBytes;
                const auto heap = create_shm_heap(exchange, bytes, patience());
                if (heap.ok() == fail) problems.add("create: %s", heap.status().to_string().c_str());
              };
              once(false);
              const Usage before = usage_in_turn(exchange, problems);
              for (int i = 0; i < 20; ++i) once(i % 4 == 3);
              const Usage after = usage_in_turn(exchange, problems);
              if (after.descriptors != before.descriptors)
                problems.add("%d descriptors, were %d", after.descriptors, before.descriptors);
              if (after.mappings != before.mappings)
                problems.add("%d mappings, were %d", after.mappings, before.mappings);
              // One heap of both ranks is 32 MiB.
              const long grown_kb = after.size_kb - before.size_kb;
              if (grown_kb > 16 * 1024) problems.add("grown by %ld kB", grown_kb);
            }));
}

// The heap keeps the memory, not the exchange and not rank 0.
TEST(ShmHeap, OutlivesExchangeAndOtherRanks) {
  std::array<std::unique_ptr<memory::Heap>, 2> heaps;
  {
    auto group = bootstrap::make_in_process_group(2);
    std::array<std::thread, 2> threads;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      threads[rank] = std::thread([&, rank] {
        auto heap = create_shm_heap(*group[rank], 4 << 20, patience());
        ASSERT_TRUE(heap.ok()) << heap.status().to_string();
        heaps[rank] = std::move(heap).value();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  ASSERT_NE(heaps[1], nullptr);
  heaps[0].reset();
  const HeapView& view = heaps[1]->view();
  std::memset(view.part(0), 1, view.bytes);
  EXPECT_EQ(view.part(0)[view.bytes - 1], 1);
}

TEST(ShmHeap, LargeHeapsLieOnHugePageBoundaries) {
  auto group = bootstrap::make_in_process_group(1);
  const auto heap = create_shm_heap(*group[0], (2 << 20) + 1, patience());
  ASSERT_TRUE(heap.ok());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(heap.value()->view().base) % (2 << 20), 0u);
  EXPECT_EQ(heap.value()->view().stride, std::size_t{4} << 20);
}

// Runs the creation between three processes, with `before` run in each, and wants the same kind of failure on
// all of them and nothing left behind.
void expect_failure_everywhere(const std::function<void(Exchange&)>& before, std::size_t bytes,
                               std::string_view word) {
  EXPECT_EQ("", run_ranks(Kind::processes, 3, [&](Exchange& exchange, Problems& problems) {
              const int descriptors = open_descriptors();
              before(exchange);
              const auto heap = create_shm_heap(exchange, bytes, patience());
              if (heap.status().code() != Code::system_error) {
                problems.add("expected a system error, got %s", heap.status().to_string().c_str());
              }
              if (heap.status().text().find(word) == std::string::npos)
                problems.add("%s", heap.status().to_string().c_str());
              rlimit limit{};
              ::getrlimit(RLIMIT_NOFILE, &limit);
              limit.rlim_cur = limit.rlim_max;
              ::setrlimit(RLIMIT_NOFILE, &limit);
              if (open_descriptors() != descriptors) problems.add("descriptors are left");
              if (heap_mappings() != 0) problems.add("mappings are left");
            }));
}

void allow_no_more_descriptors() {
  const int next = ::dup(0);
  ::close(next);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<rlim_t>(next);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(ShmHeap, Rank0WithoutDescriptors) {
  expect_failure_everywhere(
      [](Exchange& e) {
        if (e.rank() == 0) allow_no_more_descriptors();
      },
      4096, "memfd_create");
}

TEST(ShmHeap, OtherRankWithoutDescriptors) {
  expect_failure_everywhere(
      [](Exchange& e) {
        if (e.rank() == 2) allow_no_more_descriptors();
      },
      4096, "share_fd");
}

TEST(ShmHeap, RankWithLimitOnFileSize) {
  expect_failure_everywhere(
      [](Exchange& e) {
        if (e.rank() != 0) return;
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{.rlim_cur = 4096, .rlim_max = 4096};
        ::setrlimit(RLIMIT_FSIZE, &limit);
      },
      1 << 20, "ftruncate");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need all the addresses there are
TEST(ShmHeap, RankWithoutAddresses) {
  expect_failure_everywhere(
      [](Exchange& e) {
        if (e.rank() != 1) return;
        const auto now = static_cast<rlim_t>(status_kb("VmSize")) * 1024;
        const rlimit limit{.rlim_cur = now + (16 << 20), .rlim_max = now + (16 << 20)};
        ::setrlimit(RLIMIT_AS, &limit);
      },
      32 << 20, "mmap");
}
#endif

TEST(ShmHeap, RankKilledInTheMiddle) {
  EXPECT_EQ("", run_ranks(
                    Kind::processes, 3,
                    [](Exchange& exchange, Problems& problems) {
                      if (exchange.rank() == 1) {
                        // Takes part in the first step only.
                        static_cast<void>(gather_values(exchange, std::size_t{4096}, patience()));
                        ::raise(SIGKILL);
                      }
                      const auto heap = create_shm_heap(exchange, 4096, patience());
                      expect_failure(problems, "create", heap.status(), Code::remote_error, {"rank 1"});
                    },
                    {}, 1u << 1));
}

}  // namespace
}  // namespace nearlight::test
