// Each of NCCL's functions that nearlight stands in for, by nearlight's collective, on CPU ranks.
#include "dropin/takes.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/support/ranks.hpp"

namespace nearlight::test {
namespace {

using dropin::Function;
using dropin::Operation;

constexpr std::size_t kCount = 1000;
constexpr std::size_t kRanks = 3;
constexpr int kRoot = 2;

float sent(int rank, std::size_t i) { return static_cast<float>(rank * 10 + static_cast<int>(i % 7)); }
float summed(std::size_t i) { return sent(0, i) + sent(1, i) + sent(2, i); }

// What lies in recv[i] of `rank` afterwards; -1: untouched.
float expected(Function function, int rank, std::size_t i) {
  const auto part = static_cast<int>(i / kCount);
  switch (function) {
    case Function::all_reduce:
      return i < kCount ? summed(i) : -1;
    case Function::all_gather:
      return sent(part, i % kCount);
    case Function::reduce_scatter:
      return i < kCount ? summed(static_cast<std::size_t>(rank) * kCount + i) : -1;
    case Function::broadcast:
      return i < kCount ? sent(kRoot, i) : -1;
    case Function::reduce:
      return i < kCount && rank == kRoot ? summed(i) : -1;
    case Function::all_to_all:
      return sent(part, static_cast<std::size_t>(rank) * kCount + i % kCount);
    default:
      return -1;
  }
}

void check_function(runtime::Communicator& communicator, Problems& problems, Function function) {
  std::vector<float> send(kCount * kRanks), recv(kCount * kRanks, -1);
  for (std::size_t i = 0; i < send.size(); ++i) send[i] = sent(communicator.rank(), i);
  Operation operation{function, send.data(), recv.data(), kCount, static_cast<int>(DataType::f32),
                      0,        kRoot,       nullptr,     nullptr};
  const auto verdict = dropin::decide(communicator, dropin::all_takes(), operation);
  if (!verdict.taken || std::strlen(verdict.reason) == 0)
    return problems.add("%s is not taken: %s", name_of(function), verdict.reason);
  const Status status = dropin::run(communicator, operation);
  if (!status.ok()) return problems.add("%s: %s", name_of(function), status.to_string().c_str());
  for (std::size_t i = 0; i < recv.size(); ++i) {
    if (recv[i] != expected(function, communicator.rank(), i))
      return problems.add("%s: element %zu is %g", name_of(function), i, static_cast<double>(recv[i]));
  }
}

TEST(Takes, EveryFunctionByItsCollective) {
  EXPECT_EQ("",
            run_communicators(Kind::threads, kRanks, patient(),
                              [](runtime::Communicator& communicator, Exchange&, Problems& problems) {
                                for (const Function function :
                                     {Function::all_reduce, Function::all_gather, Function::reduce_scatter,
                                      Function::broadcast, Function::reduce, Function::all_to_all}) {
                                  check_function(communicator, problems, function);
                                }
                              }));
}

// To the next rank and from the one before, at once.
TEST(Takes, SendsAndReceives) {
  EXPECT_EQ("", run_communicators(Kind::threads, kRanks, patient(),
                                  [](runtime::Communicator& communicator, Exchange&, Problems& problems) {
                                    const int rank = communicator.rank(), nranks = communicator.nranks();
                                    std::vector<float> send(kCount), recv(kCount, -1);
                                    for (std::size_t i = 0; i < send.size(); ++i) send[i] = sent(rank, i);
                                    const int type = static_cast<int>(DataType::f32);
                                    const Operation pair[] = {
                                        {Function::send, send.data(), nullptr, kCount, type, 0,
                                         (rank + 1) % nranks, nullptr, nullptr},
                                        {Function::recv, nullptr, recv.data(), kCount, type, 0,
                                         (rank + nranks - 1) % nranks, nullptr, nullptr}};
                                    for (const Operation& operation : pair) {
                                      if (!dropin::decide(communicator, dropin::all_takes(), operation).taken)
                                        problems.add("%s is not taken", name_of(operation.function));
                                    }
                                    const Status status = dropin::run_together(communicator, pair);
                                    if (!status.ok()) return problems.add("%s", status.to_string().c_str());
                                    for (std::size_t i = 0; i < recv.size(); ++i) {
                                      if (recv[i] != sent((rank + nranks - 1) % nranks, i))
                                        return problems.add("element %zu", i);
                                    }
                                  }));
}

// NCCL takes buffers that overlap, and leaves to the program what it gets; an all-to-all in place is right.
void check_overlap(runtime::Communicator& communicator, Problems& problems, Function function,
                   std::size_t between) {
  const std::size_t most = kCount * kRanks;
  std::vector<float> memory(most + between, -1);
  for (std::size_t i = 0; i < most; ++i) memory[i] = sent(communicator.rank(), i);
  const std::vector<float> before = memory;
  float* const recv = memory.data() + between;
  const Operation operation{function, memory.data(), recv,    kCount, static_cast<int>(DataType::f32),
                            0,        kRoot,         nullptr, nullptr};
  const Status status = dropin::run(communicator, operation);
  if (!status.ok()) return problems.add("%s: %s", name_of(function), status.to_string().c_str());
  const bool defined = between == 0 && (function == Function::all_to_all || function == Function::all_reduce);
  for (std::size_t i = 0; i < most; ++i) {
    const float wanted = expected(function, communicator.rank(), i);
    // Nothing is written that is no part of the output, whatever the output then holds.
    if (wanted == -1 ? recv[i] != before[between + i] : defined && recv[i] != wanted) {
      return problems.add("%s at %zu: element %zu is %g", name_of(function), between, i,
                          static_cast<double>(recv[i]));
    }
  }
}

TEST(Takes, BuffersThatOverlapAreNoError) {
  EXPECT_EQ(
      "", run_communicators(Kind::threads, kRanks, patient(),
                            [](runtime::Communicator& communicator, Exchange& exchange, Problems& problems) {
                              for (const std::size_t between : {std::size_t{0}, std::size_t{7}}) {
                                for (const Function function :
                                     {Function::all_reduce, Function::all_gather, Function::reduce_scatter,
                                      Function::broadcast, Function::reduce, Function::all_to_all}) {
                                  check_overlap(communicator, problems, function, between);
                                  meet(exchange, problems);
                                }
                              }
                              // To the next rank and from the one before, by one buffer.
                              const int rank = communicator.rank(), nranks = communicator.nranks();
                              std::vector<float> both(kCount);
                              const int type = static_cast<int>(DataType::f32);
                              const Operation pair[] = {{Function::send, both.data(), nullptr, kCount, type,
                                                         0, (rank + 1) % nranks, nullptr, nullptr},
                                                        {Function::recv, nullptr, both.data(), kCount, type,
                                                         0, (rank + nranks - 1) % nranks, nullptr, nullptr}};
                              const Status status = dropin::run_together(communicator, pair);
                              if (!status.ok()) problems.add("messages: %s", status.to_string().c_str());
                            }));
}

TEST(Takes, BuffersThatOverlapAreToldInCheckMode) {
  runtime::Options options = patient();
  options.check = true;
  EXPECT_EQ("", run_communicators(Kind::threads, 2, options,
                                  [](runtime::Communicator& communicator, Exchange&, Problems& problems) {
                                    std::vector<float> memory(4 * kCount);
                                    const Operation operation{Function::all_to_all,
                                                              memory.data(),
                                                              memory.data(),
                                                              kCount,
                                                              static_cast<int>(DataType::f32),
                                                              0,
                                                              kRoot,
                                                              nullptr,
                                                              nullptr};
                                    expect_failure(problems, "all_to_all in place",
                                                   dropin::run(communicator, operation),
                                                   Code::invalid_argument, {"overlap", "all_to_all"});
                                  }));
}

TEST(Takes, WhatIsLeftAndWhy) {
  EXPECT_EQ(
      "", run_communicators(
              Kind::threads, 1, patient(),
              [](runtime::Communicator& communicator, Exchange&, Problems& problems) {
                const auto expect = [&](dropin::Takes takes, Function function, int op, const char* why) {
                  const Operation operation{function, nullptr, nullptr, 1, 7, op, 0, nullptr, nullptr};
                  const auto verdict = dropin::decide(communicator, takes, operation);
                  if (verdict.taken || std::string(verdict.reason) != why)
                    problems.add("%s: taken %d, %s", name_of(function), verdict.taken, verdict.reason);
                };
                for (const Function function : {Function::gather, Function::scatter})
                  expect(dropin::all_takes(), function, 0, "nearlight does not take this function");
                for (const Function function :
                     {Function::all_reduce, Function::reduce_scatter, Function::reduce}) {
                  for (const int op : {5, 6, 1 << 20, -1})
                    expect(dropin::all_takes(), function, op, "an operator that the program has made");
                }
                const auto one = dropin::parse_takes("all_reduce");
                expect(*one, Function::all_gather, 0, "NEARLIGHT_DROPIN_TAKES leaves this function to NCCL");
              }));
}

TEST(Takes, Names) {
  EXPECT_EQ(*dropin::parse_takes("all"), dropin::all_takes());
  EXPECT_EQ(
      *dropin::parse_takes("all_reduce,all_gather,reduce_scatter,broadcast,reduce,all_to_all,send_recv"),
      dropin::all_takes());
  EXPECT_EQ(*dropin::parse_takes("send_recv"),
            1U << static_cast<int>(Function::send) | 1U << static_cast<int>(Function::recv));
  EXPECT_EQ(*dropin::parse_takes("broadcast"), 1U << static_cast<int>(Function::broadcast));
  for (const char* wrong : {"send", "all_reduce,", "all_reduce,,reduce", "AllReduce", ","}) {
    const auto parsed = dropin::parse_takes(wrong);
    if (std::string(wrong) == "all_reduce,") {
      EXPECT_TRUE(parsed.ok()) << "a comma at the end leaves no word";
      continue;
    }
    ASSERT_FALSE(parsed.ok()) << wrong;
    EXPECT_EQ(parsed.status().code(), Code::invalid_argument);
    EXPECT_NE(parsed.status().text().find("all_to_all"), std::string::npos) << parsed.status().text();
  }
}

}  // namespace
}  // namespace nearlight::test
