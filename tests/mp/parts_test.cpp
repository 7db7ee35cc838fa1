// What goes wrong in a collective by parts: a rank that does not come, an abort, what is lost or late on the
// way, and the way back. Whoever has not failed has right results, and a failure names a rank.
#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/checked_collective.hpp"
#include "tests/support/kinds.hpp"

namespace nearlight::test {
namespace {

using route::Protocol;
using std::chrono::milliseconds;

constexpr Collective kByParts[] = {Collective::all_gather, Collective::reduce_scatter, Collective::broadcast,
                                   Collective::reduce, Collective::all_to_all};

runtime::Options impatient() {
  runtime::Options options;
  options.timeout = milliseconds(150 * kPatience);
  options.slots = 32;
  options.chunk_bytes = 256;
  options.packets = 32;
  return options;
}

class Parts : public ByKind {};

// Rank 1 does not come: the others name it, the root of a broadcast as well, which needs nothing of it but
// its credit. Then all are reset, and it works again.
TEST_P(Parts, AMissingRankIsNamedAndAResetHelps) {
  for (const Collective collective : kByParts) {
    for (const Protocol protocol : {Protocol::ll, Protocol::simple, Protocol::sentinel}) {
      if (protocol == Protocol::sentinel && !is_reduction(collective)) continue;
      const PartsCase one{collective, DataType::f32, ReduceOp::sum, 20, 0, protocol, {Values::pattern, 3}};
      EXPECT_EQ(run_communicators(
                    GetParam(), 3, impatient(),
                    [&](runtime::Communicator& comm, Exchange& exchange, Problems& problems) {
                      PartsCaller caller(comm, 4096);
                      caller.run(one, {}, problems);
                      meet(exchange, problems);
                      if (comm.rank() != 1) {
                        std::vector<float> send(64), recv(64);
                        runtime::CallOptions options;
                        options.protocol = protocol;
                        const Status status = comm.collective(
                            {collective, send.data(), recv.data(), 20, DataType::f32}, nullptr, options);
                        expect_failure(problems, one.to_string(), status, Code::timeout,
                                       {name_of(collective), "nothing from rank 1"});
                        const auto fault = comm.fault();
                        if (!fault || fault->peer != 1 || fault->rank != comm.rank())
                          problems.add("%s: the record names another one", one.to_string().c_str());
                      }
                      meet(exchange, problems);
                      if (const Status again = comm.reset(milliseconds(60'000)); !again.ok())
                        problems.add("reset: %s", again.to_string().c_str());
                      for (int i = 0; i < 3; ++i) caller.run(one, {}, problems);
                    }),
                "")
          << one.to_string();
    }
  }
}

TEST_P(Parts, AnAbortEndsTheWaitOfARoot) {
  runtime::Options options = patient();
  EXPECT_EQ(run_communicators(GetParam(), 2, options,
                              [&](runtime::Communicator& comm, Exchange& exchange, Problems& problems) {
                                if (comm.rank() == 0) {
                                  std::thread stopper([&] {
                                    std::this_thread::sleep_for(milliseconds(50));
                                    comm.abort();
                                  });
                                  float value = 1;
                                  const Status status = comm.collective(
                                      {Collective::broadcast, &value, &value, 1, DataType::f32}, nullptr);
                                  stopper.join();
                                  expect_failure(problems, "broadcast", status, Code::aborted, {"rank 0"});
                                }
                                meet(exchange, problems);
                              }),
            "");
}

// Each thing that rank 0 sends is lost or spoilt in turn: nobody takes a wrong result for right when it was
// lost, and a spoilt one is seen by the check of the test.
TEST_P(Parts, WhatIsLostIsMissed) {
  for (const Collective collective : kByParts) {
    for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
      for (const std::uint64_t index : {0u, 1u, 2u}) {
        // In simple a flag tells of cells that came before it: one that is lost is not missed, but the flag
        // behind it is.
        if (protocol == Protocol::simple && index == 0) continue;
        const std::uint64_t count = 4;
        const PartsCase one{collective, DataType::f32, ReduceOp::sum,       count,
                            0,          protocol,      {Values::pattern, 7}};
        Shared<std::atomic<int>> failed;
        EXPECT_EQ(run_communicators(GetParam(), 2, impatient(),
                                    [&](runtime::Communicator& comm, Exchange&, Problems& problems) {
                                      PartsCaller caller(comm, 4096);
                                      caller.run(one, {}, problems);
                                      runtime::CallOptions extra;
                                      if (comm.rank() == 0) {
                                        extra.packet_fault = 1;
                                        extra.faulty_packet = index;
                                      }
                                      Problems of_call;
                                      caller.run(one, {}, of_call, extra);
                                      if (comm.status().ok()) {
                                        // It was not needed: then all is right.
                                        if (!of_call.none()) problems.add("%s", of_call.text().c_str());
                                      } else {
                                        failed->fetch_add(1);
                                      }
                                    }),
                  "")
            << one.to_string() << ", thing " << index;
        // The first thing is always needed, if only as a credit. (Simple: cells, then the flag.)
        if (index == 0 && protocol == Protocol::ll) {
          EXPECT_GT(failed->load(), 0) << one.to_string();
        }
      }
    }
  }
}

// Ranks held up at every point, in turns.
TEST_P(Parts, LateRanksAreWaitedFor) {
  EXPECT_EQ(run_communicators(GetParam(), 3, patient(),
                              [&](runtime::Communicator& comm, Exchange&, Problems& problems) {
                                PartsCaller caller(comm, 8192);
                                std::uint64_t number = 0;
                                for (const Collective collective : kByParts) {
                                  for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
                                    for (std::uint32_t point = 1; point <= 4; ++point) {
                                      for (int late = 0; late < 3; ++late) {
                                        runtime::CallOptions extra;
                                        if (comm.rank() == late) {
                                          extra.delay_point = point;
                                          extra.delay_ns = 200'000;
                                        }
                                        const PartsCase one{collective,
                                                            DataType::f32,
                                                            ReduceOp::sum,
                                                            70,
                                                            late,
                                                            protocol,
                                                            {Values::pattern, ++number}};
                                        caller.run(one, {}, problems, extra);
                                      }
                                    }
                                  }
                                }
                              }),
            "");
}

// The epoch comes round in the middle of it.
TEST_P(Parts, AcrossTheWrapOfTheEpoch) {
  runtime::Options options = patient();
  options.slots = 32;
  options.chunk_bytes = 256;
  options.initial_epoch = 0xffffffffu - 40;
  EXPECT_EQ(run_communicators(GetParam(), 3, options,
                              [&](runtime::Communicator& comm, Exchange&, Problems& problems) {
                                PartsCaller caller(comm, 8192);
                                for (std::uint64_t i = 0; i < 60; ++i) {
                                  const PartsCase one{
                                      kByParts[i % 5],         DataType::i32,
                                      ReduceOp::sum,           100,
                                      static_cast<int>(i % 3), i % 2 == 0 ? Protocol::ll : Protocol::simple,
                                      {Values::pattern, i}};
                                  caller.run(one, {}, problems);
                                }
                              }),
            "");
}

INSTANTIATE_TEST_SUITE_P(By, Parts, testing::ValuesIn(kinds()), kind_name);

}  // namespace
}  // namespace nearlight::test
