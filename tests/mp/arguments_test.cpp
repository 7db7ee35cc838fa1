// Bad arguments: the error names the argument, nothing is written, and the communicator goes on as if nothing
// had been.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/support/kinds.hpp"

namespace nearlight::test {
namespace {

using Arguments = ByKind;
INSTANTIATE_TEST_SUITE_P(Kinds, Arguments, testing::ValuesIn(kinds()), kind_name);

constexpr std::byte kPattern{0x77};

struct Memory {
  alignas(64) std::byte bytes[1024];
  Memory() { std::memset(bytes, static_cast<int>(kPattern), sizeof bytes); }
  bool untouched() const {
    for (const std::byte byte : bytes) {
      if (byte != kPattern) return false;
    }
    return true;
  }
};

TEST_P(Arguments, AreNamedAndNothingIsWritten) {
  constexpr std::size_t kHuge = std::numeric_limits<std::size_t>::max();
  for (const int nranks : {1, 2}) {
    const auto problems = run_communicators(
        GetParam(), nranks, patient(), [](runtime::Communicator& comm, Exchange&, Problems& trouble) {
          Memory memory;
          std::byte* const a = memory.bytes + 256;
          std::byte* const b = memory.bytes + 512;
          struct Bad {
            const char* what;
            const void* send;
            void* recv;
            std::size_t count;
            int type, op;
            const char* named;
          };
          const int f32 = static_cast<int>(DataType::f32), i32 = static_cast<int>(DataType::i32),
                    bf16 = static_cast<int>(DataType::bf16), sum = static_cast<int>(ReduceOp::sum);
          const std::vector<Bad> bad = {
              {"no send", nullptr, b, 4, f32, sum, "send is null"},
              {"no recv", a, nullptr, 4, f32, sum, "recv is null"},
              {"neither", nullptr, nullptr, 4, f32, sum, "null"},
              {"unknown type", a, b, 4, 12, sum, "type: 12"},
              {"unknown type", a, b, 4, 99, sum, "type: 99"},
              {"negative type", a, b, 4, -1, sum, "type: -1"},
              {"unknown op", a, b, 4, f32, 6, "op: 6"},
              {"no factor", a, b, 4, f32, static_cast<int>(ReduceOp::premul_sum),
               "op: mulsum needs a factor"},
              {"negative op", a, b, 4, f32, -1, "op: -1"},
              {"send between two floats", a + 1, b, 4, f32, sum, "send"},
              {"send between two floats", a + 2, b, 4, f32, sum, "not aligned to 4 bytes"},
              {"send between two integers", a + 3, b, 4, i32, sum, "send"},
              {"send between two doubles", a + 4, b, 4, static_cast<int>(DataType::f64), sum,
               "not aligned to 8 bytes"},
              {"recv between two int64", a, b + 4, 4, static_cast<int>(DataType::i64), sum, "recv"},
              {"send between two bf16", a + 1, b, 4, bf16, sum, "not aligned to 2 bytes"},
              {"recv between two floats", a, b + 1, 4, f32, sum, "recv"},
              {"recv between two floats", a, b + 2, 4, f32, sum, "recv"},
              {"recv between two bf16", a, b + 3, 4, bf16, sum, "recv"},
              {"in place and not aligned", a + 1, a + 1, 4, bf16, sum, "not aligned"},
              {"overlap by all but one", a, a + 4, 4, f32, sum, "overlap"},
              {"overlap by one", a, a + 12, 4, f32, sum, "overlap"},
              {"overlap the other way", a + 12, a, 4, f32, sum, "overlap"},
              {"overlap by one int8", a, a + 3, 4, static_cast<int>(DataType::i8), sum, "overlap"},
              {"overlap by one bf16", a, a + 6, 4, bf16, sum, "overlap"},
              {"more bytes than there are", a, b, kHuge, f32, sum, "count"},
              {"more bytes than there are", a, b, kHuge / 2, bf16, sum, "count"},
              {"bytes that would wrap to 4", a, b, kHuge / 4 + 2, f32, sum, "count"},
              {"one byte too many", a, b, kHuge / 2 / 4 + 1, f32, sum, "count"},
          };
          for (const Bad& one : bad) {
            const Status status =
                comm.all_reduce(one.send, one.recv, one.count, static_cast<DataType>(one.type),
                                static_cast<ReduceOp>(one.op), nullptr);
            expect_failure(trouble, one.what, status, Code::invalid_argument, {one.named});
            if (!memory.untouched()) return trouble.add("%s: memory was written", one.what);
          }
          if (!comm.status().ok()) trouble.add("a bad call made the communicator fail");

          // Nothing to do, whatever the pointers are.
          const Status nothing = comm.all_reduce(nullptr, nullptr, 0, DataType::f32, ReduceOp::sum, nullptr);
          if (!nothing.ok()) trouble.add("count 0: %s", nothing.to_string().c_str());
          if (!comm.all_reduce(a, b, 0, DataType::bf16, ReduceOp::max, nullptr).ok())
            trouble.add("count 0 with pointers");
          if (!memory.untouched()) trouble.add("count 0 wrote");

          // Next to each other is no overlap, in both orders; and the ranks are still in step.
          for (int i = 0; i < 4; ++i) {
            const float value = static_cast<float>(comm.rank() + 1);
            std::memcpy(a + 4 * i, &value, sizeof value);
            std::memcpy(b + 16 + 4 * i, &value, sizeof value);
          }
          const Status after = comm.all_reduce(a, a + 16, 4, DataType::f32, ReduceOp::sum, nullptr);
          const Status before = comm.all_reduce(b + 16, b, 4, DataType::f32, ReduceOp::sum, nullptr);
          if (!after.ok()) trouble.add("recv right behind send: %s", after.to_string().c_str());
          if (!before.ok()) trouble.add("recv right before send: %s", before.to_string().c_str());
          for (int i = 0; i < 4; ++i) {
            float first, second;
            std::memcpy(&first, a + 16 + 4 * i, sizeof first);
            std::memcpy(&second, b + 4 * i, sizeof second);
            const float sum_of_ranks = comm.nranks() == 1 ? 1.0f : 3.0f;
            if (first != sum_of_ranks || second != sum_of_ranks) trouble.add("wrong sum after bad calls");
          }
        });
    EXPECT_EQ(problems, "") << nranks << " ranks";
  }
}

// A bad call on one rank only: its peers wait for it and then go on together.
TEST_P(Arguments, OneRankCanTryAgain) {
  const auto problems = run_communicators(
      GetParam(), 3, patient(), [](runtime::Communicator& comm, Exchange&, Problems& trouble) {
        for (int i = 0; i < 20; ++i) {
          float value = 1;
          if (comm.rank() == i % 3) {
            expect_failure(trouble, "one rank",
                           comm.all_reduce(&value, nullptr, 1, DataType::f32, ReduceOp::sum, nullptr),
                           Code::invalid_argument, {"recv"});
          }
          const Status status = comm.all_reduce(&value, &value, 1, DataType::f32, ReduceOp::sum, nullptr);
          if (!status.ok()) trouble.add("%s", status.to_string().c_str());
          if (value != 3) trouble.add("%g instead of 3", static_cast<double>(value));
        }
      });
  EXPECT_EQ(problems, "");
}

}  // namespace
}  // namespace nearlight::test
