// What the tests of calls that have one way (runtime/one_way.hpp) ask of a problem, FusedProblem or
// GemvProblem, on CPUs and on GPUs alike.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "runtime/communicator.hpp"

namespace nearlight::test {

using Bytes = std::vector<std::byte>;

// A buffer of a rank's call: what it holds before the call, or, of an output, room alone.
struct ProblemBuffer {
  std::size_t bytes;
  Bytes content;  // empty: an output
};
inline ProblemBuffer holding(const std::vector<std::uint16_t>& values) {
  ProblemBuffer buffer{values.size() * 2, Bytes(values.size() * 2)};
  std::memcpy(buffer.content.data(), values.data(), buffer.bytes);
  return buffer;
}

// What a call has written.
struct Written {
  const void* data;
  std::size_t bytes;
};

template <class P>
concept OneWayProblem = requires(const P& problem, const typename P::Call& call,
                                 std::span<void* const> memory, int rank,
                                 std::span<const void* const> results) {
  { problem.in_words() } -> std::convertible_to<std::string>;
  // Of a rank, in the order that call_on() takes their addresses.
  { problem.buffers_of(rank) } -> std::same_as<std::vector<ProblemBuffer>>;
  // `true`: outputs in the place of inputs, where they may be.
  { problem.call_on(memory, rank, true) } -> std::same_as<typename P::Call>;
  { problem.written_by(call) } -> std::same_as<std::vector<Written>>;
  // "" when right; in the order of written_by().
  { problem.check_results(results, rank) } -> std::convertible_to<std::string>;
  // Whether all ranks' results must be the same bits.
  { problem.same_on_all() } -> std::same_as<bool>;
};

inline Status make(runtime::Communicator& comm, const runtime::FusedCall& call,
                   runtime::Stream stream = nullptr, const runtime::CallOptions& options = {}) {
  return comm.fused(call, stream, options);
}
inline Status make(runtime::Communicator& comm, const runtime::GemvCall& call,
                   runtime::Stream stream = nullptr, const runtime::CallOptions& options = {}) {
  return comm.gemv(call, stream, options);
}

}  // namespace nearlight::test
