// What a communicator says about itself.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "bootstrap/in_process.hpp"
#include "bootstrap/process_group.hpp"
#include "runtime/create.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::runtime {
namespace {

using test::Kind;
using test::Problems;

TEST(HostCommunicator, SaysWhatItIs) {
  for (const int nranks : {1, 2, 8}) {
    EXPECT_EQ(test::run_communicators(Kind::threads, nranks, {},
                                      [&](Communicator& comm, Exchange& exchange, Problems& trouble) {
                                        if (comm.rank() != exchange.rank() || comm.nranks() != nranks)
                                          trouble.add("another rank");
                                        if (std::strcmp(comm.backend(), "host") != 0)
                                          trouble.add("backend %s", comm.backend());
                                        if (std::strcmp(comm.memory(), "shm") != 0)
                                          trouble.add("memory %s", comm.memory());
                                        if (!comm.status().ok() || comm.fault())
                                          trouble.add("failed from the start");
                                      }),
              "");
  }
}

// Lines and cells of every source in two banks, and their flags.
TEST(HostCommunicator, ScratchFollowsTheOptions) {
  Options options = test::patient();
  options.slots = 64;
  options.chunk_bytes = 1024;
  std::size_t at_first = 0;
  for (const std::size_t offset : {std::size_t{0}, std::size_t{128}, std::size_t{4096}}) {
    options.heap_offset = offset;
    EXPECT_EQ(test::run_communicators(Kind::threads, 3, options,
                                      [&](Communicator& comm, Exchange&, Problems& trouble) {
                                        const std::size_t least = 2 * 3 * (64 * 16 + 1024);
                                        if (comm.scratch_bytes() < offset + least)
                                          trouble.add("%zu bytes", comm.scratch_bytes());
                                        if (comm.rank() != 0) return;
                                        if (offset == 0) at_first = comm.scratch_bytes();
                                        if (comm.scratch_bytes() != at_first + offset)
                                          trouble.add("%zu bytes", comm.scratch_bytes());
                                      }),
              "");
  }
}

// Scratch that no machine has is refused with the sizes that it is made of.
TEST(HostCommunicator, ScratchThatDoesNotFitTellsItsSizes) {
  Options options = test::patient();
  options.heap_offset = std::size_t{1} << 44;
  options.slots = 96;
  options.chunk_bytes = 1024;
  options.packets = 33;
  EXPECT_EQ(test::run_ranks(Kind::threads, 2,
                            [&](Exchange& exchange, Problems& trouble) {
                              const auto comm = create_host(exchange, options);
                              if (comm.ok()) return trouble.add("created");
                              test::expect_failure(trouble, "creation", comm.status(), Code::invalid_argument,
                                                   {"scratch of", "slots 96", "chunk_bytes 1024",
                                                    "packets 33", "more than this machine's"});
                            }),
            "");
}

// The place of the slots in the heap changes nothing.
TEST(HostCommunicator, WorksAnywhereInTheHeap) {
  for (const std::size_t offset : {std::size_t{128}, std::size_t{128} * 33, std::size_t{1} << 20}) {
    Options options = test::patient();
    options.heap_offset = offset;
    EXPECT_EQ(test::run_communicators(Kind::threads, 2, options,
                                      [](Communicator& comm, Exchange&, Problems& trouble) {
                                        for (const auto protocol : algorithm::kProtocols) {
                                          std::vector<float> data(3000, comm.rank() + 1);
                                          CallOptions how;
                                          how.protocol = protocol;
                                          const Status status =
                                              comm.all_reduce(data.data(), data.data(), data.size(),
                                                              DataType::f32, ReduceOp::sum, nullptr, how);
                                          if (!status.ok()) trouble.add("%s", status.to_string().c_str());
                                          for (const float value : data) {
                                            if (value != 3)
                                              return trouble.add("%g", static_cast<double>(value));
                                          }
                                        }
                                      }),
              "");
  }
}

// A type without NaNs cannot say "nothing has arrived"; nothing is sent or written.
TEST(HostCommunicator, SentinelTakesFloatsOnly) {
  EXPECT_EQ(test::run_communicators(
                Kind::threads, 2, test::patient(),
                [](Communicator& comm, Exchange&, Problems& trouble) {
                  CallOptions how;
                  how.protocol = route::Protocol::sentinel;
                  for (const DataType type : kDataTypes) {
                    if (!is_integer(type)) continue;
                    std::uint64_t data[4] = {7, 7, 7, 7};
                    const Status status = comm.all_reduce(data, data, 4, type, ReduceOp::sum, nullptr, how);
                    if (status.code() != Code::invalid_argument ||
                        status.text().find("protocol: sentinel") == std::string::npos ||
                        status.text().find(name_of(type)) == std::string::npos) {
                      trouble.add("%s", status.to_string().c_str());
                    }
                    for (const std::uint64_t value : data) {
                      if (value != 7) trouble.add("written: %llu", static_cast<unsigned long long>(value));
                    }
                  }
                  if (!comm.status().ok()) trouble.add("%s", comm.status().to_string().c_str());
                }),
            "");
}

// What a rank wrote before the barrier is read by all after it, plain; a second one keeps the next write
// away.
TEST(HostCommunicator, ABarrierHoldsAllBackUntilAllHaveCome) {
  for (const int nranks : {1, 2, 3, 8}) {
    std::vector<int> written(static_cast<std::size_t>(nranks));
    EXPECT_EQ(test::run_communicators(Kind::threads, nranks, test::patient(),
                                      [&](Communicator& comm, Exchange&, Problems& trouble) {
                                        for (int round = 1; round <= 50; ++round) {
                                          written[static_cast<std::size_t>(comm.rank())] = round;
                                          Status status = comm.barrier(nullptr);
                                          for (const int value : written) {
                                            if (value != round) trouble.add("%d in round %d", value, round);
                                          }
                                          if (status.ok()) status = comm.barrier(nullptr);
                                          if (!status.ok())
                                            return trouble.add("%s", status.to_string().c_str());
                                        }
                                      }),
              "");
  }
}

TEST(HostCommunicator, ABarrierNamesTheRankThatDoesNotCome) {
  Options options;
  options.timeout = std::chrono::milliseconds(50);
  EXPECT_EQ(test::run_communicators(Kind::threads, 3, options,
                                    [](Communicator& comm, Exchange&, Problems& trouble) {
                                      if (comm.rank() == 1) return;
                                      const Status status = comm.barrier(nullptr);
                                      if (status.code() != Code::timeout ||
                                          status.text().find("barrier on rank") == std::string::npos ||
                                          status.text().find("nothing from rank 1") == std::string::npos) {
                                        trouble.add("%s", status.to_string().c_str());
                                      }
                                    }),
            "");
}

TEST(HostCommunicator, ExplainsItsChoice) {
  EXPECT_EQ(test::run_communicators(Kind::threads, 2, {},
                                    [](Communicator& comm, Exchange&, Problems& trouble) {
                                      const auto small =
                                          comm.explain_all_reduce(8, DataType::f32, ReduceOp::sum);
                                      if (small.protocol != route::Protocol::ll)
                                        trouble.add("32 bytes take %s", algorithm::name_of(small.protocol));
                                      const auto large = comm.explain_all_reduce(
                                          std::size_t{1} << 40, DataType::bf16, ReduceOp::max);
                                      if (large.protocol != route::Protocol::simple)
                                        trouble.add("2 TiB take %s", algorithm::name_of(large.protocol));
                                      if (std::strlen(small.reason) == 0 || std::strlen(large.reason) == 0)
                                        trouble.add("no reason");
                                      if (small.algorithm != route::Algorithm::one_shot)
                                        trouble.add("another algorithm");
                                    }),
            "");
  EXPECT_EQ(test::run_communicators(Kind::threads, 1, {},
                                    [](Communicator& comm, Exchange&, Problems& trouble) {
                                      const auto alone =
                                          comm.explain_all_reduce(100, DataType::f32, ReduceOp::sum);
                                      if (alone.algorithm != route::Algorithm::copy)
                                        trouble.add("one rank does not copy");
                                    }),
            "");
}

TEST(HostCommunicator, ExplainsWhatIsForced) {
  EXPECT_EQ(test::run_communicators(
                Kind::threads, 2, {},
                [](Communicator& comm, Exchange&, Problems& trouble) {
                  CallOptions options;
                  options.protocol = route::Protocol::simple;
                  options.algorithm = route::Algorithm::one_shot;
                  const auto forced = comm.explain_all_reduce(8, DataType::f32, ReduceOp::sum, options);
                  if (!forced.ok()) return trouble.add("%s", forced.status().to_string().c_str());
                  if (forced->protocol != route::Protocol::simple ||
                      forced->algorithm != route::Algorithm::one_shot || forced->grid != 1) {
                    trouble.add("32 bytes take %s", algorithm::name_of(forced->protocol));
                  }
                  if (std::strstr(forced->reason, "asked") == nullptr)
                    trouble.add("says '%s'", forced->reason);
                }),
            "");
}

// What explain refuses, the call refuses with the same words.
TEST(HostCommunicator, RefusesToForceWhatCannotBe) {
  EXPECT_EQ(test::run_communicators(
                Kind::threads, 2, {},
                [](Communicator& comm, Exchange&, Problems& trouble) {
                  CallOptions copies, empty_handed;
                  copies.algorithm = route::Algorithm::copy;
                  empty_handed.protocol = route::Protocol::sentinel;
                  std::uint32_t data[4] = {};
                  for (const auto& [options, word] : {std::pair{copies, "algorithm: copy"},
                                                      std::pair{empty_handed, "protocol: sentinel"}}) {
                    const Status told =
                        comm.explain_all_reduce(4, DataType::i32, ReduceOp::sum, options).status();
                    const Status called =
                        comm.all_reduce(data, data, 4, DataType::i32, ReduceOp::sum, nullptr, options);
                    if (told.code() != Code::invalid_argument || called.text() != told.text() ||
                        told.text().find(word) != 0) {
                      trouble.add("'%s' and '%s'", told.to_string().c_str(), called.to_string().c_str());
                    }
                  }
                }),
            "");
  EXPECT_EQ(test::run_communicators(Kind::threads, 1, {},
                                    [](Communicator& comm, Exchange&, Problems& trouble) {
                                      CallOptions options;
                                      options.algorithm = route::Algorithm::one_shot;
                                      options.protocol = route::Protocol::simple;
                                      const auto alone =
                                          comm.explain_all_reduce(100, DataType::f32, ReduceOp::sum, options);
                                      if (!alone.ok() || alone->algorithm != route::Algorithm::copy)
                                        trouble.add("one rank does not copy");
                                    }),
            "");
}

TEST(HostCommunicator, OneRankCopiesOrDoesNothing) {
  EXPECT_EQ(test::run_communicators(
                Kind::threads, 1, {},
                [](Communicator& comm, Exchange&, Problems& trouble) {
                  for (const std::size_t count : {1, 9, 10, 1023, 100'000}) {
                    for (const ReduceOp op : kReduceOps) {
                      if (op == ReduceOp::premul_sum) continue;  // multiplies even then
                      std::vector<std::uint32_t> send(count), recv(count, 0xdeadbeef);
                      for (std::size_t i = 0; i < count; ++i)
                        send[i] = static_cast<std::uint32_t>(i * 2'654'435'761u);
                      const std::vector<std::uint32_t> before = send;
                      for (void* out : {static_cast<void*>(recv.data()), static_cast<void*>(send.data())}) {
                        const Status status =
                            comm.all_reduce(send.data(), out, count, DataType::f32, op, nullptr);
                        if (!status.ok()) trouble.add("%s", status.to_string().c_str());
                      }
                      if (recv != before || send != before)
                        trouble.add("%zu elements came out changed", count);
                    }
                  }
                }),
            "");
}

TEST(HostCommunicator, OneRankMultipliesWithItsFactor) {
  EXPECT_EQ(test::run_communicators(Kind::threads, 1, {},
                                    [](Communicator& comm, Exchange&, Problems& trouble) {
                                      for (const std::size_t count : {1, 3, 1023}) {
                                        std::vector<std::int64_t> send(count), recv(count + 1, -1);
                                        for (std::size_t i = 0; i < count; ++i)
                                          send[i] = static_cast<std::int64_t>(i) - 5;
                                        const std::int64_t factor = -3;
                                        const Status status = comm.all_reduce(
                                            send.data(), recv.data(), count, DataType::i64,
                                            Reduction::premul_sum(DataType::i64, &factor), nullptr);
                                        if (!status.ok()) trouble.add("%s", status.to_string().c_str());
                                        for (std::size_t i = 0; i < count; ++i) {
                                          if (recv[i] != -3 * (static_cast<std::int64_t>(i) - 5))
                                            trouble.add("element %zu", i);
                                        }
                                        if (recv[count] != -1) trouble.add("written behind the end");
                                      }
                                    }),
            "");
}

TEST(HostCommunicator, DelaysAreForTypesWithCodeOfTheirOwn) {
  EXPECT_EQ(test::run_communicators(Kind::threads, 2, {},
                                    [](Communicator& comm, Exchange&, Problems& trouble) {
                                      double value = 1;
                                      CallOptions how;
                                      how.delay_point = 1;
                                      test::expect_failure(trouble, "a delay",
                                                           comm.all_reduce(&value, &value, 1, DataType::f64,
                                                                           ReduceOp::sum, nullptr, how),
                                                           Code::invalid_argument, {"delay_point"});
                                    }),
            "");
}

// Where there is no GPU, asking for one is an error with a reason, and no crash.
TEST(CudaCommunicator, WithoutAGpuIsRefusedWithAReason) {
  const auto comm = create_cuda_local(std::move(bootstrap::make_in_process_group(1)[0]), 1'000'000);
  ASSERT_FALSE(comm.ok());
  EXPECT_TRUE(comm.status().code() == Code::unsupported || comm.status().code() == Code::cuda_error ||
              comm.status().code() == Code::invalid_argument)
      << comm.status().to_string();
  EXPECT_FALSE(comm.status().text().empty());
  const auto join = [] { return bootstrap::join_process_group({0, 1, "alone"}, Deadline::after_ms(60'000)); };
  const auto met = create_cuda_processes(std::move(join()).value(), 1'000'000);
  EXPECT_EQ(met.status().code(), comm.status().code()) << met.status().to_string();
  const auto attached = create_cuda_nccl(nullptr);
  ASSERT_FALSE(attached.ok());
  EXPECT_FALSE(attached.status().text().empty());
}

#if NEARLIGHT_HAS_CUDA
// Each of the two says which of them is meant.
TEST(CudaCommunicator, AnExchangeOfTheOtherKindIsNamed) {
  const auto local = create_cuda_local(
      std::move(bootstrap::join_process_group({0, 1, "alone"}, Deadline::after_ms(60'000))).value(), 0);
  EXPECT_EQ(local.status().code(), Code::invalid_argument) << local.status().to_string();
  EXPECT_NE(local.status().text().find("create_cuda_processes"), std::string::npos);
  const auto processes = create_cuda_processes(std::move(bootstrap::make_in_process_group(1)[0]), 0);
  EXPECT_EQ(processes.status().code(), Code::invalid_argument) << processes.status().to_string();
  EXPECT_NE(processes.status().text().find("create_cuda_local"), std::string::npos);
}
#endif

}  // namespace
}  // namespace nearlight::runtime
