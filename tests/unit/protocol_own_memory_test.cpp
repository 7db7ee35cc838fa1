// Ranks only store to each other: what a rank loads of the scratch, and above all what it waits for, lies in
// its own memory. Over PCIe a load of another GPU's memory takes microseconds, and a poll of it may never see
// the store.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <nearlight/detail/exec/host_space.hpp>
#include <nearlight/detail/protocol/barrier.hpp>
#include "algorithm/host/two_shot.hpp"
#include "algorithm/one_shot.hpp"
#include "algorithm/one_shot_ll128.hpp"
#include "algorithm/one_shot_sentinel.hpp"

namespace nearlight::test {
namespace {

using algorithm::Algorithm;
using algorithm::Protocol;

// The scratch of all ranks, and what the calling thread's rank has touched of it.
struct Watch {
  const char* base = nullptr;
  std::size_t stride = 0;
  int nranks = 0, rank = 0;
  std::uint64_t own_loads = 0, foreign_loads = 0, foreign_stores = 0;

  // -1: no scratch.
  int owner_of(const void* address) const {
    const auto offset = static_cast<const char*>(address) - base;
    if (offset < 0 || static_cast<std::size_t>(offset) >= stride * static_cast<std::size_t>(nranks))
      return -1;
    return static_cast<int>(static_cast<std::size_t>(offset) / stride);
  }
};
thread_local Watch watch;

// The CPU, and a note of the memory that each load reads and each store writes.
struct WatchedSpace : exec::HostSpace {
  using Base = exec::HostSpace;

  static void loads(const void* address) {
    const int owner = watch.owner_of(address);
    if (owner == watch.rank) ++watch.own_loads;
    if (owner >= 0 && owner != watch.rank) ++watch.foreign_loads;
  }
  static void stores(const void* address) {
    const int owner = watch.owner_of(address);
    if (owner >= 0 && owner != watch.rank) ++watch.foreign_stores;
  }

