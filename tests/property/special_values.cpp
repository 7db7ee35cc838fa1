// Values for which the order, the rounding or the comparison matters, with exact results.
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "tests/support/ranks.hpp"
#include "tests/support/reference.hpp"

namespace nearlight::test {
namespace {

constexpr std::optional<route::Protocol> kProtocols[] = {std::nullopt, route::Protocol::ll,
                                                         route::Protocol::simple, route::Protocol::sentinel,
                                                         route::Protocol::ll128};

struct Case {
  const char* what;
  std::vector<std::uint64_t> inputs;  // one a rank
  std::uint64_t result;               // to the bit; a NaN in any form means the one that results have
  std::vector<std::uint64_t> factors = {};
};

// Each case in every place of a pack and vector, on as many ranks as it has inputs.
void check(DataType type, ReduceOp op, const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    const auto problems = run_communicators(
        Kind::threads, static_cast<int>(one.inputs.size()), patient(),
        [&](runtime::Communicator& comm, Exchange&, Problems& trouble) {
          constexpr std::size_t kCount = 19;
          const auto rank = static_cast<std::size_t>(comm.rank());
          const std::uint64_t mine = one.inputs[rank];
          const std::uint64_t expected =
              is_nan(type, one.result) && comm.nranks() > 1 ? nan_of(type) : one.result;
          const Reduction reduction =
              op == ReduceOp::premul_sum ? Reduction::premul_sum(type, &one.factors[rank]) : Reduction(op);
          for (const auto& protocol : kProtocols) {
            if (protocol && !algorithm::carries(*protocol, type)) continue;
            std::uint64_t send[kCount] = {}, recv[kCount];
            std::memset(recv, 0x5a, sizeof recv);
            for (std::size_t i = 0; i < kCount; ++i) store_bits(type, send, i, mine);
            runtime::CallOptions options;
            options.protocol = protocol;
            const Status status = comm.all_reduce(send, recv, kCount, type, reduction, nullptr, options);
            if (!status.ok()) trouble.add("%s", status.to_string().c_str());
            for (std::size_t i = 0; i < kCount; ++i) {
              const std::uint64_t got = load_bits(type, recv, i);
              if (got == expected) continue;
              trouble.add("element %zu is %llx, expected %llx", i, static_cast<unsigned long long>(got),
                          static_cast<unsigned long long>(expected));
            }
          }
        });
    EXPECT_EQ(problems, "");
  }
}

std::uint64_t f(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint64_t b(double value) { return round_to(DataType::bf16, value); }
std::uint64_t h(double value) { return round_to(DataType::f16, value); }
std::uint64_t d(double value) { return std::bit_cast<std::uint64_t>(value); }
std::uint64_t e4(double value) { return round_to(DataType::f8e4m3, value); }
std::uint64_t e5(double value) { return round_to(DataType::f8e5m2, value); }
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
            {"eight times", std::vector<std::uint64_t>(8, 0x7fffffff), 0xfffffff8},
        });
  check(DataType::i32, ReduceOp::max,
        {
            {"compared with their sign", {0x80000000, 0x7fffffff, 0xffffffff}, 0x7fffffff},
            {"all negative", {0xfffffffe, 0xffffffff, 0x80000000}, 0xffffffff},
        });
}

TEST(SpecialValues, IntegersOfOtherWidths) {
  check(DataType::i8, ReduceOp::sum,
        {{"wraps at 8 bits", {0x7f, 1}, 0x80}, {"eight times", std::vector<std::uint64_t>(8, 0x81), 0x08}});
  check(DataType::u8, ReduceOp::sum, {{"wraps", {0xff, 2}, 1}});
  check(DataType::u8, ReduceOp::max, {{"compared without a sign", {0x80, 0x7f, 1}, 0x80}});
  check(DataType::u8, ReduceOp::min, {{"compared without a sign", {0x80, 0x7f, 0xff}, 0x7f}});
  check(DataType::i8, ReduceOp::max, {{"compared with their sign", {0x80, 0x7f, 0xff}, 0x7f}});
  check(DataType::i8, ReduceOp::min, {{"compared with their sign", {0x7f, 0x80, 0}, 0x80}});
  check(DataType::i8, ReduceOp::prod,
        {{"wraps", {0x10, 0x11}, 0x10}, {"minus times minus", {0xff, 0xfe, 3}, 6}});
  check(DataType::u32, ReduceOp::max, {{"without a sign", {0x80000000, 0x7fffffff}, 0x80000000}});
  check(DataType::u32, ReduceOp::min, {{"without a sign", {0xffffffff, 0x7fffffff}, 0x7fffffff}});
  constexpr std::uint64_t kMost = 0x7fffffffffffffff, kLeast = 0x8000000000000000;
  check(DataType::i64, ReduceOp::sum,
        {{"wraps", {kMost, 1}, kLeast},
         {"all bits", {0x0123456789abcdef, 0x1111111111111111}, 0x123456789abcdf00}});
  check(DataType::i64, ReduceOp::prod, {{"wraps", {0x100000001, 0x100000001}, 0x200000001}});
  check(DataType::i64, ReduceOp::max, {{"with their sign", {kLeast, kMost, ~std::uint64_t{0}}, kMost}});
  check(DataType::u64, ReduceOp::max, {{"without a sign", {kLeast, kMost}, kLeast}});
  check(DataType::u64, ReduceOp::min, {{"without a sign", {kLeast, kMost, 5}, 5}});
}

