// One AllReduce with everything about it checked: result, surroundings, input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/communicator.hpp"
#include "tests/support/guarded.hpp"
#include "tests/support/problems.hpp"
#include "tests/support/reference.hpp"

namespace nearlight::test {

// What is the same on all ranks.
struct Call {
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t count = 0;
  std::optional<route::Protocol> protocol;  // none: the route's
  Source source;
  std::optional<route::Algorithm> algorithm = std::nullopt;  // none: the route's

  std::string to_string() const;
};

// What is one rank's own: how many elements its buffers lie away from the end of their mapping, which is at
// an unreadable page. The address follows from that and the count, so it is aligned to the element and to
// nothing else.
struct Place {
  std::uint32_t send = 0, recv = 0;
  bool in_place = false;
};
inline constexpr std::uint32_t kMaxPlace = 64;

class Caller {
 public:
  // For calls of at most `most_bytes`.
  Caller(runtime::Communicator& comm, std::size_t most_bytes);

  // Poisons the output, calls, and adds to `problems` what is not as it must be. Returns a hash of the
  // output's bits; 0 when the call failed.
  std::uint64_t run(const Call& call, const Place& place, Problems& problems,
                    const runtime::CallOptions& extra = {});

  runtime::Communicator& comm() { return comm_; }

 private:
  runtime::Communicator& comm_;
  Guarded send_, recv_;
};

}  // namespace nearlight::test
