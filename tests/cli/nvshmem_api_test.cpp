// NVSHMEM's functions through the table, with a library that stands in for it.
#include "cli/peers/nvshmem_api.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace nearlight::peers {
namespace {

using testing::HasSubstr;

TEST(NvshmemApi, CallsWhatIsThere) {
  auto api = load_nvshmem(FAKE_NVSHMEM);
  ASSERT_TRUE(api.ok()) << api.status().to_string();
  EXPECT_EQ(api->version, "3.4.5");
  NvshmemId id;
  EXPECT_EQ(api->get_uniqueid(&id), 0);
  NvshmemInitAttributes attributes;
  EXPECT_EQ(api->set_attr_uniqueid_args(0, 1, &id, &attributes), 0);
  EXPECT_EQ(api->hostlib_init_attr(kNvshmemInitById, &attributes), 0);
  void* const memory = api->malloc(16);
  ASSERT_NE(memory, nullptr);
  const float source[4] = {1, 2, 3, 4};
  const NvshmemReduce reduce = api->reduce(DataType::f32, ReduceOp::sum);
  ASSERT_NE(reduce, nullptr);
  EXPECT_EQ(reduce(kNvshmemWorld, memory, source, 4, nullptr), 0);
  EXPECT_EQ(static_cast<float*>(memory)[3], 4);
  std::free(memory);
  api->hostlib_finalize();
  EXPECT_EQ(api->reduce(DataType::f64, ReduceOp::sum), nullptr);
}

TEST(NvshmemApi, WhatIsMissingIsNamed) {
  const auto none = load_nvshmem("libnvshmem_that_is_not_there.so.3");
  EXPECT_EQ(none.status().code(), Code::unsupported);
  EXPECT_THAT(none.status().text(), HasSubstr("libnvshmem_that_is_not_there.so.3"));
  const auto part = load_nvshmem(FAKE_NVSHMEM_WITHOUT_INIT);
  EXPECT_EQ(part.status().code(), Code::unsupported);
  EXPECT_THAT(part.status().text(), HasSubstr("nvshmemx_hostlib_init_attr"));
}

TEST(NvshmemApi, SymbolsByTypeAndOperator) {
  EXPECT_EQ(nvshmem_symbol(DataType::bf16, ReduceOp::sum), "nvshmemx_bfloat16_sum_reduce_on_stream");
  EXPECT_EQ(nvshmem_symbol(DataType::u64, ReduceOp::max), "nvshmemx_uint64_max_reduce_on_stream");
  EXPECT_EQ(nvshmem_symbol(DataType::f8e4m3, ReduceOp::sum), "");
  EXPECT_EQ(nvshmem_symbol(DataType::f32, ReduceOp::avg), "");
}

}  // namespace
}  // namespace nearlight::peers