// The wrapped sum divided by the number of ranks, towards zero.
TEST(SpecialValues, AverageOfIntegers) {
  check(DataType::i32, ReduceOp::avg,
        {
            {"towards zero from above", {3, 2}, 2},
            {"towards zero from below", {0xfffffffd, 0xfffffffe}, 0xfffffffe},  // -5 / 2
            {"of three", {0xffffffff, 0xffffffff, 0xfffffffd}, 0xffffffff},     // -5 / 3
            {"after it has wrapped", {0x7fffffff, 1}, 0xc0000000},
        });
  check(DataType::u32, ReduceOp::avg, {{"after it has wrapped", {0xffffffff, 3}, 1}});
  check(DataType::i8, ReduceOp::avg, {{"after it has wrapped", {100, 100}, 0xe4}});  // -56 / 2
  check(DataType::u8, ReduceOp::avg, {{"after it has wrapped", {200, 200, 3}, 49}});
  check(DataType::i64, ReduceOp::avg,
        {{"towards zero", {~std::uint64_t{0}, ~std::uint64_t{0}, ~std::uint64_t{0} - 2}, ~std::uint64_t{0}}});
  check(DataType::u64, ReduceOp::avg, {{"large", {0xfffffffffffffff0, 0}, 0x7ffffffffffffff8}});
}

TEST(SpecialValues, MinOfFloats) {
  check(DataType::f32, ReduceOp::min,
        {
            {"a NaN loses to a number", {kNan, f(-3)}, f(-3)},
            {"on either side", {f(3), kSignalling, f(4)}, f(3)},
            {"a NaN loses to infinity", {kNan, kInfinity}, kInfinity},
            {"only NaNs give a NaN", {kNan, kSignalling}, kNan},
            {"minus zero beats plus zero", {0, kMinusZero, 0}, kMinusZero},
            {"on either side", {kMinusZero, 0}, kMinusZero},
            {"subnormals are not flushed", {kSmallest, 2}, kSmallest},
        });
  check(DataType::f64, ReduceOp::min,
        {
            {"a NaN loses to a number", {0x7ff0000000000001, d(-3)}, d(-3)},
            {"on either side", {d(3), 0xfff8000000000000}, d(3)},
            {"only NaNs give a NaN", {0x7ff0000000000001, 0xffffffffffffffff}, nan_of(DataType::f64)},
            {"minus zero beats plus zero", {d(0.0), d(-0.0)}, d(-0.0)},
            {"on either side", {d(-0.0), d(0.0)}, d(-0.0)},
        });
  check(DataType::f64, ReduceOp::max,
        {
            {"a NaN loses to a number", {0x7ff0000000000001, d(-3)}, d(-3)},
            {"plus zero beats minus zero", {d(-0.0), d(0.0)}, d(0.0)},
            {"on either side", {d(0.0), d(-0.0)}, d(0.0)},
            {"subnormals are not flushed", {0, 1}, 1},
        });
  check(DataType::f16, ReduceOp::min,
        {{"minus zero", {0, 0x8000}, 0x8000},
         {"NaN loses", {0x7c01, h(5)}, h(5)},
         {"infinity stays", {0xfc00, h(1)}, 0xfc00}});
  check(DataType::f16, ReduceOp::max,
        {{"plus zero", {0x8000, 0}, 0},
         {"NaN loses", {h(-5), 0xffff}, h(-5)},
         {"infinity stays", {0x7c00, h(1)}, 0x7c00}});
  check(DataType::f8e4m3, ReduceOp::max,
        {{"NaN loses", {0x7f, e4(-5)}, e4(-5)},
         {"either", {e4(-5), 0xff}, e4(-5)},
         {"only NaNs", {0xff, 0xff}, 0x7f},
         {"zeros", {0x80, 0}, 0}});
  check(DataType::f8e5m2, ReduceOp::min,
        {{"NaN loses", {0x7d, e5(3)}, e5(3)},
         {"zeros", {0, 0x80}, 0x80},
         {"infinity becomes the largest number", {0xfc, e5(1)}, 0xfb}});
}

