// Types and operators through the C API: results against the reference, and operators that a program makes.
#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "tests/api/api_support.hpp"
#include "tests/support/reference.hpp"

namespace nearlight::test {
namespace {

constexpr std::size_t kCount = 67;

std::vector<std::byte> input_of(const Source& source, DataType type, int rank) {
  std::vector<std::byte> data(kCount * size_of(type));
  for (std::size_t i = 0; i < kCount; ++i)
    store_bits(type, data.data(), i, input_bits(source, type, rank, i));
  return data;
}

void expect_reduced(const Source& source, DataType type, ReduceOp op, int nranks,
                    const std::vector<std::byte>& result) {
  std::vector<std::uint64_t> inputs, factors;
  for (int rank = 0; rank < nranks; ++rank) {
    inputs.push_back(0);
    factors.push_back(factor_bits(source, type, rank));
  }
  const std::span<const std::uint64_t> multiplied(factors.data(),
                                                  op == ReduceOp::premul_sum ? factors.size() : 0);
  for (std::size_t i = 0; i < kCount; ++i) {
    for (int rank = 0; rank < nranks; ++rank) {
      inputs[static_cast<std::size_t>(rank)] = input_bits(source, type, rank, i);
    }
    ASSERT_EQ(load_bits(type, result.data(), i), reduce_reference(type, op, inputs, multiplied))
        << name_of(type) << " " << name_of(op) << ", " << nranks << " ranks, element " << i;
  }
}

nearlightRedOp_t make(nearlightComm_t comm, nearlightDataType_t type, const void* scalar) {
  nearlightRedOp_t op = nearlightRedOpMin_;
  EXPECT_EQ(nearlightRedOpCreatePreMulSum(&op, scalar, type, nearlightScalarHostImmediate, comm),
            nearlightSuccess)
      << nearlightGetLastError();
  return op;
}

nearlightRedOp_t make_float(nearlightComm_t comm, float factor) {
  return make(comm, nearlightFloat32, &factor);
}

nearlightResult_t reduce_float(nearlightComm_t comm, nearlightRedOp_t op, float* value) {
  return nearlightAllReduce(value, value, 1, nearlightFloat32, op, comm, nullptr);
}

TEST(ApiOperators, EveryTypeByEveryOperatorIsTheReference) {
  for (const int nranks : {1, 2, 3, 8}) {
    const HostGroup group(nranks);
    group.run([nranks](int rank, nearlightComm_t comm) {
      for (const DataType type : kDataTypes) {
        for (const ReduceOp op : kReduceOps) {
          const Source source{Values::numbers, static_cast<std::uint64_t>(op) * 100 + 7};
          const auto c_type = static_cast<nearlightDataType_t>(type);
          auto c_op = static_cast<nearlightRedOp_t>(op);
          if (op == ReduceOp::premul_sum) {
            const std::uint64_t factor = factor_bits(source, type, rank);
            c_op = make(comm, c_type, &factor);
            EXPECT_GE(c_op, 1024);
          }
          const auto send = input_of(source, type, rank);
          std::vector<std::byte> recv(send.size());
          ASSERT_EQ(nearlightAllReduce(send.data(), recv.data(), kCount, c_type, c_op, comm, nullptr),
                    nearlightSuccess)
              << nearlightGetLastError();
          expect_reduced(source, type, op, nranks, recv);
          if (op == ReduceOp::premul_sum) {
            EXPECT_EQ(nearlightRedOpDestroy(c_op, comm), nearlightSuccess);
          }
        }
      }
    });
  }
}

TEST(ApiOperators, TheScalarIsReadAtOnce) {
  const HostGroup group(1);
  float factor = 3;
  const nearlightRedOp_t op = make(group[0], nearlightFloat32, &factor);
  factor = 100;
  float value = 2;
  ASSERT_EQ(reduce_float(group[0], op, &value), nearlightSuccess);
  EXPECT_EQ(value, 6);
}

TEST(ApiOperators, SeveralLiveTogether) {
  const HostGroup group(1);
  const nearlightRedOp_t twice = make_float(group[0], 2), thrice = make_float(group[0], 3);
  EXPECT_NE(twice, thrice);
  float value = 1;
  ASSERT_EQ(reduce_float(group[0], twice, &value), nearlightSuccess);
  ASSERT_EQ(reduce_float(group[0], thrice, &value), nearlightSuccess);
  EXPECT_EQ(value, 6);
  ASSERT_EQ(nearlightRedOpDestroy(twice, group[0]), nearlightSuccess);
  ASSERT_EQ(reduce_float(group[0], thrice, &value), nearlightSuccess);
  EXPECT_EQ(value, 18);
}

TEST(ApiOperators, ExplainTakesThem) {
  const HostGroup group(2);
  const nearlightRedOp_t op = make_float(group[0], 2);
  nearlightRoute_t route = NEARLIGHT_ROUTE_INITIALIZER;
  EXPECT_EQ(nearlightExplain(group[0], nearlightCollectiveAllReduce, 8, nearlightFloat32, op, &route),
            nearlightSuccess);
  EXPECT_STREQ(route.algorithm, "one_shot");
  expect_error(nearlightExplain(group[0], nearlightCollectiveAllReduce, 8, nearlightFloat64, op, &route),
               nearlightInvalidArgument, {"op: " + std::to_string(op), "float", "double"});
  expect_error(nearlightExplain(group[1], nearlightCollectiveAllReduce, 8, nearlightFloat32, op, &route),
               nearlightInvalidArgument, {"op: " + std::to_string(op), "another communicator"});
}

TEST(ApiOperators, OnesThatDoNotBelongAreNamedAndNothingIsWritten) {
  const HostGroup group(1), other(1);
  const nearlightRedOp_t op = make_float(group[0], 2), others = make_float(other[0], 3);
  const std::string named = "op: " + std::to_string(op);
  float value = 7;
  double wide = 7;
  const auto refused = [&](nearlightResult_t result, const std::vector<std::string>& words) {
    expect_error(result, nearlightInvalidArgument, words);
    EXPECT_EQ(value, 7);
    EXPECT_EQ(wide, 7);
  };
  // Another type, also with nothing to do.
  for (const std::size_t count : {0, 1}) {
    refused(nearlightAllReduce(&wide, &wide, count, nearlightFloat64, op, group[0], nullptr),
            {"nearlightAllReduce on rank 0", named, "made for float", "double"});
  }
  // Another communicator.
  refused(reduce_float(group[0], others, &value), {"op: " + std::to_string(others), "another communicator"});
  refused(nearlightRedOpDestroy(others, group[0]), {"op: " + std::to_string(others), "another communicator"});
  // Destroyed.
  ASSERT_EQ(nearlightRedOpDestroy(op, group[0]), nearlightSuccess);
  refused(reduce_float(group[0], op, &value), {named, "destroyed"});
  refused(nearlightRedOpDestroy(op, group[0]), {named, "destroyed"});
  // Never made.
  for (const int number : {-1, 5, 6, 1023, 0x7fffffff}) {
    refused(reduce_float(group[0], static_cast<nearlightRedOp_t>(number), &value),
            {"op: " + std::to_string(number)});
    refused(nearlightRedOpDestroy(static_cast<nearlightRedOp_t>(number), group[0]),
            {"op: " + std::to_string(number)});
  }
  for (int number = 0; number < 5; ++number) {
    refused(nearlightRedOpDestroy(static_cast<nearlightRedOp_t>(number), group[0]),
            {"op: " + std::to_string(number), "not made"});
  }
  // What was refused has changed nothing.
  EXPECT_EQ(reduce_float(other[0], others, &value), nearlightSuccess);
  EXPECT_EQ(value, 21);
}

TEST(ApiOperators, TheyEndWithTheirCommunicator) {
  HostGroup group(2);
  const nearlightRedOp_t op = make_float(group[0], 2), stays = make_float(group[1], 3);
  const nearlightComm_t dead = group[0];
  ASSERT_EQ(nearlightCommDestroy(dead), nearlightSuccess);
  group.forget(0);
  expect_error(nearlightRedOpDestroy(op, dead), nearlightInvalidArgument, {"comm"});
  // It is gone, rather than another communicator's.
  float value = 7;
  expect_error(reduce_float(group[1], op, &value), nearlightInvalidArgument,
               {"op: " + std::to_string(op), "destroyed"});
  EXPECT_EQ(value, 7);
  EXPECT_EQ(nearlightRedOpDestroy(stays, group[1]), nearlightSuccess);
}

TEST(ApiOperators, AScalarOnTheGpuIsUnsupported) {
  const HostGroup group(1);
  const float scalar = 2;
  nearlightRedOp_t op = nearlightMin;
  expect_error(nearlightRedOpCreatePreMulSum(&op, &scalar, nearlightFloat32, nearlightScalarDevice, group[0]),
               nearlightUnsupported,
               {"nearlightRedOpCreatePreMulSum", "residence", "nearlightScalarDevice",
                "nearlightScalarHostImmediate"});
  EXPECT_EQ(op, nearlightMin);
}

// While others are made and destroyed, each is its maker's alone.
TEST(ApiOperators, AreMadeByManyThreadsAtOnce) {
  constexpr int kThreads = 4, kEach = 200;
  const HostGroup group(1);
  std::mutex mutex;
  std::vector<int> numbers;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::vector<nearlightRedOp_t> mine;
      for (int i = 0; i < kEach; ++i) {
        const nearlightRedOp_t op = make_float(group[0], static_cast<float>(thread));
        mine.push_back(op);
        if (i % 2 == 0) {
          EXPECT_EQ(nearlightRedOpDestroy(op, group[0]), nearlightSuccess);
        }
      }
      const std::lock_guard lock(mutex);
      numbers.insert(numbers.end(), mine.begin(), mine.end());
    });
  }
  const nearlightRedOp_t op = make_float(group[0], 1);
  for (int i = 0; i < kEach; ++i) {
    float value = 5;
    ASSERT_EQ(reduce_float(group[0], op, &value), nearlightSuccess) << nearlightGetLastError();
    ASSERT_EQ(value, 5);
  }
  for (std::thread& thread : threads) thread.join();
  numbers.push_back(op);
  std::sort(numbers.begin(), numbers.end());
  EXPECT_EQ(numbers.size(), std::size_t{kThreads * kEach + 1});
  EXPECT_EQ(std::adjacent_find(numbers.begin(), numbers.end()), numbers.end());
}

// Made while the communicator is ended: for a live one or not at all.
TEST(ApiOperators, AreNotLeftBehindByADestroyedCommunicator) {
  for (int round = 0; round < 30; ++round) {
    HostGroup group(1);
    const nearlightComm_t comm = group[0];
    std::vector<nearlightRedOp_t> made;
    std::thread making([&] {
      const float scalar = 2;
      nearlightRedOp_t op = nearlightRedOpMin_;
      while (nearlightRedOpCreatePreMulSum(&op, &scalar, nearlightFloat32, nearlightScalarHostImmediate,
                                           comm) == nearlightSuccess) {
        made.push_back(op);
      }
    });
    std::this_thread::yield();
    EXPECT_EQ(nearlightCommDestroy(comm), nearlightSuccess);
    group.forget(0);
    making.join();
    const HostGroup next(1);
    for (const nearlightRedOp_t op : made) {
      expect_error(nearlightRedOpDestroy(op, next[0]), nearlightInvalidArgument, {"destroyed"});
    }
  }
}

}  // namespace
}  // namespace nearlight::test
