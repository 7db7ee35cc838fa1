// Calls that have one way only: fused ones (fused_call.hpp) and products (gemv_call.hpp). No path moves them
// elsewhere, and nobody else makes them. A communicator makes them all by one body (host_one_way.cpp,
// cuda_one_way.cpp), which asks of a call what stands here.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include "base/status.hpp"
#include "runtime/call_check.hpp"
#include "runtime/call_route.hpp"
#include "runtime/fused_call.hpp"
#include "runtime/gemv_call.hpp"

namespace nearlight::runtime {

template <class T>
concept OneWayCall = requires(const T& call, int nranks, const route::Facts& facts,
                              const CallOptions& options) {
  { call.collective } -> std::convertible_to<Collective>;
  { call.type } -> std::convertible_to<DataType>;
  { call.tokens } -> std::convertible_to<std::size_t>;
  // Elements that go from rank to rank: what the call is counted by.
  { count_of(call) } -> std::same_as<std::size_t>;
  // Code::invalid_argument names the argument. Also with no tokens, but then no pointer is looked at.
  { check_call(call, nranks) } -> std::same_as<Status>;
  // The same of types and sizes alone.
  { check_shape(call, nranks) } -> std::same_as<Status>;
  // By name; those that it has not are null. The call has been checked.
  { buffers_of(call, nranks) } -> std::convertible_to<std::span<const NamedBuffer>>;
  // Whether it can be made again after it has failed: no input is in the place of an output.
  { can_repeat(call) } -> std::same_as<bool>;
  // Check mode; the path and the options are the communicator's to fill in.
  { to_compare(call) } -> std::same_as<Call>;
  { route_of_one_way(call, facts, options).value() } -> std::convertible_to<const route::Route&>;
};
static_assert(OneWayCall<FusedCall> && OneWayCall<GemvCall>);

}  // namespace nearlight::runtime