TEST(SpecialValues, SumOfHalf) {
  check(DataType::f16, ReduceOp::sum,
        {
            {"ones that vanish beside 2048 in 16 bits",
             {h(2048), h(1), h(1), h(1), h(1), h(1), h(1), h(1)},
             h(2056)},
            {"an outlier cancels", {h(65504), h(1), h(-65504)}, h(1)},
            {"beyond the range on the way", {h(65504), h(65504), h(-65504)}, h(65504)},
            {"out of range by rounding", {h(65504), h(16)}, 0x7c00},
            {"just in range", {h(65504), h(15.5)}, h(65504)},
            {"a tie goes to the even neighbour", {h(2048), h(1)}, h(2048)},
            {"also upwards", {h(2050), h(1)}, h(2052)},
            {"subnormals", {1, 1, 1}, 3},
            {"into the normals", {0x3ff, 1}, 0x400},
            {"minus zeros", {0x8000, 0x8000, 0x8000}, 0x8000},
            {"zeros of both signs", {0x8000, 0}, 0},
            {"infinity less infinity", {0x7c00, 0xfc00}, 0x7fff},
            {"a signalling NaN", {0xfc01, h(1)}, 0x7fff},
        });
}

// Too large becomes the largest number, infinities too: as CUDA's conversions and NCCL have it.
TEST(SpecialValues, SumOfFp8) {
  check(DataType::f8e4m3, ReduceOp::sum,
        {
            {"ones that vanish beside 16 in 8 bits", {e4(16), e4(1), e4(1), e4(1), e4(1)}, e4(20)},
            {"beyond the range on the way", {e4(448), e4(448), e4(-448)}, e4(448)},
            {"out of range", {e4(448), e4(448)}, 0x7e},
            {"out of range below", {e4(-448), e4(-32)}, 0xfe},
            {"a tie goes to the even neighbour", {e4(16), e4(1)}, e4(16)},
            {"also upwards", {e4(18), e4(1)}, e4(20)},
            {"subnormals", {1, 1, 1}, 3},
            {"minus zeros", {0x80, 0x80}, 0x80},
            {"a NaN of either sign", {0xff, e4(1)}, 0x7f},
        });
  check(DataType::f8e5m2, ReduceOp::sum,
        {
            {"out of range", {e5(57344), e5(57344)}, 0x7b},
            {"infinity becomes the largest number", {0x7c, e5(1)}, 0x7b},
            {"and minus infinity", {0xfc, e5(1)}, 0xfb},
            {"infinity less infinity", {0x7c, 0xfc}, 0x7f},
            {"a signalling NaN", {0xfd, e5(1)}, 0x7f},
            {"subnormals", {1, 1}, 2},
            {"a tie goes to the even neighbour", {e5(8), e5(1)}, e5(8)},
        });
}

TEST(SpecialValues, SumOfDoubles) {
  check(DataType::f64, ReduceOp::sum,
        {
            {"more than a float holds", {d(1e300), d(1e284)}, d(1e300 + 1e284)},
            {"the order of ranks", {d(0x1p53), d(1), d(1), d(-0x1p53)}, d(0)},
            {"the order of ranks, small ones first", {d(1), d(1), d(0x1p53), d(-0x1p53)}, d(2)},
            {"subnormals", {1, 1, 1}, 3},
            {"minus zeros", {d(-0.0), d(-0.0)}, d(-0.0)},
            {"every NaN becomes one", {0xfff0000000000001, d(1)}, nan_of(DataType::f64)},
            {"infinity less infinity", {0x7ff0000000000000, 0xfff0000000000000}, nan_of(DataType::f64)},
        });
}

