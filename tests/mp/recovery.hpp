// What the tests of reset and shrink share.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "algorithm/kinds.hpp"
#include "runtime/communicator.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::test {

inline constexpr route::Protocol kProtocols[] = {route::Protocol::ll, route::Protocol::simple,
                                                 route::Protocol::sentinel};

// Small, so that messages take many rounds.
inline runtime::Options with_timeout(std::chrono::milliseconds timeout) {
  runtime::Options options = patient();
  options.timeout = timeout;
  options.slots = 32;
  options.chunk_bytes = 256;
  options.packets = 32;
  return options;
}

inline Status call(runtime::Communicator& comm, std::size_t count = 100,
                   const runtime::CallOptions& options = {}) {
  std::vector<float> data(count, -1.0f);
  return comm.all_reduce(data.data(), data.data(), count, DataType::f32, ReduceOp::sum, nullptr, options);
}

// Every protocol, one and several rounds; each sum differs from those before.
inline void expect_right_results(runtime::Communicator& comm, Problems& trouble) {
  static thread_local float number = 0;
  for (const auto protocol : kProtocols) {
    for (const std::size_t count : {1u, 7u, 64u, 900u}) {
      runtime::CallOptions how;
      how.protocol = protocol;
      number = number >= 1000 ? 1 : number + 1;
      std::vector<float> data(count);
      for (std::size_t i = 0; i < count; ++i)
        data[i] = number + static_cast<float>(i) + static_cast<float>(comm.rank());
      const Status status =
          comm.all_reduce(data.data(), data.data(), count, DataType::f32, ReduceOp::sum, nullptr, how);
      if (!status.ok())
        return trouble.add("%s: %s", algorithm::name_of(protocol), status.to_string().c_str());
      const auto n = static_cast<float>(comm.nranks());
      for (std::size_t i = 0; i < count; ++i) {
        if (data[i] != n * (number + static_cast<float>(i)) + n * (n - 1) / 2)
          return trouble.add("%s, %zu elements: element %zu is %g", algorithm::name_of(protocol), count, i,
                             static_cast<double>(data[i]));
      }
    }
  }
  if (const Status status = comm.barrier(nullptr); !status.ok())
    trouble.add("barrier: %s", status.to_string().c_str());
}

}  // namespace nearlight::test
