#include "runtime/messages.hpp"

#include <algorithm>
#include <limits>

#include "route/parts.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::runtime {

Status check_message(const MessageCall& message, int nranks) {
  const std::size_t element = size_of(message.type);
  if (element == 0) {
    return failure(Code::invalid_argument, "type: %d is no data type of this version",
                   static_cast<int>(message.type));
  }
  if (message.peer < 0 || message.peer >= nranks) {
    return failure(Code::invalid_argument, "peer: %d is not between 0 and %d", message.peer, nranks - 1);
  }
  if (message.count > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / element) {
    return failure(Code::invalid_argument, "count: %zu elements of %zu bytes do not fit an address space",
                   message.count, element);
  }
  if (message.count == 0) return {};
  if (message.buffer == nullptr)
    return failure(Code::invalid_argument, "%s is null, count is %zu", message.name(), message.count);
  const auto at = reinterpret_cast<std::uintptr_t>(message.buffer);
  if (at % element != 0) {
    return failure(Code::invalid_argument, "%s (%p) is not aligned to %zu bytes", message.name(),
                   message.buffer, element);
  }
  if (at + message.bytes() < at) {
    return failure(Code::invalid_argument, "count: %zu elements from %s (%p) reach past the last address",
                   message.count, message.name(), message.buffer);
  }
  return {};
}

namespace {

// What goes from this rank to itself, in order.
std::vector<const MessageCall*> to_itself(std::span<const MessageCall> group, int rank, bool sends) {
  std::vector<const MessageCall*> found;
  for (const MessageCall& message : group) {
    if (message.peer == rank && message.sends == sends && message.count != 0) found.push_back(&message);
  }
  return found;
}

Status check_own(std::span<const MessageCall> group, int rank) {
  const auto sent = to_itself(group, rank, true), received = to_itself(group, rank, false);
  if (sent.size() != received.size()) {
    return failure(Code::invalid_usage,
                   "peer: rank %d sends %zu messages to itself and receives %zu: both belong in one group",
                   rank, sent.size(), received.size());
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (sent[i]->count == received[i]->count && sent[i]->type == received[i]->type) continue;
    return failure(Code::invalid_usage, "count: rank %d sends %zu of %s to itself and receives %zu of %s",
                   rank, sent[i]->count, name_of(sent[i]->type), received[i]->count,
                   name_of(received[i]->type));
  }
  return {};
}

// Receives from this rank itself that find in their buffer what they bring: the i-th is of the i-th send.
std::vector<const MessageCall*> in_place(std::span<const MessageCall> group, int rank) {
  const auto sent = to_itself(group, rank, true), received = to_itself(group, rank, false);
  std::vector<const MessageCall*> found;
  for (std::size_t i = 0; i < received.size(); ++i) {
    if (sent[i]->buffer == received[i]->buffer) found.push_back(received[i]);
  }
  return found;
}

}  // namespace

Status check_together(std::span<const MessageCall> group, int rank, bool may_overlap) {
  NL_TRY(check_own(group, rank));
  if (may_overlap || group.size() < 2) return {};
  std::vector<const MessageCall*> by_place;
  by_place.reserve(group.size());
  const auto unchanged = in_place(group, rank);
  for (const MessageCall& message : group) {
    if (message.count == 0) continue;
    if (std::find(unchanged.begin(), unchanged.end(), &message) == unchanged.end())
      by_place.push_back(&message);
  }
  const auto first_byte = [](const MessageCall* message) {
    return reinterpret_cast<std::uintptr_t>(message->buffer);
  };
  std::sort(by_place.begin(), by_place.end(),
            [&](const MessageCall* a, const MessageCall* b) { return first_byte(a) < first_byte(b); });
  // Who reaches farthest of those in front, of all and of the receives.
  const MessageCall *any = nullptr, *receive = nullptr;
  const auto reach = [&](const MessageCall* message) { return first_byte(message) + message->bytes(); };
  for (const MessageCall* const message : by_place) {
    const MessageCall* const other = message->sends ? receive : any;
    if (other != nullptr && reach(other) > first_byte(message)) {
      return failure(Code::invalid_argument,
                     "recv: of the messages that go together, the buffers of %s (%p, peer %d) and %s (%p, "
                     "peer %d) overlap",
                     other->name(), other->buffer, other->peer, message->name(), message->buffer,
                     message->peer);
    }
    if (any == nullptr || reach(message) > reach(any)) any = message;
    if (!message->sends && (receive == nullptr || reach(message) > reach(receive))) receive = message;
  }
  return {};
}

MessageBytes bytes_of(std::span<const MessageCall> group) {
  MessageBytes bytes;
  for (const MessageCall& message : group) (message.sends ? bytes.sent : bytes.received) += message.bytes();
  return bytes;
}

Result<route::Route> route_of_message(const route::Facts& facts, const CallOptions& options) {
  if (facts.nranks > 1 && options.algorithm == route::Algorithm::nccl) {
    if (!options.protocol) return route::forced_parts_by_nccl(facts, false);
    return failure(Code::invalid_argument, "protocol: %s, but nccl chooses its own",
                   algorithm::name_of(*options.protocol));
  }
  if (options.algorithm && *options.algorithm != route::Algorithm::one_shot && facts.nranks > 1) {
    return failure(Code::invalid_argument, "algorithm: %s is none that send_recv takes",
                   name_of(*options.algorithm));
  }
  NL_TRY_ASSIGN(route::Route route,
                route::message(options.algorithm || options.protocol ? route::without_nccl(facts) : facts,
                               options.protocol));
  if (options.grid != 0 && !algorithm::is_elsewhere(route.algorithm)) {
    if (options.grid > facts.regions) {
      return failure(Code::invalid_argument, "grid: %u CTAs, but there are %u lanes for messages",
                     options.grid, facts.regions);
    }
    route.grid = options.grid;
  }
  return route;
}

std::uint32_t span_of_message(std::size_t bytes, const route::Facts& facts, const route::Route& route) {
  if (algorithm::is_elsewhere(route.algorithm)) return 0;
  const bool lines = route.protocol == route::Protocol::ll;
  const std::uint64_t unit = lines ? sizeof(exec::Pack) : sizeof(exec::Vec);
  const std::uint64_t units = (bytes + unit - 1) / unit;
  const std::uint64_t even = (units + route.grid - 1) / route.grid;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(lines ? facts.slots : facts.cells, even));
}

}  // namespace nearlight::runtime
