// One call of a collective by parts on a CPU rank, with everything about it checked: result, surroundings,
// input; and what each element of a result must be, for whoever checks one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/collective_call.hpp"
#include "runtime/communicator.hpp"
#include "tests/support/checked_call.hpp"
#include "tests/support/guarded.hpp"
#include "tests/support/problems.hpp"
#include "tests/support/reference.hpp"

namespace nearlight::test {

// What is the same on all ranks.
struct PartsCase {
  Collective collective = Collective::all_gather;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  std::uint64_t count = 0;
  int root = 0;
  std::optional<route::Protocol> protocol;  // none: the route's
  Source source;

  std::string to_string() const;
};

// The bits of element `index` of this rank's output.
std::uint64_t expected_bits(const PartsCase& test, int rank, int nranks, std::uint64_t index);
// The elements of this rank's input and output; 0: the buffer is not looked at.
std::uint64_t send_count(const PartsCase& test, int rank, int nranks);
std::uint64_t recv_count(const PartsCase& test, int rank, int nranks);
// Where the output (reduce_scatter: the input) begins in the other one when the call is in place, in elements
// of it; none where there is no such thing. An all-to-all may have its input in its output's place only where
// buffers may overlap (CallOptions).
std::optional<std::uint64_t> in_place_at(const PartsCase& test, int rank, int nranks);

class PartsCaller {
 public:
  // For calls of at most `most_bytes` of input and of output.
  PartsCaller(runtime::Communicator& comm, std::size_t most_bytes);

  // Poisons the output, calls, and adds to `problems` what is not as it must be.
  void run(const PartsCase& test, const Place& place, Problems& problems,
           const runtime::CallOptions& extra = {});

  runtime::Communicator& comm() { return comm_; }

 private:
  runtime::Communicator& comm_;
  Guarded send_, recv_;
};

}  // namespace nearlight::test
