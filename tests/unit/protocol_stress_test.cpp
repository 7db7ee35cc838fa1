// A million calls without a pause, ranks drifting as far apart as the protocol lets them.
#include <gtest/gtest.h>

#include "tests/unit/protocol_ranks.hpp"

namespace nearlight::test {
namespace {

constexpr std::uint32_t kCalls = 1'000'000;

// Kind and size depend on the number of the call; the input of rank r in call n is made of r and n, so a
// value of another call or another place is seen.
std::int32_t given(int rank, std::uint32_t number, std::uint64_t i) {
  return static_cast<std::int32_t>(number * 64 + i * 8 + static_cast<std::uint32_t>(rank));
}

std::uint64_t wrong_after_calls(const ProtocolShape& shape, std::uint32_t calls) {
  ProtocolRanks ranks(shape);
  std::vector<std::uint64_t> wrong(static_cast<std::size_t>(shape.ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      std::barrier<> alone(1);
      std::int32_t send[64], recv[64];
      std::minstd_rand random(7);
      for (std::uint32_t number = 0; number < calls; ++number) {
        ProtocolCall call;
        call.type = DataType::i32;
        call.protocol = random() % 4 == 0 ? algorithm::Protocol::simple : algorithm::Protocol::ll;
        call.count = 1 + random() % (random() % 8 == 0 ? 64 : 8);
        for (std::uint64_t i = 0; i < call.count; ++i) send[i] = given(rank, number, i);
        ranks.run(call, rank, {0, 1, &alone}, send, recv);
        for (std::uint64_t i = 0; i < call.count; ++i) {
          std::uint32_t sum = 0;
          for (int source = 0; source < shape.ranks; ++source)
            sum += static_cast<std::uint32_t>(given(source, number, i));
          wrong[static_cast<std::size_t>(rank)] += static_cast<std::uint32_t>(recv[i]) != sum;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::uint64_t sum = 0;
  for (const std::uint64_t count : wrong) sum += count;
  return sum;
}

TEST(ProtocolStress, AMillionCallsOfTwoRanks) {
  ProtocolShape shape;
  EXPECT_EQ(wrong_after_calls(shape, kCalls), 0u);
}

TEST(ProtocolStress, AcrossTheWrapOfThreeRanks) {
  for (std::uint32_t i = 0; i < 200; ++i) {
    ProtocolShape shape;
    shape.ranks = 3;
    shape.initial_epoch = 0xffffffffu - i;
    ASSERT_EQ(wrong_after_calls(shape, i + 20), 0u) << i;
  }
}

}  // namespace
}  // namespace nearlight::test
