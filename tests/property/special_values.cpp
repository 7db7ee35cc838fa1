// Values for which the order, the rounding or the comparison matters, with exact results.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/support/ranks.hpp"
#include "tests/support/reference.hpp"

namespace nearlight::test {
namespace {

constexpr std::optional<route::Protocol> kProtocols[] = {std::nullopt, route::Protocol::ll,
                                                         route::Protocol::simple};

struct Case {
  const char* what;
  std::vector<std::uint32_t> inputs;  // one a rank
  std::uint32_t result;               // of the exact bits; any NaN when it is one
};

// Each case in every place of a pack and vector, on as many ranks as it has inputs.
void check(DataType type, ReduceOp op, const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    const auto problems = run_communicators(
        Kind::threads, static_cast<int>(one.inputs.size()), patient(),
        [&](runtime::Communicator& comm, Exchange&, Problems& trouble) {
          constexpr std::size_t kCount = 9;
          const std::uint32_t mine = one.inputs[static_cast<std::size_t>(comm.rank())];
          for (const auto& protocol : kProtocols) {
            std::uint32_t send[kCount] = {}, recv[kCount];
            std::memset(recv, 0x5a, sizeof recv);
            for (std::size_t i = 0; i < kCount; ++i) store_bits(type, send, i, mine);
            runtime::CallOptions options;
            options.protocol = protocol;
            const Status status = comm.all_reduce(send, recv, kCount, type, op, nullptr, options);
            if (!status.ok()) trouble.add("%s", status.to_string().c_str());
            for (std::size_t i = 0; i < kCount; ++i) {
              const std::uint32_t got = load_bits(type, recv, i);
              if (is_nan(type, one.result) ? is_nan(type, got) : got == one.result) continue;
              trouble.add("element %zu is %08x, expected %08x", i, got, one.result);
            }
          }
        });
    EXPECT_EQ(problems, "");
  }
}

std::uint32_t f(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint32_t b(double value) { return round_to(DataType::bf16, value); }
constexpr std::uint32_t kNan = 0x7fc00000, kSignalling = 0xff800001, kInfinity = 0x7f800000,
                        kMinusInfinity = 0xff800000;
constexpr std::uint32_t kMinusZero = 0x80000000, kSmallest = 1, kLargest = 0x7f7fffff;

TEST(SpecialValues, MaxOfFloats) {
  check(DataType::f32, ReduceOp::max,
        {
            {"a NaN loses to a number", {kNan, f(-3)}, f(-3)},
            {"on either side", {f(-3), kSignalling}, f(-3)},
            {"a NaN loses to minus infinity", {kNan, kMinusInfinity, kNan}, kMinusInfinity},
            {"only NaNs give a NaN", {kNan, kSignalling, 0x7f812345}, kNan},
            {"plus zero beats minus zero", {kMinusZero, 0, kMinusZero}, 0},
            {"on either side", {0, kMinusZero}, 0},
            {"minus zero stays", {kMinusZero, kMinusZero, kMinusZero}, kMinusZero},
            {"infinity", {f(1e38f), kInfinity, kNan, kMinusInfinity}, kInfinity},
            {"subnormals are not flushed", {kMinusZero, kSmallest}, kSmallest},
            {"nor are negative ones", {0x80000001, 0x80000002}, 0x80000001},
            {"the last of eight ranks", {f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8)}, f(8)},
        });
}

TEST(SpecialValues, MaxOfBf16) {
  check(DataType::bf16, ReduceOp::max,
        {
            {"a NaN loses to a number", {0x7fc1, b(-3)}, b(-3)},
            {"on either side", {b(-3), 0xff81}, b(-3)},
            {"only NaNs give a NaN", {0x7f81, 0xffff}, 0x7fff},
            {"plus zero beats minus zero", {0x8000, 0}, 0},
            {"minus zero stays", {0x8000, 0x8000}, 0x8000},
            {"subnormals are not flushed", {0x8000, 1, 0}, 1},
            {"infinity", {0x7f7f, 0x7f80, 0xff80}, 0x7f80},
            {"the first of seven ranks", {b(8), b(1), b(2), b(3), b(4), b(5), b(6)}, b(8)},
        });
}

TEST(SpecialValues, SumOfFloats) {
  check(DataType::f32, ReduceOp::sum,
        {
            {"a NaN stays", {f(1), kNan, f(2)}, kNan},
            {"a signalling one too", {kSignalling, f(1)}, kNan},
            {"infinity less infinity", {kInfinity, kMinusInfinity}, kNan},
            {"infinity", {kInfinity, f(-1e38f), kInfinity}, kInfinity},
            {"minus zeros", {kMinusZero, kMinusZero, kMinusZero}, kMinusZero},
            {"zeros of both signs", {kMinusZero, 0}, 0},
            {"subnormals", {kSmallest, kSmallest, kSmallest}, 3},
            {"into the normals", {0x007fffff, kSmallest}, 0x00800000},
            {"out of range", {kLargest, kLargest, f(-1)}, kInfinity},
            {"the order of ranks: the big one first", {f(16777216), f(1), f(1), f(-16777216)}, 0},
            {"the order of ranks: the small ones first", {f(1), f(1), f(16777216), f(-16777216)}, f(2)},
        });
}

// Accumulated in f32 and rounded once: in 16 bits each of these would come out wrong.
TEST(SpecialValues, SumOfBf16) {
  check(DataType::bf16, ReduceOp::sum,
        {
            {"ones that vanish beside 256 in 16 bits",
             {b(256), b(1), b(1), b(1), b(1), b(1), b(1), b(1)},
             b(264)},
            {"an outlier cancels", {b(75264), b(1), b(1), b(1), b(1), b(1), b(1), b(-75264)}, b(6)},
            {"outlier and ones", {b(75264), b(-1), b(1), b(-1), b(1), b(-1), b(1), b(1)}, b(75265)},
            {"outlier and half steps",
             {b(75264), b(64), b(64), b(64), b(64), b(64), b(64), b(64)},
             b(75264 + 7 * 64)},
            {"a tie goes to the even neighbour", {b(256), b(1)}, b(256)},
            {"also upwards", {b(258), b(1)}, b(260)},
            {"just above the tie", {b(256), b(1), b(0.00390625)}, b(258)},
            {"a NaN stays, with the exponent of one", {0x7f81, b(1)}, 0x7fff},
            {"infinity less infinity", {0x7f80, 0xff80}, 0x7fff},
            {"minus zeros", {0x8000, 0x8000}, 0x8000},
            {"subnormals", {1, 1, 1}, 3},
            {"out of range by rounding", {0x7f7f, 0x7b80}, 0x7f80},
        });
}

TEST(SpecialValues, IntegersWrap) {
  check(DataType::i32, ReduceOp::sum,
        {
            {"past the largest", {0x7fffffff, 1}, 0x80000000},
            {"past the smallest", {0x80000000, 0xffffffff}, 0x7fffffff},
            {"all the way round", {0x80000000, 0x80000000, 5}, 5},
            {"eight times", std::vector<std::uint32_t>(8, 0x7fffffff), 0xfffffff8},
        });
  check(DataType::i32, ReduceOp::max,
        {
            {"compared with their sign", {0x80000000, 0x7fffffff, 0xffffffff}, 0x7fffffff},
            {"all negative", {0xfffffffe, 0xffffffff, 0x80000000}, 0xffffffff},
        });
}

// The one rank of a group of one gets its own bits back, NaNs and all.
TEST(SpecialValues, OneRankKeepsItsBits) {
  check(DataType::f32, ReduceOp::max, {{"minus zero", {kMinusZero}, kMinusZero}, {"number", {f(3)}, f(3)}});
  check(DataType::bf16, ReduceOp::sum, {{"largest", {0x7f7f}, 0x7f7f}, {"NaN", {0x7f81}, 0x7f81}});
  check(DataType::i32, ReduceOp::sum, {{"any", {0x12345678}, 0x12345678}});
}

// |result - exact sum| in units of the result's last place: at most half of one (and what fp32 adds, far
// below) for bf16; for f32 one rounding a rank.
TEST(SpecialValues, SumsAreWithinTheirRounding) {
  for (const DataType type : {DataType::f32, DataType::bf16}) {
    const auto problems = run_communicators(
        Kind::threads, 8, patient(), [&](runtime::Communicator& comm, Exchange&, Problems& trouble) {
          constexpr std::uint64_t kCount = 20'000 / kSlowDown;
          const Source source{Values::numbers, 77};
          std::vector<std::uint32_t> data(kCount);
          for (std::uint64_t i = 0; i < kCount; ++i) {
            store_bits(type, data.data(), i,
                       input_bits(source, type, comm.rank(), i) & 0x7fffffffu &
                           (type == DataType::bf16 ? 0x7fffu : ~0u));
          }
          const Status status =
              comm.all_reduce(data.data(), data.data(), kCount, type, ReduceOp::sum, nullptr);
          if (!status.ok()) trouble.add("%s", status.to_string().c_str());
          for (std::uint64_t i = 0; i < kCount; ++i) {
            double exact = 0;
            for (int rank = 0; rank < comm.nranks(); ++rank)
              exact += std::fabs(value_of(type, input_bits(source, type, rank, i)));
            const double off =
                std::fabs(value_of(type, load_bits(type, data.data(), i)) - exact) / ulp_at(type, exact);
            const double limit = type == DataType::bf16 ? 0.5 + 7.0 / 65536 : 3.5;
            if (off > limit)
              trouble.add("%s element %llu: %.4f units off", name_of(type),
                          static_cast<unsigned long long>(i), off);
          }
        });
    EXPECT_EQ(problems, "");
  }
}

// Whole numbers in floating point must come out exact whatever the order.
TEST(SpecialValues, WholeNumbersAreExact) {
  for (const DataType type : kDataTypes) {
    for (const int nranks : {2, 5, 8}) {
      const auto problems = run_communicators(
          Kind::threads, nranks, patient(), [&](runtime::Communicator& comm, Exchange&, Problems& trouble) {
            constexpr std::uint64_t kCount = 5000 / kSlowDown;
            const Source source{Values::pattern, 5};
            std::vector<std::uint32_t> send(kCount), recv(kCount);
            for (std::uint64_t i = 0; i < kCount; ++i) {
              store_bits(type, send.data(), i, input_bits(source, type, comm.rank(), i));
            }
            const Status status =
                comm.all_reduce(send.data(), recv.data(), kCount, type, ReduceOp::sum, nullptr);
            if (!status.ok()) trouble.add("%s", status.to_string().c_str());
            for (std::uint64_t i = 0; i < kCount; ++i) {
              double exact = 0;
              for (int rank = 0; rank < nranks; ++rank) {
                const std::uint32_t bits = input_bits(source, type, rank, i);
                exact += type == DataType::i32 ? bits : value_of(type, bits);
              }
              const std::uint32_t bits = load_bits(type, recv.data(), i);
              const double got = type == DataType::i32 ? bits : value_of(type, bits);
              if (got != exact)
                trouble.add("%s element %llu: %g, not %g", name_of(type), static_cast<unsigned long long>(i),
                            got, exact);
            }
          });
      EXPECT_EQ(problems, "");
    }
  }
}

}  // namespace
}  // namespace nearlight::test
