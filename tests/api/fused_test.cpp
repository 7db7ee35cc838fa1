// The fused calls through the C and C++ API, on CPU ranks.
#include <gtest/gtest.h>
#include <nearlight/nearlight.hpp>

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "tests/api/api_support.hpp"

namespace nearlight::test {
namespace {

// bfloat16 of whole numbers and of a half.
constexpr std::uint16_t kOne = 0x3f80, kTwo = 0x4000, kThree = 0x4040, kMinusOne = 0xbf80;
constexpr std::size_t kHidden = 1024, kTokens = 2, kCount = kHidden * kTokens;

struct Buffers {
  alignas(16) std::uint16_t input[kCount], residual[kCount], weight[kHidden], sum[kCount], out[kCount];
  alignas(16) std::uint8_t small[kCount];
  float scale = 0.5f;

  explicit Buffers(int rank) {
    for (std::size_t i = 0; i < kCount; ++i) {
      input[i] = rank == 0 ? kOne : kTwo;
      residual[i] = kMinusOne;
      weight[i % kHidden] = i % 2 == 0 ? kOne : kThree;
      sum[i] = out[i] = 0xabcd;
      small[i] = 0xab;
    }
  }
  nearlightRmsNorm_t norm() {
    nearlightRmsNorm_t norm = NEARLIGHT_RMS_NORM_INITIALIZER;
    norm.input = input;
    norm.residual = residual;
    norm.weight = weight;
    norm.residual_out = sum;
    norm.out = out;
    norm.tokens = kTokens;
    norm.hidden = kHidden;
    return norm;
  }
};

// 1 + 2 - 1 = 2 everywhere, whose norm is 1: the weights remain.
TEST(FusedApi, NormalisesAndScales) {
  const HostGroup group(2);
  group.run([](int rank, nearlightComm_t comm) {
    Buffers buffers(rank);
    nearlightRmsNorm_t norm = buffers.norm();
    norm.eps = 0;
    ASSERT_EQ(nearlightAllReduceRmsNorm(&norm, comm, nullptr), nearlightSuccess) << nearlightGetLastError();
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(buffers.sum[i], kTwo) << i;
      ASSERT_EQ(buffers.out[i], buffers.weight[i % kHidden]) << i;
    }
    norm.out = buffers.small;
    norm.out_type = nearlightInt8;
    norm.scale = &buffers.scale;
    norm.residual = nullptr;
    ASSERT_EQ(nearlightAllReduceRmsNorm(&norm, comm, nullptr), nearlightSuccess) << nearlightGetLastError();
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(buffers.sum[i], kThree) << i;
      ASSERT_EQ(buffers.small[i], i % 2 == 0 ? 2 : 6) << i;
    }
    norm.out_type = nearlightFloat8e4m3;
    ASSERT_EQ(nearlightAllReduceRmsNorm(&norm, comm, nullptr), nearlightSuccess) << nearlightGetLastError();
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(buffers.small[i], i % 2 == 0 ? 0x40 : 0x4c) << i;
  });
}

TEST(FusedApi, AddsABias) {
  const HostGroup group(2);
  group.run([](int rank, nearlightComm_t comm) {
    Buffers buffers(rank);
    for (std::uint16_t& one : buffers.weight) one = kMinusOne;
    ASSERT_EQ(nearlightAllReduceBias(buffers.input, buffers.weight, buffers.input, kTokens, kHidden,
                                     nearlightBfloat16, comm, nullptr),
              nearlightSuccess)
        << nearlightGetLastError();
    for (const std::uint16_t one : buffers.input) ASSERT_EQ(one, kTwo);
  });
}

