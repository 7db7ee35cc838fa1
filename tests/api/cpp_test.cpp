// nearlight.hpp as a C++ program sees it, linked against the shared library.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nearlight/nearlight.hpp>

#include <thread>
#include <type_traits>

namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

static_assert(!std::is_copy_constructible_v<nearlight::Communicator>);
static_assert(std::is_nothrow_move_constructible_v<nearlight::Communicator>);
static_assert(std::is_nothrow_move_assignable_v<nearlight::Communicator>);
static_assert(!std::is_copy_constructible_v<nearlight::Operator>);
static_assert(std::is_nothrow_move_constructible_v<nearlight::Operator>);
static_assert(std::is_nothrow_move_assignable_v<nearlight::Operator>);

nearlight::Config patient() {
  nearlight::Config config;
  config.timeout = 120s;
  return config;
}

// The error that `body` throws.
template <class Body>
std::pair<nearlight::Code, std::string> error_of(const Body& body) {
  try {
    body();
  } catch (const nearlight::Error& error) {
    return {error.code(), error.what()};
  }
  return {nearlight::Code::ok, ""};
}

TEST(Cpp, AllReduceOfAHostGroup) {
  auto comms = nearlight::Communicator::host_group(3, patient());
  ASSERT_EQ(comms.size(), 3u);
  std::vector<std::thread> threads;
  for (auto& comm : comms) {
    threads.emplace_back([&comm] {
      std::vector<float> values(1000, static_cast<float>(comm.rank()));
      comm.all_reduce(values.data(), values.data(), values.size(), nearlight::f32, nearlight::sum);
      for (const float value : values) ASSERT_EQ(value, 3.0f);
      std::vector<std::uint16_t> bf16(8, 0x3f80), maximum(8);  // 1.0
      comm.all_reduce(bf16.data(), maximum.data(), bf16.size(), nearlight::bf16, nearlight::max);
      EXPECT_EQ(maximum, bf16);
    });
  }
  for (auto& thread : threads) thread.join();
}

// Many rounds, through every entry: out of place, in place, by an operator of the program's own.
TEST(Cpp, MessagesLargerThanTheScratch) {
  auto comms = nearlight::Communicator::host_group(2, patient());
  const std::size_t count = comms[0].info().scratch_bytes / sizeof(float) * 2 + 3;
  std::vector<std::thread> threads;
  for (auto& comm : comms) {
    threads.emplace_back([&comm, count] {
      const auto given = [&](std::size_t i) {
        return static_cast<float>((i + static_cast<std::size_t>(comm.rank())) % 1000);
      };
      const auto sum = [&](std::size_t i) { return static_cast<float>(i % 1000 + (i + 1) % 1000); };
      std::vector<float> send(count), recv(count, -1.0f);
      for (std::size_t i = 0; i < count; ++i) send[i] = given(i);
      const auto expect = [&](const std::vector<float>& result, float factor) {
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(result[i], factor * sum(i)) << i;
      };
      comm.all_reduce(send.data(), recv.data(), count, nearlight::f32, nearlight::sum);
      expect(recv, 1.0f);
      const float two = 2.0f;
      const nearlight::Operator twice = comm.premul_sum(nearlight::f32, &two);
      comm.all_reduce(send.data(), recv.data(), count, nearlight::f32, twice);
      expect(recv, 2.0f);
      comm.all_reduce(send.data(), send.data(), count, nearlight::f32, nearlight::sum);
      expect(send, 1.0f);
    });
  }
  for (auto& thread : threads) thread.join();
}

