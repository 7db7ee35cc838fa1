#include "runtime/checks.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <string>

namespace nearlight::runtime {
namespace {

using namespace std::chrono_literals;

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

bool says(const Status& status, const char* word) { return status.text().find(word) != std::string::npos; }

// Sizes without memory behind them: nothing here is ever touched.
TEST(CheckBuffers, HugeCountsAreArithmeticOnly) {
  constexpr std::size_t kMost = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  const auto check = [](std::size_t count, DataType type) {
    return check_buffers(at(0x1000), at(0x1000), count, type, ReduceOp::sum);
  };
  EXPECT_TRUE(check((std::size_t{1} << 31) + 1, DataType::bf16).ok());
  EXPECT_TRUE(check(std::size_t{1} << 40, DataType::f32).ok());
  EXPECT_TRUE(check(kMost / 4, DataType::f32).ok());
  EXPECT_TRUE(check(kMost / 2, DataType::bf16).ok());
  for (const auto& [count, type] :
       {std::pair{kMost / 4 + 1, DataType::f32}, std::pair{kMost / 2 + 1, DataType::bf16},
        std::pair{std::size_t{1} << 62, DataType::i32}, std::pair{~std::size_t{0}, DataType::bf16}}) {
    const Status status = check(count, type);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_TRUE(says(status, "count")) << status.text();
  }
}

// Near the end of the address space the sum of address and size would wrap round.
TEST(CheckBuffers, BuffersThatReachPastTheEndOfAllAddresses) {
  constexpr std::uintptr_t kEnd = ~std::uintptr_t{0};
  for (const auto& [send, recv] :
       {std::pair{kEnd - 15, std::uintptr_t{0x1000}}, std::pair{std::uintptr_t{0x1000}, kEnd - 15}}) {
    const Status status = check_buffers(at(send), at(recv), 8, DataType::f32, ReduceOp::sum);
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
    EXPECT_TRUE(says(status, "count")) << status.text();
    EXPECT_TRUE(check_buffers(at(send), at(recv), 3, DataType::f32, ReduceOp::sum).ok());
  }
}

TEST(CheckBuffers, OverlapToTheByte) {
  constexpr std::uintptr_t kBase = 0x100000;
  for (const std::size_t count :
       {std::size_t{1}, std::size_t{3}, std::size_t{1000}, (std::size_t{1} << 31) + 3}) {
    const std::uintptr_t bytes = count * 2;
    const auto check = [&](std::uintptr_t send, std::uintptr_t recv) {
      return check_buffers(at(send), at(recv), count, DataType::bf16, ReduceOp::max);
    };
    EXPECT_TRUE(check(kBase, kBase).ok());
    EXPECT_TRUE(check(kBase, kBase + bytes).ok());
    EXPECT_TRUE(check(kBase + bytes, kBase).ok());
    if (count > 1) {
      for (const Status& status :
           {check(kBase, kBase + bytes - 2), check(kBase, kBase + 2), check(kBase + bytes - 2, kBase)}) {
        EXPECT_EQ(status.code(), Code::invalid_argument);
        EXPECT_TRUE(says(status, "overlap")) << status.text();
      }
    }
  }
}

TEST(CheckBuffers, AlignmentIsTheElements) {
  for (const DataType type : kDataTypes) {
    for (std::uintptr_t offset = 0; offset < 16; ++offset) {
      const bool aligned = offset % size_of(type) == 0;
      const Status send = check_buffers(at(0x1000 + offset), at(0x2000), 4, type, ReduceOp::sum);
      const Status recv = check_buffers(at(0x1000), at(0x2000 + offset), 4, type, ReduceOp::sum);
      EXPECT_EQ(send.ok(), aligned);
      EXPECT_EQ(recv.ok(), aligned);
      if (!aligned) {
        EXPECT_TRUE(says(send, "send (0x"));
        EXPECT_TRUE(says(recv, "recv (0x"));
      }
    }
  }
}

TEST(CheckBuffers, OnlyAPreMultipliedSumTakesAFactorAndOfTheElementsType) {
  const auto check = [](DataType type, const Reduction& op) {
    return check_buffers(at(0x1000), at(0x1000), 4, type, op);
  };
  const float factor = 2;
  const Reduction scaled = Reduction::premul_sum(DataType::f32, &factor);
  EXPECT_TRUE(check(DataType::f32, scaled).ok());
  const Status other = check(DataType::i32, scaled);
  EXPECT_EQ(other.code(), Code::invalid_argument);
  EXPECT_TRUE(says(other, "op: the factor is of type float, the elements are int32")) << other.text();
  const Status none = check(DataType::f32, ReduceOp::premul_sum);
  EXPECT_EQ(none.code(), Code::invalid_argument);
  EXPECT_TRUE(says(none, "op: mulsum needs a factor")) << none.text();
  Reduction sum = scaled;
  sum.op = ReduceOp::sum;
  const Status too_many = check(DataType::f32, sum);
  EXPECT_EQ(too_many.code(), Code::invalid_argument);
  EXPECT_TRUE(says(too_many, "op: sum takes no factor")) << too_many.text();
}

TEST(EffectiveTimeout, OptionThenVariableThenTenMinutes) {
  Options options;
  ::unsetenv("NEARLIGHT_TIMEOUT_MS");
  EXPECT_EQ(effective_timeout(options).value(), 600s);
  ::setenv("NEARLIGHT_TIMEOUT_MS", "1234", 1);
  EXPECT_EQ(effective_timeout(options).value(), 1234ms);
  options.timeout = 5ms;
  EXPECT_EQ(effective_timeout(options).value(), 5ms);
  ::setenv("NEARLIGHT_TIMEOUT_MS", "31536000000", 1);  // a year
  options.timeout.reset();
  EXPECT_EQ(effective_timeout(options).value(), 24h * 365);
  ::unsetenv("NEARLIGHT_TIMEOUT_MS");
}

TEST(CreateDeadline, IsThereEvenForATimeThatCannotBe) {
  Options options;
  for (const auto bad :
       {std::chrono::milliseconds::max(), std::chrono::milliseconds::min(), std::chrono::milliseconds(0)}) {
    options.create_timeout = bad;
    EXPECT_FALSE(create_deadline(options).passed());
    EXPECT_LE(create_deadline(options).left(), 60s);
  }
  options.create_timeout = 5s;
  EXPECT_LE(create_deadline(options).left(), 5s);
}

TEST(CheckOptions, LimitsThemselvesAreAllowed) {
  Options options;
  EXPECT_TRUE(check_options(options).ok());
  options.slots = 1u << 20;
  options.chunk_bytes = 64u << 20;
  options.regions = 1024;
  options.heap_offset = std::size_t{1} << 48;
  options.initial_epoch = ~0u;
  options.create_timeout = 1ms;
  EXPECT_TRUE(check_options(options).ok());
}

protocol::FaultRecord record(protocol::Wait kind) {
  protocol::FaultRecord record{};
  record.kind = static_cast<std::uint32_t>(kind);
  record.rank = 3;
  record.peer = 5;
  record.epoch = 4'000'000'000u;
  record.region = 7;
  record.slot = 11;
  record.expected = 4'000'000'000u;
  record.seen = 3'999'999'998u;
  record.time_ns = 99;
  return record;
}

TEST(Describe, ATimeout) {
  // Stopped later on purpose: the first failure counts.
  for (const Status& stopped : {Status(), Status(Code::aborted, "told to stop")}) {
    const Fault fault = describe(record(protocol::Wait::timeout), stopped, 1500ms);
    EXPECT_EQ(fault.status.code(), Code::timeout);
    for (const char* word :
         {"rank 3", "rank 5", "1500 ms", "epoch 4000000000", "region 7", "slot 11", "3999999998"}) {
      EXPECT_TRUE(says(fault.status, word)) << fault.status.text() << " has no " << word;
    }
    EXPECT_EQ(fault.rank, 3);
    EXPECT_EQ(fault.peer, 5);
    EXPECT_EQ(fault.epoch, 4'000'000'000u);
    EXPECT_EQ(fault.region, 7u);
    EXPECT_EQ(fault.slot, 11u);
    EXPECT_EQ(fault.expected, 4'000'000'000u);
    EXPECT_EQ(fault.seen, 3'999'999'998u);
    EXPECT_EQ(fault.time_ns, 99u);
  }
}

TEST(Describe, AWaitThatWasEnded) {
  const Fault told = describe(record(protocol::Wait::aborted),
                              Status(Code::remote_error, "rank 5: its process 4 has ended"), 1s);
  EXPECT_EQ(told.status.code(), Code::remote_error);
  EXPECT_EQ(told.status.text(), "rank 5: its process 4 has ended");
  const Fault untold = describe(record(protocol::Wait::aborted), Status(), 1s);
  EXPECT_EQ(untold.status.code(), Code::aborted);
  EXPECT_TRUE(says(untold.status, "rank 5"));
}

}  // namespace
}  // namespace nearlight::runtime
