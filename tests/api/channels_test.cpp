// Memory for channels from a communicator of CPU ranks: what it shares with it and what it does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <nearlight/device_host.hpp>
#include <nearlight/device_memory.hpp>

namespace nearlight::test {
namespace {

using device::Channels;
using device::LL;
using device::host::Channel;
using device::host::Thread;
using testing::HasSubstr;

constexpr device::Shape kShape{.channels = 2, .slots = 4, .packets = 2, .cells = 2, .checks = 1};

// Runs `body` for each rank in a thread of its own; what it throws is its text, "" when it does not.
std::vector<std::string> run_all(std::vector<Communicator>& comms,
                                 const std::function<void(Communicator&, int)>& body) {
  std::vector<std::string> errors(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < comms.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(comms[rank], static_cast<int>(rank));
      } catch (const Error& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}
std::vector<Communicator> group(int nranks, std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  Config config;
  config.timeout = timeout;
  return Communicator::host_group(nranks, config);
}
const std::vector<std::string> kNoErrors3(3), kNoErrors2(2);

// Collectives by every protocol and messages on channels in turns: neither moves the other's epochs or slots.
TEST(ChannelMemory, IsNotTheCollectives) {
  auto comms = group(3);
  std::atomic<int> wrong{0};
  EXPECT_EQ(run_all(comms,
                    [&](Communicator& comm, int rank) {
                      const Channels first(comm, kShape), second(comm, {.packets = 1});
                      EXPECT_NE(first.memory().own, second.memory().own);
                      for (int i = 1; i <= 100; ++i) {
                        std::vector<float> values(static_cast<std::size_t>(i * i), static_cast<float>(rank));
                        Channel<LL, Thread, true> ch(first.memory(), 1);
                        Channel<device::Sentinel> other(second.memory());
                        int sum = 0;
                        wrong += !ch.bcast(0, i * 3 + rank) || !other.bcast(0, i);
                        comm.all_reduce(values.data(), values.data(), values.size(), f32, nearlight::sum);
                        for (const float value : values) wrong += value != 3;
                        wrong += !ch.recv_reduce(0, i * 3 + rank, std::plus<int>{}, sum) || sum != i * 9 + 3;
                        wrong += !other.recv_reduce(0, i, std::plus<int>{}, sum) || sum != i * 3;
                        if (i % 7 == 0) comm.barrier();
                      }
                    }),
            kNoErrors3);
  EXPECT_EQ(wrong, 0);
  for (const auto& comm : comms) EXPECT_TRUE(comm.status());
}

TEST(ChannelMemory, AnAbsentPeerIsNamedByTheCommunicator) {
  auto comms = group(3, std::chrono::milliseconds(30));
  EXPECT_EQ(run_all(comms,
                    [](Communicator& comm, int rank) {
                      const Channels channels(comm, kShape);
                      if (rank != 0) return;
                      Channel<LL> ch(channels.memory(), 1);
                      int value = 5;
                      EXPECT_FALSE(ch.recv(2, 3, value));
                      const Status status = comm.status();
                      EXPECT_EQ(status.code, Code::timeout);
                      EXPECT_EQ(status.peer, 2);
                      EXPECT_THAT(status.text,
                                  HasSubstr("channel on rank 0: nothing from rank 2 within 30 ms "
                                            "(epoch 1, region 1, slot 3: nothing is there)"));
                      EXPECT_THROW(comm.barrier(), Error);
                    }),
            kNoErrors3);
}

TEST(ChannelMemory, AMistakeIsToldInWords) {
  auto comms = group(2);
  EXPECT_EQ(run_all(comms,
                    [](Communicator& comm, int rank) {
                      const Channels channels(comm, kShape);
                      if (rank != 1) return;
                      Channel<LL, Thread, true> ch(channels.memory());
                      EXPECT_FALSE(ch.send(0, 4, 1));
                      EXPECT_EQ(comm.status().code, Code::invalid_usage);
                      EXPECT_THAT(comm.status().text,
                                  HasSubstr("channel 0 on rank 1: there is no slot of this "
                                            "number (peer 0, epoch 1, slot 4)"));
                    }),
            kNoErrors2);
}

TEST(ChannelMemory, AbortEndsAWait) {
  auto comms = group(2, std::chrono::seconds(600));
  EXPECT_EQ(run_all(comms,
                    [](Communicator& comm, int rank) {
                      const Channels channels(comm, kShape);
                      if (rank != 0) return;
                      std::thread aborter([&] { comm.abort(); });
                      Channel<LL> ch(channels.memory());
                      int value = 0;
                      EXPECT_FALSE(ch.recv(1, 0, value));
                      aborter.join();
                      EXPECT_EQ(comm.status().code, Code::aborted);
                    }),
            kNoErrors2);
}

// After a reset, channels of before are dead on all ranks, failed or not; new ones are as new.
TEST(ChannelMemory, AfterAResetThereAreNewOnes) {
  auto comms = group(2, std::chrono::milliseconds(30));
  EXPECT_EQ(run_all(comms,
                    [](Communicator& comm, int rank) {
                      Channels channels(comm, kShape);
                      int value = 0;
                      if (rank == 0) {
                        Channel<LL> ch(channels.memory());
                        EXPECT_FALSE(ch.recv(1, 0, value));
                      }
                      comm.reset(std::chrono::seconds(20));
                      EXPECT_TRUE(comm.status());
                      {
                        Channel<LL> ch(channels.memory());
                        EXPECT_TRUE(ch.failed());
                        EXPECT_FALSE(ch.bcast(0, 1));
                      }
                      channels = Channels(comm, kShape);
                      Channel<LL> ch(channels.memory());
                      EXPECT_TRUE(ch.bcast(0, rank));
                      EXPECT_TRUE(ch.recv(1 - rank, 0, value));
                      EXPECT_EQ(value, 1 - rank);
                      EXPECT_TRUE(comm.status());
                    }),
            kNoErrors2);
}

TEST(ChannelMemory, BadShapesAreToldToAllRanks) {
  auto comms = group(2);
  const auto errors_of = [&](device::Shape zero, device::Shape one, std::uint32_t peers_of_zero = 0) {
    return run_all(comms, [&](Communicator& comm, int rank) {
      const Channels channels(comm, rank == 0 ? zero : one, rank == 0 ? peers_of_zero : 0);
    });
  };
  for (const std::string& error : errors_of({.slots = 8}, {.slots = 9}))
    EXPECT_THAT(error, HasSubstr("channels differ between ranks: slots is 8 on rank 0, 9 on rank 1"));
  for (const std::string& error : errors_of({.channels = 1025}, {.channels = 1025}))
    EXPECT_THAT(error, HasSubstr("channels: 1025 is not between 1 and 1024"));
  for (const std::string& error : errors_of({.slots = 1u << 21}, {}))
    EXPECT_THAT(error, HasSubstr("slots: 2097152 is not between 0 and 1048576"));
  for (const std::string& error : errors_of({}, {}, 4))
    EXPECT_THAT(error, HasSubstr("peers: 0x4 are not other ranks"));
  // Nothing is left of it.
  EXPECT_EQ(errors_of({.slots = 1}, {.slots = 1}), kNoErrors2);
  auto three = group(3);
  for (const std::string& error : run_all(three, [](Communicator&comm, int rank) {
         const Channels channels(comm, {}, rank == 0 ? 2u : rank == 1 ? 1u : 0u);
       }))
    EXPECT_THAT(error, HasSubstr("peers: rank 2 has rank 0 among them, but not the other way"));
}

TEST(ChannelMemory, ArgumentsAreChecked) {
  auto comms = group(1);
  const nearlightComm_t comm = comms[0].handle();
  nearlightChannelConfig_t config = NEARLIGHT_CHANNEL_CONFIG_INITIALIZER;
  nearlightChannel_t channel = NEARLIGHT_CHANNEL_INITIALIZER;
  const auto expect_error = [](nearlightResult_t result, const char* text) {
    EXPECT_EQ(result, nearlightInvalidArgument);
    EXPECT_THAT(nearlightGetLastError(), HasSubstr(text));
  };
  expect_error(nearlightChannelCreate(nullptr, &config, &channel), "comm is NULL");
  expect_error(nearlightChannelCreate(comm, nullptr, &channel), "config is NULL");
  expect_error(nearlightChannelCreate(comm, &config, nullptr), "channel is NULL");
  config.size = 4;
  expect_error(nearlightChannelCreate(comm, &config, &channel), "config->size is 4");
  EXPECT_EQ(channel.base, nullptr);
  config.size = sizeof config;
  expect_error(nearlightChannelDestroy(comm, &channel), "channel: there is none such");
  expect_error(nearlightChannelDestroy(comm, nullptr), "channel is NULL");
  ASSERT_EQ(nearlightChannelCreate(comm, &config, &channel), nearlightSuccess);
  EXPECT_EQ(channel.channels, 1u);
  EXPECT_EQ(nearlightChannelDestroy(comm, &channel), nearlightSuccess);
  expect_error(nearlightChannelDestroy(comm, &channel), "channel: there is none such");
}

// What spans can be, whether the communicator traces or not; the file itself:
// tests/cli/program_trace_test.cpp.
TEST(TraceSpans, WhatCannotBeIsNamed) {
  auto comms = group(3);
  const device::Span good{.name = "part 1", .begin_ns = 10, .end_ns = 10, .track = 999, .to = 5, .from = 1};
  device::trace(comms[1], good);
  const auto error_of = [&](const std::function<void(device::Span&)>& spoil) -> std::string {
    device::Span span = good;
    spoil(span);
    try {
      device::trace(comms[1], span);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      return error.what();
    }
    return "";
  };
  for (const std::string& name : {std::string(), std::string("a\"b"), std::string("a\\b"),
                                  std::string("a\nb"), std::string(64, 'x'), std::string("\xc3\xa4")})
    EXPECT_THAT(error_of([&](device::Span& span) { span.name = name; }), HasSubstr("name: 1 to 63")) << name;
  EXPECT_EQ(error_of([](device::Span& span) { span.name = std::string(63, 'x'); }), "");
  EXPECT_THAT(error_of([](device::Span& span) { span.end_ns = 9; }), HasSubstr("end_ns"));
  EXPECT_THAT(error_of([](device::Span& span) { span.track = 1000; }), HasSubstr("track: 1000"));
  EXPECT_THAT(error_of([](device::Span& span) { span.to = 2; }), HasSubstr("to: 0x2"));
  EXPECT_THAT(error_of([](device::Span& span) { span.from = 8; }), HasSubstr("from: 0x8"));
  nearlightSpan_t span = NEARLIGHT_SPAN_INITIALIZER;
  EXPECT_EQ(nearlightCommTraceSpan(comms[0].handle(), &span), nearlightInvalidArgument);
  EXPECT_THAT(nearlightGetLastError(), HasSubstr("name is NULL"));
  span.size = 1;
  EXPECT_EQ(nearlightCommTraceSpan(comms[0].handle(), &span), nearlightInvalidArgument);
  EXPECT_EQ(nearlightCommTraceSpan(comms[0].handle(), nullptr), nearlightInvalidArgument);
  EXPECT_EQ(nearlightCommTraceSpan(nullptr, &span), nearlightInvalidArgument);
}

}  // namespace
}  // namespace nearlight::test