// Nobody is through before the last has come, and what that one wrote is seen.
TEST(Cpp, Barrier) {
  auto comms = nearlight::Communicator::host_group(3, patient());
  std::vector<int> come(3, 0);
  std::vector<std::thread> threads;
  for (auto& comm : comms) {
    threads.emplace_back([&comm, &come] {
      for (int round = 1; round <= 20; ++round) {
        if (comm.rank() == round % 3) std::this_thread::sleep_for(2ms);
        come[static_cast<std::size_t>(comm.rank())] = round;
        comm.barrier();
        for (const int other : come) ASSERT_EQ(other, round);
        comm.barrier();
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

// Every size of the scratch can be set, and what it costs is told.
TEST(Cpp, ScratchIsWhatWasAskedFor) {
  nearlight::Config small = patient();
  small.regions = 1;
  small.slots = 32;
  small.chunk_bytes = 256;
  small.packets = 16;
  nearlight::Config large = small;
  large.packets = 1u << 16;
  const auto few = nearlight::Communicator::host_group(2, small);
  const auto many = nearlight::Communicator::host_group(2, large);
  // Two banks, two sources, 16 bytes a packet.
  EXPECT_EQ(many[0].info().scratch_bytes - few[0].info().scratch_bytes, 4u * 16 * ((1u << 16) - 16));
}

TEST(Cpp, TellsWhatItIsAndWhatItWouldDo) {
  const auto comms = nearlight::Communicator::host_group(2, patient());
  EXPECT_EQ(comms[1].rank(), 1);
  EXPECT_EQ(comms[1].nranks(), 2);
  EXPECT_EQ(comms[0].info().backend, "host");
  EXPECT_EQ(comms[0].info().memory, "shm");
  EXPECT_EQ(comms[0].info().memory_reason, "");
  EXPECT_GT(comms[0].info().scratch_bytes, 0u);
  EXPECT_TRUE(comms[0].status().ok());
  const auto route = comms[0].explain(nearlight::Collective::all_reduce, 1, nearlight::f32, nearlight::sum);
  EXPECT_EQ(route.algorithm, "one_shot");
  EXPECT_EQ(route.protocol, "ll");
  EXPECT_FALSE(route.reason.empty());
  EXPECT_EQ(nearlight::version(), NEARLIGHT_VERSION_CODE);
  EXPECT_EQ(comms[0].counters().all_reduces, 0u);
  EXPECT_TRUE(comms[0].counters().routes.empty());
}

TEST(Cpp, ErrorsHaveCodeAndText) {
  auto comm = nearlight::Communicator::host(0, 1, "key");
  float value = 1;
  const auto [code, text] =
      error_of([&] { comm.all_reduce(nullptr, &value, 1, nearlight::f32, nearlight::sum); });
  EXPECT_EQ(code, nearlight::Code::invalid_argument);
  EXPECT_THAT(text, HasSubstr("invalid argument: nearlightAllReduce on rank 0: send is null"));
  EXPECT_EQ(error_of([] { nearlight::Communicator::host_group(0); }).first,
            nearlight::Code::invalid_argument);
  EXPECT_THAT(error_of([] { nearlight::Communicator::host_group(-3); }).second, HasSubstr("nranks: -3"));
  EXPECT_THAT(error_of([] { nearlight::Communicator::local({}); }).second, HasSubstr("nranks: 0"));
  EXPECT_THAT(error_of([] { nearlight::Communicator::attach(nullptr); }).second, HasSubstr("nccl is NULL"));
  EXPECT_THAT(error_of([] { nearlight::Communicator::host(5, 2, "key"); }).second, HasSubstr("rank: 5"));
  EXPECT_THAT(error_of([] { nearlight::Communicator::cuda(-1, 0, 2, "key"); }).second,
              HasSubstr("nearlightCommCreateCuda: device: -1"));
}

TEST(Cpp, ConfigurationCounts) {
  nearlight::Config config;
  config.timeout = 30ms;
  config.slots = 64;
  auto comms = nearlight::Communicator::host_group(2, config);
  float value = 1;
  const auto [code, text] =
      error_of([&] { comms[0].all_reduce(&value, &value, 1, nearlight::f32, nearlight::sum); });
  EXPECT_EQ(code, nearlight::Code::timeout);
  EXPECT_THAT(text, HasSubstr("30 ms"));
  EXPECT_EQ(comms[0].status().code, nearlight::Code::timeout);
  EXPECT_EQ(comms[0].status().peer, 1);
  EXPECT_FALSE(comms[0].status());
  config.slots = 33;
  EXPECT_THAT(error_of([&] { nearlight::Communicator::host_group(1, config); }).second, HasSubstr("slots"));
  config = {};
  config.check = true;
  EXPECT_EQ(config.to_c().check, 1);
  config.check = false;
  EXPECT_EQ(config.to_c().check, -1);
}

TEST(Cpp, MovedFromIsEmpty) {
  auto first = nearlight::Communicator::host(0, 1, "key");
  const nearlightComm_t handle = first.handle();
  nearlight::Communicator second(std::move(first));
  EXPECT_EQ(second.handle(), handle);
  EXPECT_EQ(error_of([&] { (void)first.rank(); }).first,
            nearlight::Code::invalid_argument);  // NOLINT: on purpose
  first = nearlight::Communicator::host(0, 1, "key");
  EXPECT_EQ(first.rank(), 0);
  const nearlightComm_t ended = first.handle();
  first = std::move(second);
  EXPECT_EQ(first.handle(), handle);
  int rank = 0;
  EXPECT_EQ(nearlightCommRank(ended, &rank), nearlightInvalidArgument);
  const nearlightComm_t released = first.release();
  EXPECT_EQ(nearlightCommDestroy(released), nearlightSuccess);
}

TEST(Cpp, OperatorsEndWithTheirObjects) {
  auto comm = nearlight::Communicator::host(0, 1, "key");
  const double factor = 2.5;
  double value = 2;
  nearlightRedOp_t ended{}, kept{};
  {
    const nearlight::Operator op = comm.premul_sum(nearlight::f64, &factor);
    ended = op.handle();
    comm.all_reduce(&value, &value, 1, nearlight::f64, op);
    EXPECT_EQ(value, 5);
    EXPECT_EQ(comm.explain(nearlight::Collective::all_reduce, 1, nearlight::f64, op).grid, 1u);
    EXPECT_THAT(error_of([&] { comm.all_reduce(&value, &value, 1, nearlight::f32, op); }).second,
                HasSubstr("op: " + std::to_string(ended) + " was made for double"));
  }
  EXPECT_EQ(nearlightRedOpDestroy(ended, comm.handle()), nearlightInvalidArgument);

  nearlight::Operator first = comm.premul_sum(nearlight::f64, &factor);
  kept = first.handle();
  nearlight::Operator second(std::move(first));
  EXPECT_EQ(second.handle(), kept);
  EXPECT_EQ(error_of([&] { comm.all_reduce(&value, &value, 1, nearlight::f64, first); }).first,  // NOLINT
            nearlight::Code::invalid_argument);
  first = comm.premul_sum(nearlight::f64, &factor);
  ended = first.handle();
  first = std::move(second);
  EXPECT_EQ(first.handle(), kept);
  EXPECT_EQ(nearlightRedOpDestroy(ended, comm.handle()), nearlightInvalidArgument);
  comm.all_reduce(&value, &value, 1, nearlight::f64, first);
  EXPECT_EQ(value, 12.5);
  EXPECT_EQ(error_of([&] { (void)comm.premul_sum(nearlight::f64, nullptr); }).first,
            nearlight::Code::invalid_argument);
}

TEST(Cpp, Abort) {
  auto comm = nearlight::Communicator::host(0, 1, "key");
  comm.abort();
  EXPECT_EQ(comm.status().code, nearlight::Code::aborted);
}

}  // namespace
