// Sends and receives of CPU ranks: rings, exchanges, orders that would wait for each other, and what goes
// wrong.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "runtime/create.hpp"
#include "tests/support/kinds.hpp"
#include "tests/support/message_image.hpp"

namespace nearlight::test {
namespace {

using route::Protocol;
using Part = MessagePart;
using runtime::MessageCall;
using std::chrono::milliseconds;

// Small enough that a kilobyte takes many turns.
runtime::Options small_scratch() {
  runtime::Options options = patient();
  options.slots = 32;
  options.chunk_bytes = 256;
  return options;
}
runtime::Options impatient() {
  runtime::Options options = small_scratch();
  options.timeout = milliseconds(150 * kPatience);
  return options;
}

void expect_ok(Problems& problems, const char* what, const Status& status) {
  if (!status.ok()) problems.add("%s: %s", what, status.to_string().c_str());
}

// All of it as one group of each rank's.
void exchange(runtime::Communicator& comm, const std::vector<Sent>& pattern, std::uint64_t round,
              Problems& problems, const runtime::CallOptions& options = {}) {
  Part part(pattern, comm.rank(), round);
  const auto calls = part.calls();
  expect_ok(problems, "group", comm.messages(calls, nullptr, options));
  part.check(problems);
}

class Messages : public ByKind {
 protected:
  void run(int nranks, const runtime::Options& options,
           const std::function<void(runtime::Communicator&, Exchange&, Problems&)>& body) {
    EXPECT_EQ(run_communicators(GetParam(), nranks, options, body), "") << nranks << " ranks";
  }
};

TEST_P(Messages, RingsOfAllSizes) {
  for (const int nranks : {2, 3, 5, 8}) {
    run(nranks, small_scratch(), [nranks](runtime::Communicator& comm, Exchange&, Problems& problems) {
      std::uint64_t round = 0;
      for (const auto protocol :
           {std::optional<Protocol>(), std::optional(Protocol::ll), std::optional(Protocol::simple)}) {
        runtime::CallOptions options;
        options.protocol = protocol;
        for (const std::size_t count : {0u, 1u, 7u, 8u, 9u, 255u, 256u, 257u, 512u, 3001u, 20'000u})
          exchange(comm, ring(nranks, count), ++round, problems, options);
      }
    });
  }
}

TEST_P(Messages, EveryRankToEveryOtherWithUnevenCounts) {
  for (const int nranks : {2, 4, 7}) {
    run(nranks, small_scratch(), [nranks](runtime::Communicator& comm, Exchange&, Problems& problems) {
      for (std::uint64_t round = 1; round < 6; ++round) {
        std::vector<Sent> pattern;
        for (int from = 0; from < nranks; ++from) {
          for (int to = 0; to < nranks; ++to) {
            const auto size = static_cast<std::size_t>(from * 17 + to * 5) * round * 7 % 2500;
            pattern.push_back({from, to, size, DataType::u8});
            if (to % 2 == 0) pattern.push_back({from, to, size / 3, DataType::f16});
          }
        }
        exchange(comm, pattern, round, problems);
      }
    });
  }
}

TEST_P(Messages, EveryTypeAtEveryAlignment) {
  run(2, small_scratch(), [](runtime::Communicator& comm, Exchange&, Problems& problems) {
    std::uint64_t round = 0;
    for (const DataType type : kDataTypes) {
      for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
        runtime::CallOptions options;
        options.protocol = protocol;
        std::vector<Sent> pattern;
        for (std::size_t offset = 0; offset < 16 / size_of(type); ++offset) {
          pattern.push_back({0, 1, 37 + offset, type, offset});
          pattern.push_back({1, 0, 101 - offset, type, offset});
        }
        exchange(comm, pattern, ++round, problems, options);
      }
    }
  });
}

// Alone they are done in the order of the calls, on each side.
TEST_P(Messages, SinglesArriveInOrder) {
  run(3, patient(), [](runtime::Communicator& comm, Exchange&, Problems& problems) {
    std::vector<Sent> pattern;
    for (std::size_t i = 0; i < 60; ++i) {
      pattern.push_back({0, 1, i * 5 % 23, DataType::i32});
      if (i % 3 == 0) pattern.push_back({1, 2, i, DataType::u8});
    }
    Part part(pattern, comm.rank(), 5);
    for (const MessageCall& call : part.calls())
      expect_ok(problems, "single", comm.messages({&call, 1}, nullptr));
    part.check(problems);
  });
}

// What there is room for goes through; more waits for a receive that comes behind the peer's own send, and
// says so. As a group both go through.
TEST_P(Messages, BothSendThenReceive) {
  run(2, impatient(), [](runtime::Communicator& comm, Exchange& group, Problems& problems) {
    exchange(comm, ring(2, 3000), 1, problems);
    for (const std::size_t bytes : {16u, 500u}) {
      const std::vector<Sent> pattern = ring(2, bytes);
      Part part(pattern, comm.rank(), bytes);
      auto calls = part.calls();
      std::stable_partition(calls.begin(), calls.end(), [](const MessageCall& call) { return call.sends; });
      for (const MessageCall& call : calls) expect_ok(problems, "single", comm.messages({&call, 1}, nullptr));
      part.check(problems);
    }
    meet(group, problems);
    std::vector<std::uint8_t> large(3000);
    const MessageCall send{true, large.data(), large.size(), DataType::u8, 1 - comm.rank()};
    expect_failure(problems, "large", comm.messages({&send, 1}, nullptr), Code::timeout,
                   {"rank " + std::to_string(1 - comm.rank()) + " has not received"});
    meet(group, problems);
  });
}

// One side's group is the other one's single calls, in an order that suits only who has all at once.
TEST_P(Messages, AGroupMeetsSingles) {
  run(2, small_scratch(), [](runtime::Communicator& comm, Exchange&, Problems& problems) {
    std::vector<Sent> pattern;
    for (std::size_t i = 0; i < 100; ++i) pattern.push_back({0, 1, 300 + i, DataType::u8});
    pattern.push_back({1, 0, 5000, DataType::u8});
    Part part(pattern, comm.rank(), 9);
    auto calls = part.calls();
    if (comm.rank() == 0) {
      std::stable_partition(calls.begin(), calls.end(), [](const MessageCall& call) { return !call.sends; });
      expect_ok(problems, "group", comm.messages(calls, nullptr));
    } else {
      std::stable_partition(calls.begin(), calls.end(), [](const MessageCall& call) { return !call.sends; });
      for (const MessageCall& call : calls) expect_ok(problems, "single", comm.messages({&call, 1}, nullptr));
    }
    part.check(problems);
  });
}

// Between two ranks alone; others have collectives in between, and nothing of a pair's turns is theirs.
TEST_P(Messages, BesideCollectives) {
  run(4, small_scratch(), [](runtime::Communicator& comm, Exchange&, Problems& problems) {
    for (std::uint64_t round = 1; round < 20; ++round) {
      const auto index = static_cast<int>(round);
      if (comm.rank() < 2)
        exchange(comm, {{index % 2, 1 - index % 2, 40 * round, DataType::u8}}, round, problems);
      std::vector<float> values(30, static_cast<float>(comm.rank()));
      expect_ok(problems, "all_reduce",
                comm.all_reduce(values.data(), values.data(), values.size(), DataType::f32, ReduceOp::sum,
                                nullptr));
      if (values[29] != 6) problems.add("all_reduce: %f", static_cast<double>(values[29]));
      if (comm.rank() != 1)
        exchange(comm, {{3, 2, 333, DataType::u8}, {0, 3, 99, DataType::f32}}, round, problems);
    }
  });
}

TEST_P(Messages, RandomPatterns) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  run(5, small_scratch(), [seed](runtime::Communicator& comm, Exchange&, Problems& problems) {
    std::mt19937 random(seed);  // the same on all ranks
    for (std::uint64_t round = 1; round < 60; ++round) {
      std::vector<Sent> pattern(random() % 20);
      for (Sent& sent : pattern) {
        sent.from = static_cast<int>(random() % 5);
        sent.to = static_cast<int>(random() % 5);
        sent.type = kDataTypes[random() % std::size(kDataTypes)];
        sent.count = random() % (random() % 4 == 0 ? 3000 : 60);
        sent.offset = random() % 8;
      }
      exchange(comm, pattern, round, problems);
    }
  });
}

TEST_P(Messages, AcrossTheWrapOfTheTurn) {
  runtime::Options options = small_scratch();
  options.initial_epoch = 0xffffffffu - 20;
  run(3, options, [](runtime::Communicator& comm, Exchange&, Problems& problems) {
    for (std::uint64_t round = 1; round < 60; ++round) {
      runtime::CallOptions extra;
      extra.protocol = round % 2 == 0 ? Protocol::ll : Protocol::simple;
      exchange(comm, ring(3, round % 5 == 0 ? 600 : 20), round, problems, extra);
    }
  });
}

TEST_P(Messages, ToItself) {
  run(2, patient(), [](runtime::Communicator& comm, Exchange&, Problems& problems) {
    const int rank = comm.rank();
    exchange(comm, {{rank, rank, 40, DataType::f32}, {rank, rank, 3, DataType::u8}, {0, 1, 5, DataType::u8}},
             1, problems);
    std::uint32_t value = 7;
    const MessageCall in_place[] = {{true, &value, 1, DataType::u32, rank},
                                    {false, &value, 1, DataType::u32, rank}};
    expect_ok(problems, "in place", comm.messages(in_place, nullptr));
    expect_failure(problems, "alone", comm.messages({in_place, 1}, nullptr), Code::invalid_usage, {"itself"});
    // Two that change places are not in place, each of them: one would be overwritten before it is read.
    std::uint32_t second = 9;
    const MessageCall swapped[] = {in_place[0],
                                   {true, &second, 1, DataType::u32, rank},
                                   {false, &second, 1, DataType::u32, rank},
                                   in_place[1]};
    expect_failure(problems, "swapped", comm.messages(swapped, nullptr), Code::invalid_argument, {"overlap"});
    MessageCall other[] = {in_place[0], in_place[1]};
    std::uint32_t two[2] = {};
    other[1].buffer = two;
    other[1].count = 2;
    expect_failure(problems, "counts", comm.messages(other, nullptr), Code::invalid_usage,
                   {"count", "itself"});
  });
}

TEST_P(Messages, ArgumentsThatCannotBe) {
  run(2, patient(), [](runtime::Communicator& comm, Exchange& group, Problems& problems) {
    float values[8] = {};
    const int other = 1 - comm.rank();
    const auto refused = [&](const char* where, std::vector<MessageCall> calls, const char* word,
                             runtime::CallOptions options = {}) {
      expect_failure(problems, where, comm.messages(calls, nullptr, options), Code::invalid_argument, {word});
    };
    refused("null", {{true, nullptr, 1, DataType::f32, 0}}, "send is null");
    refused("null", {{false, nullptr, 1, DataType::f32, 0}}, "recv is null");
    refused("peer", {{true, values, 1, DataType::f32, 2}}, "peer: 2");
    refused("peer", {{true, values, 0, DataType::f32, -1}}, "peer: -1");
    refused("type", {{true, values, 1, static_cast<DataType>(77), 1}}, "type: 77");
    refused("count", {{true, values, ~std::size_t{0} / 2, DataType::f32, 1}}, "count");
    refused("alignment", {{true, reinterpret_cast<char*>(values) + 1, 1, DataType::f32, 1}}, "aligned");
    refused("overlap",
            {{true, values, 4, DataType::f32, other}, {false, values + 3, 2, DataType::f32, other}},
            "overlap");
    refused("overlap",
            {{false, values, 4, DataType::f32, other}, {false, values + 2, 1, DataType::f32, other}},
            "overlap");
    runtime::CallOptions sentinel;
    sentinel.protocol = Protocol::sentinel;
    refused("protocol", {{true, values, 1, DataType::f32, 1 - comm.rank()}}, "protocol", sentinel);
    meet(group, problems);
    // Nothing of it has gone anywhere. Two sends of one buffer are no overlap.
    exchange(comm, ring(2, 9), 3, problems);
    if (comm.rank() == 0) {
      const MessageCall twice[] = {{true, values, 2, DataType::f32, 1}, {true, values, 2, DataType::f32, 1}};
      expect_ok(problems, "twice", comm.messages(twice, nullptr));
    } else {
      const MessageCall both[] = {{false, values, 2, DataType::f32, 0},
                                  {false, values + 2, 2, DataType::f32, 0}};
      expect_ok(problems, "twice", comm.messages(both, nullptr));
    }
  });
}

// Rank 1 neither sends nor receives: who waits for it names it, whichever it waits for. Then all is reset.
TEST_P(Messages, AMissingRankIsNamedAndAResetHelps) {
  for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
    run(3, impatient(), [protocol](runtime::Communicator& comm, Exchange& group, Problems& problems) {
      runtime::CallOptions options;
      options.protocol = protocol;
      exchange(comm, ring(3, 700), 1, problems, options);
      meet(group, problems);
      std::vector<std::uint8_t> data(4000);
      if (comm.rank() == 0) {
        const MessageCall receive{false, data.data(), 40, DataType::u8, 1};
        expect_failure(problems, "receive", comm.messages({&receive, 1}, nullptr, options), Code::timeout,
                       {"send_recv", "nothing from rank 1"});
      } else if (comm.rank() == 2) {
        const MessageCall send{true, data.data(), 4000, DataType::u8, 1};
        expect_failure(problems, "send", comm.messages({&send, 1}, nullptr, options), Code::timeout,
                       {"send_recv", "rank 1 has not received"});
      }
      if (comm.rank() != 1) {
        const auto fault = comm.fault();
        if (!fault || fault->peer != 1 || fault->rank != comm.rank())
          problems.add("the record names another one");
        const MessageCall again{true, data.data(), 1, DataType::u8, 1};
        if (comm.messages({&again, 1}, nullptr, options).ok()) problems.add("a failed one sends");
      }
      meet(group, problems);
      expect_ok(problems, "reset", comm.reset(milliseconds(60'000)));
      for (std::uint64_t round = 2; round < 6; ++round)
        exchange(comm, ring(3, 700), round, problems, options);
      if (comm.rank() == 1) {
        meet(group, problems);
        return;
      }
      meet(group, problems);
    });
  }
}

TEST_P(Messages, AShrunkGroupSends) {
  const Shared<std::atomic<int>> done;
  EXPECT_EQ(run_ranks(GetParam(), 3,
                      [&](Exchange& group, Problems& problems) {
                        auto comm = runtime::create_host(group, patient());
                        if (!comm.ok()) return problems.add("%s", comm.status().to_string().c_str());
                        exchange(**comm, ring(3, 100), 1, problems);
                        const int members[] = {0, 2};
                        if (group.rank() != 1) {
                          auto smaller = (*comm)->shrink(members, milliseconds(60'000));
                          expect_ok(problems, "shrink", smaller.status());
                          if (smaller.ok()) exchange(**smaller, ring(2, 500), 2, problems);
                        }
                        ++*done;
                        wait_until([&] { return *done == 3; }, milliseconds(60'000));
                      }),
            "");
}

TEST_P(Messages, AnAbortEndsTheWait) {
  run(2, patient(), [](runtime::Communicator& comm, Exchange& group, Problems& problems) {
    if (comm.rank() == 0) {
      std::thread stopper([&] {
        if (!wait_until([&] { return comm.dump().find(": running") != std::string::npos; },
                        milliseconds(60'000)))
          problems.add("the call never began");
        comm.abort();
      });
      float value = 1;
      const MessageCall receive{false, &value, 1, DataType::f32, 1};
      const Status status = comm.messages({&receive, 1}, nullptr);
      stopper.join();
      expect_failure(problems, "receive", status, Code::aborted, {"rank 0"});
    }
    meet(group, problems);
  });
}

// In check mode a message says what it is before it comes.
TEST_P(Messages, CheckModeComparesThePair) {
  runtime::Options options = impatient();
  options.check = true;
  for (const bool of_type : {false, true}) {
    run(2, options, [of_type](runtime::Communicator& comm, Exchange& group, Problems& problems) {
      exchange(comm, {{0, 1, 30, DataType::f32}, {1, 0, 900, DataType::u8}, {0, 1, 5, DataType::u8}}, 1,
               problems);
      meet(group, problems);
      float values[8] = {};
      if (comm.rank() == 0) {
        const MessageCall send{true, values, 6, DataType::f32, 1};
        (void)comm.messages({&send, 1}, nullptr);  // may be done before anybody looks
      } else {
        const MessageCall receive{false, values, of_type ? 6u : 8u, of_type ? DataType::i32 : DataType::f32,
                                  0};
        expect_failure(
            problems, "receive", comm.messages({&receive, 1}, nullptr), Code::invalid_usage,
            {"rank 0 sends 24 bytes of float", of_type ? "24 bytes of int32" : "32 bytes of float"});
      }
      meet(group, problems);
    });
  }
}

// Each thing that rank 0 sends is lost in turn: nobody takes a wrong result for right.
TEST_P(Messages, WhatIsLostIsMissed) {
  for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
    for (const std::uint64_t index : {0u, 1u, 3u, 4u}) {
      // The flags of two chunks; what is lost of a chunk itself its flag does not tell.
      if (protocol == Protocol::simple && index != 1 && index != 4) continue;
      Shared<std::atomic<int>> failed;
      run(2, impatient(), [&](runtime::Communicator& comm, Exchange&, Problems& problems) {
        exchange(comm, {{0, 1, 500, DataType::u8}}, 1, problems);
        runtime::CallOptions options;
        options.protocol = protocol;
        if (comm.rank() == 0) {
          options.packet_fault = 1;
          options.faulty_packet = index;
        }
        Problems of_call;
        exchange(comm, {{0, 1, 500, DataType::u8}}, 2, of_call, options);
        if (!comm.status().ok()) {
          failed->fetch_add(1);
        } else if (!of_call.none()) {
          problems.add("%s", of_call.text().c_str());
        }
      });
      EXPECT_GT(failed->load(), 0) << name_of(protocol) << ", thing " << index;
    }
  }
}

TEST_P(Messages, LateRanksAreWaitedFor) {
  run(3, small_scratch(), [](runtime::Communicator& comm, Exchange&, Problems& problems) {
    std::uint64_t round = 0;
    for (const Protocol protocol : {Protocol::ll, Protocol::simple}) {
      for (std::uint32_t point = 1; point <= 4; ++point) {
        for (int late = 0; late < 3; ++late) {
          runtime::CallOptions extra;
          extra.protocol = protocol;
          if (comm.rank() == late) {
            extra.delay_point = point;
            extra.delay_ns = 200'000;
          }
          exchange(comm, ring(3, 700), ++round, problems, extra);
        }
      }
    }
  });
}

TEST_P(Messages, AreCounted) {
  run(2, patient(), [](runtime::Communicator& comm, Exchange&, Problems& problems) {
    exchange(comm, {{0, 1, 30, DataType::f32}, {1, 0, 5, DataType::u8}}, 1, problems);
    const auto counters = comm.counters();
    if (counters.of(Collective::send_recv) != 1) problems.add("operations");
    if (counters.bytes != (comm.rank() == 0 ? 120u : 5u))
      problems.add("bytes: %zu", std::size_t{counters.bytes});
    const auto route = comm.explain_message({true, nullptr, 1, DataType::u8, 0});
    if (!route.ok() || route->protocol != Protocol::ll) problems.add("explain");
  });
}

INSTANTIATE_TEST_SUITE_P(By, Messages, testing::ValuesIn(kinds()), kind_name);

}  // namespace
}  // namespace nearlight::test
