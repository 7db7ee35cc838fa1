// Long sequences of calls, the same on all ranks.
#pragma once

#include <cstdint>
#include <random>

#include "tests/support/checked_call.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::test {

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

}  // namespace nearlight::test