TEST(SpecialValues, ProductsAndAverages) {
  check(DataType::f32, ReduceOp::prod,
        {
            {"rounded at every rank", {f(1.1f), f(1.3f), f(1.7f)}, f(1.1f * 1.3f * 1.7f)},
            {"zero times infinity", {0, kInfinity}, kNan},
            {"signs of zero", {kMinusZero, f(5)}, kMinusZero},
            {"subnormal", {0x00800000, f(0.5f)}, 0x00400000},
            {"out of range", {kLargest, f(2)}, kInfinity},
        });
  check(DataType::bf16, ReduceOp::prod,
        {{"rounded once",
          {b(1.0078125), b(1.0078125), b(1.0078125), b(1.0078125)},
          b(1.0078125 * 1.0078125 * 1.0078125 * 1.0078125)}});
  check(DataType::f8e4m3, ReduceOp::prod,
        {{"too large on the way", {e4(448), e4(448), e4(0.0078125)}, 0x7e},
         {"back in range", {e4(256), e4(256), e4(0.0078125), e4(0.5)}, e4(256)}});
  check(DataType::f32, ReduceOp::avg,
        {
            {"divided, not multiplied with a reciprocal", {f(5), 0, 0}, f(5.0f / 3.0f)},
            {"of seven", {f(1), f(1), f(1), f(1), f(1), f(1), f(1)}, f(1)},
            {"minus zeros", {kMinusZero, kMinusZero}, kMinusZero},
            {"a subnormal, to even", {kSmallest, 0}, 0},
            {"too large on the way", {kLargest, kLargest}, kInfinity},
            {"NaN", {kSignalling, f(1)}, kNan},
        });
  check(DataType::bf16, ReduceOp::avg, {{"divided in f32, rounded once", {b(256), b(1)}, b(128.5)}});
  check(DataType::f16, ReduceOp::avg, {{"too large on the way", {h(65504), h(65504)}, h(65504)}});
  check(DataType::f8e4m3, ReduceOp::avg, {{"too large on the way", {e4(448), e4(448), e4(448)}, e4(448)}});
  check(DataType::f64, ReduceOp::avg, {{"divided", {d(1), d(0), d(0)}, d(1.0 / 3.0)}});
}

// Each rank's product is rounded to the type before it is added.
TEST(SpecialValues, PreMultipliedSum) {
  check(DataType::f32, ReduceOp::premul_sum,
        {
            {"each its own factor", {f(1), f(2), f(3)}, f(10 + 40 + 90), {f(10), f(20), f(30)}},
            {"no contraction", {f(1), f(1 + 0x1p-12f)}, f(0), {f(-(1 + 0x1p-11f)), f(1 + 0x1p-12f)}},
            {"minus zero", {f(0), f(0)}, kMinusZero, {f(-1), f(-1)}},
            {"infinity times zero", {kInfinity, f(1)}, kNan, {0, f(1)}},
            {"one rank alone", {f(3)}, f(6), {f(2)}},
        });
  check(DataType::bf16, ReduceOp::premul_sum,
        {{"the product is rounded to 16 bits", {b(1.0078125), b(0)}, b(1.015625), {b(1.0078125), b(1)}},
         {"then added in 32", {b(256), b(1), b(1)}, b(258), {b(1), b(1), b(1)}}});
  check(DataType::f16, ReduceOp::premul_sum,
        {{"the product overflows", {h(65504), h(1)}, 0x7c00, {h(2), h(1)}}});
  check(DataType::f8e4m3, ReduceOp::premul_sum,
        {{"the product saturates", {e4(448), e4(-448)}, 0, {e4(2), e4(1)}}});
  check(DataType::f64, ReduceOp::premul_sum,
        {{"one rank alone", {d(3)}, d(4.5), {d(1.5)}}, {"two", {d(3), d(5)}, d(14), {d(3), d(1)}}});
  check(DataType::i8, ReduceOp::premul_sum,
        {{"wraps", {0x40, 1}, 0x01, {4, 1}}, {"one rank alone", {0x41}, 0x04, {4}}});
  check(DataType::u64, ReduceOp::premul_sum, {{"wraps", {0x8000000000000001, 1}, 5, {2, 3}}});
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
  for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16, DataType::f64}) {
    const auto problems = run_communicators(
        Kind::threads, 8, patient(), [&](runtime::Communicator& comm, Exchange&, Problems& trouble) {
          constexpr std::uint64_t kCount = 20'000 / kSlowDown;
          const Source source{Values::numbers, 77};
          std::vector<std::uint64_t> data(kCount);
          for (std::uint64_t i = 0; i < kCount; ++i) {
            store_bits(type, data.data(), i,
                       input_bits(source, type, comm.rank(), i) & nan_of(type));  // without its sign
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
            const double fp32_ulp = std::ldexp(1.0, format_of(type).mantissa_bits - 23);
            // The reference of f64 is itself a sum of doubles.
            const double limit = type == DataType::f64 ? 7 : type == DataType::f32 ? 3.5 : 0.5 + 7 * fp32_ulp;
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
            std::vector<std::uint64_t> send(kCount), recv(kCount);
            for (std::uint64_t i = 0; i < kCount; ++i) {
              store_bits(type, send.data(), i, input_bits(source, type, comm.rank(), i));
            }
            const Status status =
                comm.all_reduce(send.data(), recv.data(), kCount, type, ReduceOp::sum, nullptr);
            if (!status.ok()) trouble.add("%s", status.to_string().c_str());
            for (std::uint64_t i = 0; i < kCount; ++i) {
              double exact = 0;
              for (int rank = 0; rank < nranks; ++rank) {
                exact += value_of(type, input_bits(source, type, rank, i));
              }
              const double got = value_of(type, load_bits(type, recv.data(), i));
              if (got != exact)
                trouble.add("%s element %llu: %g, not %g", name_of(type), static_cast<unsigned long long>(i),
                            got, exact);
            }
          });
      EXPECT_EQ(problems, "");
    }
  }
}

