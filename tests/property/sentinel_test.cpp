// The cell that stands for "not arrived": a NaN throughout, and what looks like it is sent as another NaN.
#include "algorithm/one_shot_sentinel.hpp"
#include "algorithm/sentinel_cell.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/support/ranks.hpp"
#include "tests/support/reference.hpp"

namespace nearlight::test {
namespace {

using algorithm::SentinelCell;

static_assert(!algorithm::kHasSentinel<std::int8_t> && !algorithm::kHasSentinel<std::uint64_t>);
static_assert(sizeof(SentinelCell<float>::Cell) == 4 && sizeof(SentinelCell<double>::Cell) == 8);
static_assert(sizeof(SentinelCell<F8e4m3>::Cell) == 4 && sizeof(SentinelCell<Bf16>::Cell) == 4);

// What is sent instead of `cell` is not the sentinel; it is the same cell, but for NaNs that may be others.
template <class T>
void expect_faithful(DataType type, typename SentinelCell<T>::Cell cell) {
  using C = SentinelCell<T>;
  const typename C::Cell sent = C::to_send(cell);
  ASSERT_FALSE(C::is_sentinel(sent)) << std::hex << cell;
  if (!C::is_sentinel(cell)) {
    ASSERT_EQ(sent, cell);
    return;
  }
  for (int i = 0; i < C::kPerCell; ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    ASSERT_TRUE(is_nan(type, load_bits(type, &cell, at))) << name_of(type) << " element " << i;
    ASSERT_TRUE(is_nan(type, load_bits(type, &sent, at))) << name_of(type) << " element " << i;
    if (i > 0) {
      ASSERT_EQ(load_bits(type, &sent, at), load_bits(type, &cell, at));
    }
  }
}

TEST(SentinelCell, IsANanInEveryElementAndIsRewrittenToAnother) {
  for (const DataType type : kDataTypes) {
    EXPECT_EQ(algorithm::has_sentinel(type), !is_integer(type));
    with_type(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (!std::is_void_v<T>) {
        EXPECT_EQ(algorithm::kHasSentinel<T>, algorithm::has_sentinel(type));
        if constexpr (algorithm::kHasSentinel<T>) {
          expect_faithful<T>(type, SentinelCell<T>::kSentinel);
          typename SentinelCell<T>::Cell filled;
          std::memset(&filled, 0xff, sizeof filled);
          EXPECT_TRUE(SentinelCell<T>::is_sentinel(filled)) << "what a fill of bytes makes";
        }
      }
    });
  }
}

// Every code of 8 and 16 bits, in each place of a cell, beside the sentinel's own elements and beside others.
template <class T>
void check_every_code(DataType type) {
  using C = SentinelCell<T>;
  using Cell = typename C::Cell;
  constexpr std::uint64_t kCodes = std::uint64_t{1} << 8 * sizeof(T);
  for (std::uint64_t code = 0; code < kCodes; ++code) {
    for (int place = 0; place < C::kPerCell; ++place) {
      for (Cell cell :
           {C::kSentinel, Cell{0}, static_cast<Cell>(0xff7fff7fu), static_cast<Cell>(0x7f7f7fffu)}) {
        store_bits(type, &cell, static_cast<std::uint64_t>(place), code);
        expect_faithful<T>(type, cell);
      }
    }
  }
}

TEST(SentinelCell, LeavesEveryOtherCellAlone) {
  check_every_code<Bf16>(DataType::bf16);
  check_every_code<F16>(DataType::f16);
  check_every_code<F8e4m3>(DataType::f8e4m3);
  check_every_code<F8e5m2>(DataType::f8e5m2);
  std::mt19937_64 random(1);
  for (int i = 0; i < 200'000 / kSlowDown; ++i) {
    const std::uint64_t bits = i % 2 == 0 ? random() : ~(std::uint64_t{1} << random() % 64);
    expect_faithful<float>(DataType::f32, static_cast<std::uint32_t>(bits));
    expect_faithful<double>(DataType::f64, bits);
  }
}

// No reduction gives the sentinel's element: the one NaN of results has no sign.
TEST(SentinelCell, IsNoResult) {
  for (const DataType type : kDataTypes) {
    if (!algorithm::has_sentinel(type)) continue;
    const std::uint64_t all_ones = nan_of(type) * 2 + 1;
    const std::uint64_t inputs[] = {all_ones, all_ones};
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::avg}) {
      EXPECT_EQ(reduce_reference(type, op, inputs), nan_of(type));
      const auto problems = run_communicators(
          Kind::threads, 2, patient(), [&](runtime::Communicator& comm, Exchange&, Problems& trouble) {
            for (const auto protocol : algorithm::kProtocols) {
              std::uint64_t data[5];
              std::memset(data, 0xff, sizeof data);
              runtime::CallOptions options;
              options.protocol = protocol;
              const Status status =
                  comm.all_reduce(data, data, sizeof data / size_of(type), type, op, nullptr, options);
              if (!status.ok()) trouble.add("%s", status.to_string().c_str());
              for (std::size_t i = 0; i < sizeof data / size_of(type); ++i) {
                if (load_bits(type, data, i) != nan_of(type))
                  trouble.add("%s %s %s", name_of(type), name_of(op), algorithm::name_of(protocol));
              }
            }
          });
      EXPECT_EQ(problems, "");
    }
  }
}

// A rank whose addresses allow the kernel of one round has its groups begin every `held` packets; one whose
// addresses do not takes its cut from sentinel_span(): it must be the same wherever that kernel may run.
TEST(SentinelSpan, IsThatOfTheSingleRoundWhereThereIsOne) {
  using algorithm::sentinel_span;
  for (const std::uint32_t packets : {32u, 128u, 512u, 2048u}) {
    for (const std::uint32_t groups : {1u, 2u, 9u, 64u}) {
      for (const std::uint32_t held : {32u, 128u, 512u, 2048u}) {
        const std::uint64_t most = std::uint64_t{groups} * held;
        for (std::uint64_t vecs = most > 5000 ? most - 5000 : 1; vecs <= most + 2; ++vecs) {
          const std::uint32_t span = sentinel_span(vecs, groups, held, packets);
          ASSERT_LE(span, packets);
          ASSERT_GE(span, 1u);
          if (vecs <= most && held <= packets) {
            ASSERT_EQ(span, held) << vecs << ' ' << groups;
          }
          // One round wherever the regions allow it.
          if (vecs <= std::uint64_t{groups} * packets) {
            ASSERT_GE(std::uint64_t{groups} * span, vecs);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace nearlight::test