TEST(FusedApi, WrongArgumentsAreNamed) {
  const HostGroup group(1);
  Buffers buffers(0);
  const nearlightRmsNorm_t good = buffers.norm();
  const auto refused = [&](nearlightResult_t code, const char* word, auto change) {
    nearlightRmsNorm_t norm = good;
    change(norm);
    expect_error(nearlightAllReduceRmsNorm(&norm, group[0], nullptr), code,
                 {"nearlightAllReduceRmsNorm", "rank 0", word});
  };
  refused(nearlightInvalidArgument, "size", [](auto& norm) { norm.size = 80; });
  refused(nearlightInvalidArgument, "reserved", [](auto& norm) { norm.reserved = 1; });
  refused(nearlightInvalidArgument, "type", [](auto& norm) { norm.type = nearlightFloat32; });
  refused(nearlightInvalidArgument, "out_type", [](auto& norm) { norm.out_type = nearlightFloat16; });
  refused(nearlightInvalidArgument, "out_type",
          [](auto& norm) { norm.out_type = static_cast<nearlightDataType_t>(77); });
  refused(nearlightInvalidArgument, "hidden: 1000", [](auto& norm) { norm.hidden = 1000; });
  refused(nearlightInvalidArgument, "weight", [](auto& norm) { norm.weight = nullptr; });
  refused(nearlightInvalidArgument, "scale", [](auto& norm) { norm.out_type = nearlightInt8; });
  expect_error(nearlightAllReduceRmsNorm(nullptr, group[0], nullptr), nearlightInvalidArgument,
               {"norm is NULL"});
  struct {
    nearlightRmsNorm_t norm;
    std::uint64_t later;
  } newer = {good, 0};
  newer.norm.size = sizeof newer;
  EXPECT_EQ(nearlightAllReduceRmsNorm(&newer.norm, group[0], nullptr), nearlightSuccess)
      << nearlightGetLastError();
  newer.later = 1;
  expect_error(nearlightAllReduceRmsNorm(&newer.norm, group[0], nullptr), nearlightUnsupported, {"norm"});
  expect_error(nearlightAllReduceBias(buffers.input, nullptr, buffers.out, kTokens, kHidden,
                                      nearlightBfloat16, group[0], nullptr),
               nearlightInvalidArgument, {"nearlightAllReduceBias", "bias"});
}

TEST(FusedApi, IsExplainedAndCounted) {
  const HostGroup group(2);
  nearlightRoute_t route = NEARLIGHT_ROUTE_INITIALIZER;
  for (const auto collective : {nearlightCollectiveAllReduceRmsNorm, nearlightCollectiveAllReduceBias}) {
    ASSERT_EQ(nearlightExplainFused(group[1], collective, kTokens, kHidden, nearlightBfloat16, &route),
              nearlightSuccess)
        << nearlightGetLastError();
    EXPECT_STREQ(route.algorithm, "one_shot");
    EXPECT_STREQ(route.protocol, "sentinel");
    EXPECT_THAT(route.reason, testing::HasSubstr("CPU: rows"));
    EXPECT_EQ(route.grid, 1u);
  }
  const auto refused = [&](nearlightCollective_t collective, std::size_t tokens, std::size_t hidden,
                           nearlightDataType_t type, const char* word) {
    route.grid = 77;
    expect_error(nearlightExplainFused(group[0], collective, tokens, hidden, type, &route),
                 nearlightInvalidArgument, {"nearlightExplainFused", word});
    EXPECT_EQ(route.grid, 77u);
  };
  const auto norm = nearlightCollectiveAllReduceRmsNorm;
  refused(nearlightCollectiveAllReduce, kTokens, kHidden, nearlightBfloat16, "collective: 1");
  refused(norm, 0, kHidden, nearlightBfloat16, "tokens is 0");
  refused(norm, kTokens, 1000, nearlightBfloat16, "hidden: 1000");
  refused(norm, (std::size_t{1} << 20) + 1, kHidden, nearlightBfloat16, "tokens: ");
  refused(norm, kTokens, kHidden, nearlightFloat32, "type: float");
  refused(norm, kTokens, kHidden, static_cast<nearlightDataType_t>(77), "type");
  expect_error(nearlightExplainFused(group[0], norm, kTokens, kHidden, nearlightBfloat16, nullptr),
               nearlightInvalidArgument, {"route is NULL"});
  expect_error(nearlightExplainFused(nullptr, norm, kTokens, kHidden, nearlightBfloat16, &route),
               nearlightInvalidArgument, {"comm"});
  expect_error(nearlightExplain(group[0], norm, kTokens * kHidden, nearlightBfloat16, nearlightSum, &route),
               nearlightInvalidArgument, {"collective", "nearlightExplainFused"});

  group.run([](int rank, nearlightComm_t comm) {
    Buffers buffers(rank);
    const nearlightRmsNorm_t of_row = buffers.norm();
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(nearlightAllReduceRmsNorm(&of_row, comm, nullptr), nearlightSuccess);
    }
    ASSERT_EQ(nearlightAllReduceBias(buffers.input, buffers.weight, buffers.out, kTokens, kHidden,
                                     nearlightBfloat16, comm, nullptr),
              nearlightSuccess);
    nearlightCounters_t counters = NEARLIGHT_COUNTERS_INITIALIZER;
    ASSERT_EQ(nearlightCommGetCounters(comm, &counters), nearlightSuccess);
    EXPECT_EQ(counters.all_reduce_rms_norms, 2u);
    EXPECT_EQ(counters.all_reduce_biases, 1u);
    EXPECT_EQ(counters.all_reduces, 0u);
    EXPECT_EQ(counters.bytes, 3 * kCount * 2);
    ASSERT_EQ(counters.routes, 1u);
    EXPECT_STREQ(counters.route[0].protocol, "sentinel");
    EXPECT_EQ(counters.route[0].operations, 3u);
  });
}

