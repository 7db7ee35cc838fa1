// Long sequences of calls, the same on all ranks.
#pragma once

#include <cstdint>
#include <random>

#include "tests/support/checked_call.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::test {

// Every algorithm with every protocol that it goes with.
struct Way {
  route::Algorithm algorithm;
  route::Protocol protocol;
};
inline constexpr Way kWays[] = {{route::Algorithm::one_shot, route::Protocol::ll},
                                {route::Algorithm::one_shot, route::Protocol::simple},
                                {route::Algorithm::one_shot, route::Protocol::sentinel},
                                {route::Algorithm::two_shot, route::Protocol::ll},
                                {route::Algorithm::two_shot, route::Protocol::sentinel},
                                {route::Algorithm::one_shot, route::Protocol::ll128},
                                {route::Algorithm::two_shot_atomic, route::Protocol::ll128}};

// `calls` calls without a barrier, each with another size (16 B to `most_bytes`, small ones as often as large
// ones), type, operation, protocol and data, each checked. "" when all is well.
inline std::string run_random_sizes(Kind kind, int nranks, int calls, std::size_t most_bytes) {
  runtime::Options options = patient();
  options.slots = 64;
  options.chunk_bytes = 4096;
  return run_communicators(
      kind, nranks, options, [&](runtime::Communicator& comm, Exchange&, Problems& problems) {
        std::mt19937_64 random(static_cast<std::uint64_t>(nranks));
        Caller caller(comm, most_bytes);
        int sizes = 0;
        while (most_bytes >> sizes > 16) ++sizes;
        for (int i = 0; i < calls && problems.none(); ++i) {
          const std::uint64_t largest = most_bytes >> random() % static_cast<std::uint64_t>(sizes);
          const std::uint64_t bytes = std::max<std::uint64_t>(16, largest - random() % (largest / 2));
          Call call;
          call.type = kDataTypes[random() % std::size(kDataTypes)];
          call.op = kReduceOps[random() % std::size(kReduceOps)];
          call.count = bytes / size_of(call.type);
          if (const auto protocol = algorithm::kProtocols[random() % std::size(algorithm::kProtocols)];
              random() % 2 == 0 && algorithm::carries(protocol, call.type)) {
            call.protocol = protocol;
          }
          call.source = {Values::pattern, random() % 1000};
          const auto own = static_cast<std::uint32_t>(i + comm.rank() * 7);
          const Place place{.send = own % 16, .recv = own / 2 % 16, .in_place = own % 5 == 0};
          caller.run(call, place, problems);
          if (!problems.none()) problems.add("call %d of %d", i, calls);
        }
      });
}

// Rounds of one message and calls of all algorithms and protocols, each one epoch, in messages that change
// their size each time, with a rank that is late at random places: before it sends, between what it hears and
// what it reads, and at the end.
inline std::string run_mixed_and_late(Kind kind, int nranks, int calls, std::uint64_t seed) {
  runtime::Options options = patient();
  options.slots = 32;
  options.chunk_bytes = 256;
  options.packets = 16;
  options.lines = 4;
  options.deterministic = false;
  return run_communicators(
      kind, nranks, options, [&](runtime::Communicator& comm, Exchange&, Problems& trouble) {
        Caller caller(comm, 2048);
        std::mt19937 random(static_cast<std::uint32_t>(seed));
        for (int i = 0; i < calls; ++i) {
          const Way& way = kWays[random() % std::size(kWays)];
          // What is added in the order of arrival must be exact.
          const auto values =
              way.algorithm == route::Algorithm::two_shot_atomic ? Values::pattern : Values::numbers;
          const Call call{DataType::f32, ReduceOp::sum,      1 + random() % 500,
                          way.protocol,  {values, random()}, way.algorithm};
          runtime::CallOptions how;
          const auto slow = static_cast<int>(random() % static_cast<unsigned>(nranks));
          const auto point = static_cast<std::uint32_t>(1 + random() % 3);
          const std::uint64_t delay_ns = random() % 50'000;
          if (comm.rank() == slow) {
            how.delay_point = point;
            how.delay_ns = delay_ns;
          }
          caller.run(call, {}, trouble, how);
        }
      });
}

}  // namespace nearlight::test