// What is added in the order of arrival, rounded at every rank to the type: as near to the exact sum as that
// allows, and the same bits on all ranks.
TEST(AddedAsItArrives, IsNearTheExactResultAndTheSameOnAllRanks) {
  constexpr int kRanks = 5;
  constexpr std::size_t kCount = 4099;
  runtime::Options options = patient();
  options.deterministic = false;
  options.lines = 8;
  for (const DataType type : {DataType::f32, DataType::f16, DataType::bf16}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg}) {
      const auto problems = run_communicators(
          Kind::threads, kRanks, options,
          [&](runtime::Communicator& comm, Exchange& exchange, Problems& trouble) {
            const Source source{Values::numbers, 11};
            std::vector<std::uint64_t> data(kCount), first(kCount), others(kCount * kRanks);
            for (std::size_t i = 0; i < kCount; ++i)
              store_bits(type, data.data(), i, input_bits(source, type, comm.rank(), i));
            runtime::CallOptions how;
            how.algorithm = route::Algorithm::two_shot_atomic;
            const Status status = comm.all_reduce(data.data(), data.data(), kCount, type, op, nullptr, how);
            if (!status.ok()) return trouble.add("%s", status.to_string().c_str());
            for (std::size_t i = 0; i < kCount; ++i) {
              double exact = 0, magnitude = 0;
              for (int rank = 0; rank < kRanks; ++rank) {
                const double value = value_of(type, input_bits(source, type, rank, i));
                exact += value;
                magnitude += std::abs(value);
              }
              if (type == DataType::f16 && magnitude > 60'000) continue;
              if (op == ReduceOp::avg) exact /= kRanks;
              const double got = value_of(type, load_bits(type, data.data(), i));
              // Half a unit a rounding, of what is no larger than all of them together.
              if (std::abs(got - exact) > (kRanks + 1) * ulp_at(type, magnitude) / 2)
                trouble.add("%s %s, element %zu: %g, exactly %g", name_of(type), name_of(op), i, got, exact);
            }
            const Status gathered =
                exchange.all_gather(std::as_bytes(std::span(data)), std::as_writable_bytes(std::span(others)),
                                    Deadline::after(std::chrono::seconds(60)));
            if (!gathered.ok()) return trouble.add("%s", gathered.to_string().c_str());
            // The bytes beyond the elements are zeros everywhere.
            for (std::size_t i = 0; i < others.size(); ++i) {
              if (others[i] == data[i % kCount]) continue;
              return trouble.add("rank %zu has other bits", i / kCount);
            }
          });
      EXPECT_EQ(problems, "") << name_of(type) << ' ' << name_of(op);
    }
  }
}

}  // namespace
}  // namespace nearlight::test