// A matrix whose rows are the numbers 1, 2, 3, ... of all columns: token t of rank r has (r + 1) * (t + 1) in
// place of its in_size elements.
TEST(FusedApi, MultipliesAndSums) {
  constexpr std::size_t kRows = 3, kIn = 16, kOut = 24;
  const HostGroup group(2);
  group.run([](int rank, nearlightComm_t comm) {
    const auto bf16_of = [](float value) {
      std::uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      return static_cast<std::uint16_t>(bits >> 16);
    };
    alignas(16) std::uint16_t input[kRows * kIn], weight[kOut * kIn], out[kRows * kOut];
    for (std::size_t i = 0; i < kRows * kIn; ++i)
      input[i] = bf16_of(static_cast<float>(rank + 1) * static_cast<float>(i / kIn + 1));
    for (std::size_t i = 0; i < kOut * kIn; ++i) weight[i] = bf16_of(static_cast<float>(i / kIn % 4));
    ASSERT_EQ(nearlightGemvAllReduce(input, weight, out, kRows, kIn, kOut, nearlightBfloat16, comm, nullptr),
              nearlightSuccess)
        << nearlightGetLastError();
    for (std::size_t i = 0; i < kRows * kOut; ++i) {
      const float wanted = 3 * kIn * static_cast<float>(i / kOut + 1) * static_cast<float>(i % kOut % 4);
      ASSERT_EQ(out[i], bf16_of(wanted)) << i;
    }
  });
  // The same numbers as parts of vectors of 32, which rank 1 has the second half of: 16 times 1 and 16 times
  // 2 of each.
  group.run([](int rank, nearlightComm_t comm) {
    alignas(16) std::uint16_t input[16], weight[8 * 32], out[8];
    for (std::uint16_t& one : input) one = rank == 0 ? kOne : kTwo;
    for (std::size_t i = 0; i < 8 * 32; ++i) weight[i] = i / 32 == 3 ? kThree : rank == 0 ? kOne : kMinusOne;
    ASSERT_EQ(nearlightAllGatherGemv(input, weight, out, 1, 16, 8, nearlightBfloat16, comm, nullptr),
              nearlightSuccess)
        << nearlightGetLastError();
    for (std::size_t i = 0; i < 8; ++i) ASSERT_EQ(out[i], i == 3 ? 0x4310 : rank == 0 ? 0x4240 : 0xc240) << i;
  });
  alignas(16) std::uint16_t some[64 * 8] = {};
  const auto refused = [&](const char* word, const void* input, void* out, std::size_t tokens, std::size_t in,
                           std::size_t out_size, nearlightDataType_t type) {
    expect_error(nearlightGemvAllReduce(input, some, out, tokens, in, out_size, type, group[0], nullptr),
                 nearlightInvalidArgument, {"nearlightGemvAllReduce", "rank 0", word});
  };
  refused("input is null", nullptr, some + 256, 1, 8, 8, nearlightFloat16);
  refused("overlap", some + 128, some, 1, 8, 8, nearlightFloat16);
  refused("tokens: 17", some + 128, some + 256, 17, 8, 8, nearlightFloat16);
  refused("in_size: 7", some + 128, some + 256, 1, 7, 8, nearlightFloat16);
  refused("out_size: 0", some + 128, some + 256, 1, 8, 0, nearlightFloat16);
  refused("type: int8", some + 128, some + 256, 1, 8, 8, nearlightInt8);
  expect_error(
      nearlightAllGatherGemv(some + 128, some, some + 256, 1, 65536, 8, nearlightFloat16, group[0], nullptr),
      nearlightInvalidArgument, {"nearlightAllGatherGemv", "rank 0", "in_size: 65536", "32768"});
}

