// Sends and receives: what the caller gives, what is wrong with it, and what both ends make of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "algorithm/pipe_lane.hpp"
#include "base/status.hpp"
#include "base/types.hpp"
#include "route/route.hpp"

namespace nearlight::runtime {

// The second half of a call that has begun: waits for it, and tells what has become of it. Empty: there is
// none.
using Rest = std::function<Status()>;

struct CallOptions;

// One send or receive, as NCCL has them: the i-th send of a rank to another one is what that one's i-th
// receive from it gets. Count and type are the same on both. With count 0 nothing is sent, and no other
// message is moved up.
struct MessageCall {
  bool sends;
  void* buffer;  // a send's is only read
  std::size_t count;
  DataType type;
  int peer;

  const char* name() const { return sends ? "send" : "recv"; }
  std::size_t bytes() const { return count * size_of(type); }
};

// Code::invalid_argument names the argument. With count 0 the pointer is not looked at.
Status check_message(const MessageCall& message, int nranks);
// Of messages that have been checked and go together. Code::invalid_usage: what this rank sends to itself is
// not what it receives from itself; Code::invalid_argument: a receive's buffer lies across that of another
// message (but for a message to oneself in place), unless it `may_overlap` (CallOptions).
Status check_together(std::span<const MessageCall> group, int rank, bool may_overlap = false);

// Bytes that a rank sends, and that it receives.
struct MessageBytes {
  std::size_t sent = 0, received = 0;
};
MessageBytes bytes_of(std::span<const MessageCall> group);

// A group as a rank's own way carries it out.
struct MessagePlan {
  // To itself: all is there already.
  struct Copy {
    const void* from;
    void* to;
    std::size_t bytes;
  };
  std::vector<algorithm::Message> messages;  // queue by queue
  std::array<algorithm::PipeQueue, algorithm::kMostQueues> queues{};
  int queue_count = 0;
  std::vector<Copy> copies;
  std::uint32_t lanes = 0;  // of the message that is cut over most; 0: there is no message
  route::Route route;       // of the largest message
};
// `facts_of(count, type)`: the facts of one message. The group has been checked.
template <class FactsOf>
Result<MessagePlan> plan_messages(std::span<const MessageCall> group, int rank, int nranks,
                                  const FactsOf& facts_of, const CallOptions& options);

// The route of one message. Code::invalid_argument, Code::unsupported: the option that cannot be.
Result<route::Route> route_of_message(const route::Facts& facts, const CallOptions& options);
// Of the memory of pipes beside regions of this layout.
inline protocol::RegionLayout pipe_layout(const protocol::RegionLayout& regions) {
  return {regions.nranks, regions.slots, regions.cells};
}
// Units of a turn.
std::uint32_t span_of_message(std::size_t bytes, const route::Facts& facts, const route::Route& route);

// ---- implementation ----

template <class FactsOf>
Result<MessagePlan> plan_messages(std::span<const MessageCall> group, int rank, int nranks,
                                  const FactsOf& facts_of, const CallOptions& options) {
  MessagePlan plan;
  plan.messages.reserve(group.size());
  std::size_t largest = 0;
  for (int peer = 0; peer < nranks; ++peer) {
    if (peer == rank) continue;
    for (const bool sends : {true, false}) {
      algorithm::PipeQueue queue{peer, sends ? 1u : 0u, static_cast<std::uint32_t>(plan.messages.size()), 0};
      for (const MessageCall& call : group) {
        if (call.peer != peer || call.sends != sends || call.count == 0) continue;
        const route::Facts facts = facts_of(call.count, call.type);
        NL_TRY_ASSIGN(const route::Route route, route_of_message(facts, options));
        plan.messages.push_back(
            {static_cast<char*>(call.buffer), call.bytes(), route.grid,
             span_of_message(call.bytes(), facts, route),
             route.protocol == route::Protocol::ll ? algorithm::Carrier::lines : algorithm::Carrier::cells,
             static_cast<std::uint32_t>(call.type)});
        ++queue.count;
        if (route.grid > plan.lanes) plan.lanes = route.grid;
        if (call.bytes() < largest) continue;
        largest = call.bytes();
        plan.route = route;
      }
      if (queue.count != 0) plan.queues[static_cast<std::size_t>(plan.queue_count++)] = queue;
    }
  }
  plan.route.grid = plan.lanes;
  std::vector<const MessageCall*> to_itself;
  for (const MessageCall& call : group) {
    if (call.peer == rank && call.sends && call.count != 0) to_itself.push_back(&call);
  }
  std::size_t next = 0;
  for (const MessageCall& call : group) {
    if (call.peer != rank || call.sends || call.count == 0) continue;
    const MessageCall& sent = *to_itself[next++];
    if (sent.buffer != call.buffer) plan.copies.push_back({sent.buffer, call.buffer, call.bytes()});
  }
  return plan;
}

}  // namespace nearlight::runtime