  static bool try_load_line(const Line& line, std::uint32_t flag, exec::Pack& out, std::uint32_t& seen) {
    loads(&line);
    return Base::try_load_line(line, flag, out, seen);
  }
  static void store_line(Line& line, exec::Pack pack, std::uint32_t flag) {
    stores(&line);
    Base::store_line(line, pack, flag);
  }
  template <exec::Order order, exec::Scope scope>
  static std::uint32_t load(const Word& word) {
    loads(&word);
    return Base::load<order, scope>(word);
  }
  template <exec::Order order, exec::Scope scope>
  static void store(Word& word, std::uint32_t value) {
    stores(&word);
    Base::store<order, scope>(word, value);
  }
  static exec::Vec load_packet(const Packet& packet) {
    loads(&packet);
    return Base::load_packet(packet);
  }
  static void store_packet(Packet& packet, const exec::Vec& value) {
    stores(&packet);
    Base::store_packet(packet, value);
  }
  static Part load_part(const Wide& line, int part) {
    loads(&line);
    return Base::load_part(line, part);
  }
  static exec::Pack load_word(const Wide& line) {
    loads(&line);
    return Base::load_word(line);
  }
  static void store_part(Wide& line, int part, const Part& value) {
    stores(&line);
    Base::store_part(line, part, value);
  }
  // Nothing comes back from an add: to another rank's memory it is a store.
  template <exec::Adds adds>
  static void add_part(Wide& line, int part, const Part& value) {
    stores(&line);
    Base::add_part<adds>(line, part, value);
  }
  static void zero_part(Wide& line, int part) {
    stores(&line);
    Base::zero_part(line, part);
  }
  static void clear_word(Wide& line) {
    stores(&line);
    Base::clear_word(line);
  }
  static exec::Vec load_cell(const Cell& cell) {
    loads(&cell);
    return Base::load_cell(cell);
  }
  static void store_cell(Cell& cell, const exec::Vec& value) {
    stores(&cell);
    Base::store_cell(cell, value);
  }
};
static_assert(exec::ExecSpace<WatchedSpace>);

using Region = protocol::FlatRegion<WatchedSpace>;
using Session = protocol::Session<Region, exec::SoloCoop>;
constexpr int kMax = protocol::kMaxRanks;

struct Seen {
  std::uint64_t own_loads = 0, foreign_loads = 0, foreign_stores = 0;
};

// Runs work(session, rank) on every rank, `times` sessions after each other, and tells what all have touched.
template <class Work>
Seen run(int nranks, int times, const Work& work) {
  const protocol::RegionLayout layout{nranks, 8, 6, 8, 4, 4};
  struct alignas(128) Block {
    char bytes[128];
  };
  const std::size_t stride = (layout.region_bytes() + sizeof(Block) - 1) / sizeof(Block) * sizeof(Block);
  std::vector<Block> heap(stride / sizeof(Block) * static_cast<std::size_t>(nranks));
  char* const base = heap[0].bytes;
  for (int rank = 0; rank < nranks; ++rank) {
    std::memset(base + static_cast<std::size_t>(rank) * stride + layout.packets_at(), 0xff,
                layout.packets_bytes());
  }
  std::vector<Seen> seen(static_cast<std::size_t>(nranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nranks; ++rank) {
    threads.emplace_back([&, rank] {
      watch = {base, stride, nranks, rank};
      protocol::RegionState<WatchedSpace> state{};
      WatchedSpace::Word abort = 0, claim = 0, valid = 0;
      protocol::FaultRecord record{};
      const protocol::Control<WatchedSpace> control{&abort, &claim, &valid, &record, 60'000'000'000};
      for (int i = 0; i < times; ++i) {
        Session session(Region(base, stride, rank, layout), exec::SoloCoop{}, state, control, 0, 1);
        work(session, rank);
        session.close();
      }
      EXPECT_EQ(valid, 0u);
      seen[static_cast<std::size_t>(rank)] = {watch.own_loads, watch.foreign_loads, watch.foreign_stores};
    });
  }
  Seen all;
  for (auto& thread : threads) thread.join();
  for (const Seen& one : seen) {
    all.own_loads += one.own_loads;
    all.foreign_loads += one.foreign_loads;
    all.foreign_stores += one.foreign_stores;
  }
  return all;
}

// A sum of `count` floats of each of the ways there are.
void reduce(Session& session, Algorithm algorithm, Protocol protocol, int held, std::uint64_t count,
            int rank) {
  using Math = algorithm::PackMath<WatchedSpace, float, ReduceOp::sum>;
  using Bufs = algorithm::Buffer<WatchedSpace, float>;
  std::vector<float> send(count, static_cast<float>(rank + 1)), recv(count, -1);
  const Bufs input(send.data(), count), output(recv.data(), count);
  const algorithm::NoDelay hooks;
  const algorithm::Share all{0, 1};
  if (algorithm == Algorithm::two_shot_atomic) {
    algorithm::host::two_shot_atomic_of<float>(session, ReduceOp::sum, input, output, hooks);
  } else if (algorithm == Algorithm::two_shot) {
    algorithm::host::two_shot_of<float, kMax>(session, protocol, input, output, hooks, Math{});
  } else if (protocol == Protocol::ll128) {
    algorithm::one_shot_ll128<Math, kMax>(session, all, input, output, hooks);
  } else if (protocol == Protocol::sentinel) {
    algorithm::one_shot_sentinel<Math, algorithm::SentinelCell<float>, kMax>(session, all, 1, input, output,
                                                                             hooks);
  } else if (protocol == Protocol::simple) {
    algorithm::one_shot_simple<Math, kMax, 1>(session, all, input, output, hooks);
  } else if (held == 0) {
    algorithm::one_shot_ll<Math, kMax, 0>(session, all, input, output, hooks);
  } else {
    algorithm::one_shot_ll<Math, kMax, 1>(session, all, input, output, hooks);
  }
  const auto n = static_cast<float>(session.view().nranks());
  for (const float value : recv) ASSERT_EQ(value, n * (n + 1) / 2);
}

TEST(OwnMemory, NoAlgorithmLoadsFromAnotherRank) {
  const struct {
    Algorithm algorithm;
    Protocol protocol;
    int held;
  } ways[] = {{Algorithm::one_shot, Protocol::ll, 0},       {Algorithm::one_shot, Protocol::ll, 1},
              {Algorithm::one_shot, Protocol::simple, 0},   {Algorithm::one_shot, Protocol::sentinel, 0},
              {Algorithm::one_shot, Protocol::ll128, 0},    {Algorithm::two_shot, Protocol::ll, 0},
              {Algorithm::two_shot, Protocol::sentinel, 0}, {Algorithm::two_shot_atomic, Protocol::ll128, 0}};
  for (const auto& way : ways) {
    for (const int nranks : {2, 3, 4}) {
      for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{8}, std::uint64_t{400}}) {
        // Two-shot is for messages that every rank owns a part of.
        if (way.algorithm != Algorithm::one_shot && count < 400) continue;
        const Seen seen = run(nranks, 5, [&](Session& session, int rank) {
          reduce(session, way.algorithm, way.protocol, way.held, count, rank);
        });
        EXPECT_EQ(seen.foreign_loads, 0u) << name_of(way.algorithm) << ' ' << name_of(way.protocol) << ", "
                                          << nranks << " ranks, " << count << " elements";
        EXPECT_GT(seen.own_loads, 0u);
        EXPECT_GT(seen.foreign_stores, 0u);
      }
    }
  }
}

TEST(OwnMemory, NorDoesTheBarrier) {
  const Seen seen = run(3, 5, [](Session& session, int) { protocol::flag_barrier(session); });
  EXPECT_EQ(seen.foreign_loads, 0u);
  EXPECT_GT(seen.own_loads, 0u);
  EXPECT_GT(seen.foreign_stores, 0u);
}

TEST(OwnMemory, AnAddIsAStoreAndALookAtAnothersSumIsFound) {
  constexpr auto kF32 = exec::Adds::f32;
  const WatchedSpace::Part one{};
  const Seen adds = run(2, 1, [&](Session& session, int rank) {
    WatchedSpace::add_part<kF32>(session.view().sum(1 - rank, 0, 0), 0, one);
  });
  EXPECT_EQ(adds.foreign_loads, 0u);
  EXPECT_EQ(adds.foreign_stores, 2u);
  const Seen looks = run(2, 1, [](Session& session, int rank) {
    static_cast<void>(WatchedSpace::load_part(session.view().sum(1 - rank, 0, 0), 0));
    static_cast<void>(WatchedSpace::load_word(session.view().wide(1 - rank, 0, rank, 0)));
  });
  EXPECT_EQ(looks.foreign_loads, 4u);
  EXPECT_EQ(looks.foreign_stores, 0u);
}

// A barrier that looks at the others' flags would be found.
TEST(OwnMemory, APollOfAnotherRanksMemoryWouldBeFound) {
  const Seen seen = run(2, 1, [](Session& session, int rank) {
    const auto& view = session.view();
    WatchedSpace::store<exec::Order::release, exec::Scope::system>(view.flag(rank, 0, rank), 1);
    while (WatchedSpace::load<exec::Order::acquire, exec::Scope::system>(view.flag(1 - rank, 0, 1 - rank)) !=
           1) {
      std::this_thread::yield();
    }
  });
  EXPECT_GT(seen.foreign_loads, 0u);
  EXPECT_EQ(seen.foreign_stores, 0u);
}

}  // namespace
}  // namespace nearlight::test