TEST(FusedApi, ProductsAreExplainedAndCounted) {
  const HostGroup group(2);
  nearlightRoute_t route = NEARLIGHT_ROUTE_INITIALIZER;
  const auto gathers = nearlightCollectiveAllGatherGemv, sums = nearlightCollectiveGemvAllReduce;
  for (const auto& [collective, words] :
       {std::pair{sums, "CPU: a product's tiles"}, {gathers, "CPU: the tokens"}}) {
    ASSERT_EQ(nearlightExplainGemv(group[1], collective, 3, 16, 24, nearlightBfloat16, &route),
              nearlightSuccess)
        << nearlightGetLastError();
    EXPECT_STREQ(route.algorithm, "one_shot");
    EXPECT_STREQ(route.protocol, "sentinel");
    EXPECT_THAT(route.reason, testing::HasSubstr(words));
    EXPECT_EQ(route.grid, 1u);
  }
  const auto refused = [&](nearlightCollective_t collective, std::size_t tokens, std::size_t in,
                           std::size_t out, nearlightDataType_t type, const char* word) {
    route.grid = 77;
    expect_error(nearlightExplainGemv(group[0], collective, tokens, in, out, type, &route),
                 nearlightInvalidArgument, {"nearlightExplainGemv", word});
    EXPECT_EQ(route.grid, 77u);
  };
  refused(nearlightCollectiveAllReduceBias, 1, 16, 24, nearlightBfloat16, "collective: 17 is no product");
  refused(sums, 0, 16, 24, nearlightBfloat16, "tokens is 0");
  refused(sums, 17, 16, 24, nearlightBfloat16, "tokens: 17");
  refused(sums, 1, 65544, 24, nearlightBfloat16, "in_size: 65544");
  refused(gathers, 1, 32776, 24, nearlightBfloat16, "in_size: 32776");  // of two ranks
  refused(gathers, 1, 16, 20, nearlightBfloat16, "out_size: 20");
  refused(gathers, 1, 16, 24, nearlightFloat32, "type: float");
  refused(gathers, 1, 16, 24, static_cast<nearlightDataType_t>(77), "type");
  expect_error(nearlightExplainGemv(group[0], sums, 1, 16, 24, nearlightBfloat16, nullptr),
               nearlightInvalidArgument, {"route is NULL"});
  expect_error(nearlightExplainGemv(nullptr, sums, 1, 16, 24, nearlightBfloat16, &route),
               nearlightInvalidArgument, {"comm"});
  for (const auto collective : {sums, gathers}) {
    expect_error(nearlightExplain(group[0], collective, 24, nearlightBfloat16, nearlightSum, &route),
                 nearlightInvalidArgument, {"collective", "nearlightExplainGemv"});
  }

  // What is counted of each is what goes from rank to rank: its output, and its part of the vectors.
  constexpr std::size_t kSent = 3 * 24 * 2, kGathered = 3 * 16 * 2;
  group.run([](int, nearlightComm_t comm) {
    alignas(16) std::uint16_t input[3 * 16] = {}, weight[24 * 32] = {}, out[3 * 24];
    ASSERT_EQ(nearlightGemvAllReduce(input, weight, out, 3, 16, 24, nearlightBfloat16, comm, nullptr),
              nearlightSuccess);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(nearlightAllGatherGemv(input, weight, out, 3, 16, 24, nearlightBfloat16, comm, nullptr),
                nearlightSuccess);
    }
    nearlightCounters_t counters = NEARLIGHT_COUNTERS_INITIALIZER;
    ASSERT_EQ(nearlightCommGetCounters(comm, &counters), nearlightSuccess);
    EXPECT_EQ(counters.gemv_all_reduces, 1u);
    EXPECT_EQ(counters.all_gather_gemvs, 2u);
    EXPECT_EQ(counters.all_gathers, 0u);
    EXPECT_EQ(counters.bytes, kSent + 2 * kGathered);
    ASSERT_EQ(counters.routes, 1u);
    EXPECT_STREQ(counters.route[0].algorithm, "one_shot");
    EXPECT_STREQ(counters.route[0].protocol, "sentinel");
    EXPECT_EQ(counters.route[0].operations, 3u);
    EXPECT_EQ(counters.route[0].bytes, kSent + 2 * kGathered);
    // Of a program that knows the counters before these alone.
    counters.all_gather_gemvs = 77;
    counters.size = offsetof(nearlightCounters_t, all_gather_gemvs);
    ASSERT_EQ(nearlightCommGetCounters(comm, &counters), nearlightSuccess);
    EXPECT_EQ(counters.all_gather_gemvs, 77u);
  });
}

TEST(FusedApi, OfCpp) {
  auto comms = Communicator::host_group(1);
  Buffers buffers(1);
  RmsNorm norm;
  static_cast<nearlightRmsNorm_t&>(norm) = buffers.norm();
  comms[0].all_reduce_rms_norm(norm);
  EXPECT_EQ(buffers.sum[5], kOne);  // 2 - 1
  comms[0].all_reduce_bias(buffers.input, buffers.weight, buffers.out, kTokens, kHidden, bf16);
  EXPECT_EQ(buffers.out[0], kThree);
  const Route route = comms[0].explain_fused(Collective::all_reduce_bias, kTokens, kHidden, bf16);
  EXPECT_EQ(route.protocol, "sentinel");
  EXPECT_EQ(comms[0].counters().all_reduce_rms_norms, 1u);
  EXPECT_EQ(comms[0].counters().all_reduce_biases, 1u);
  alignas(16) std::uint16_t vector[8], matrix[64], product[8];
  for (std::uint16_t& one : vector) one = kOne;
  for (std::uint16_t& one : matrix) one = kTwo;
  comms[0].gemv_all_reduce(vector, matrix, product, 1, 8, 8, bf16);
  EXPECT_EQ(product[7], 0x4180);  // 16
  EXPECT_EQ(comms[0].counters().gemv_all_reduces, 1u);
  comms[0].all_gather_gemv(vector, matrix, product, 1, 8, 8, bf16);
  EXPECT_EQ(product[0], 0x4180);
  EXPECT_EQ(comms[0].counters().all_gather_gemvs, 1u);
  const Route of_product = comms[0].explain_gemv(Collective::all_gather_gemv, 1, 8, 8, bf16);
  EXPECT_EQ(of_product.protocol, "sentinel");
  EXPECT_NE(of_product.reason, comms[0].explain_gemv(Collective::gemv_all_reduce, 1, 8, 8, bf16).reason);
  EXPECT_THROW(comms[0].explain_gemv(Collective::all_gather_gemv, 1, 7, 8, bf16), Error);
  norm.hidden = 7;
  EXPECT_THROW(comms[0].all_reduce_rms_norm(norm), Error);
}

}  // namespace
}  // namespace nearlight::test
