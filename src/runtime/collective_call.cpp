#include "runtime/collective_call.hpp"

#include <algorithm>
#include <limits>

#include "runtime/checks.hpp"

namespace nearlight::runtime {

namespace {

// In elements: how many this rank gives and gets, and where in the larger buffer its own part lies, which is
// where the smaller one may lie as well.
struct Sides {
  std::size_t send, recv;
  std::size_t own_send = 0, own_recv = 0;
  bool in_place = true;  // allowed
};
// Elements up to the end of the last part.
std::size_t extent_of(const std::size_t* counts, const std::size_t* places, int nranks) {
  std::size_t extent = 0, packed = 0;
  for (int peer = 0; peer < nranks; ++peer) {
    const std::size_t place = places != nullptr ? places[peer] : packed;
    if (counts[peer] != 0) extent = std::max(extent, place + counts[peer]);
    packed += counts[peer];
  }
  return extent;
}
std::size_t place_of(const std::size_t* counts, const std::size_t* places, int rank) {
  if (places != nullptr) return places[rank];
  std::size_t packed = 0;
  for (int peer = 0; peer < rank; ++peer) packed += counts[peer];
  return packed;
}

Sides sides_of(const CollectiveCall& call, int rank, int nranks) {
  const std::size_t all = call.count * static_cast<std::size_t>(nranks);
  const std::size_t own = call.count * static_cast<std::size_t>(rank);
  switch (call.collective) {
    case Collective::all_gather:
      return {call.count, all, 0, own};
    case Collective::reduce_scatter:
      return {all, call.count, own, 0};
    case Collective::broadcast:
      return {rank == call.root ? call.count : 0, call.count};
    case Collective::reduce:
      return {call.count, rank == call.root ? call.count : 0};
    case Collective::all_to_all:
      return {all, all, 0, 0, false};
    case Collective::all_gather_v:
      return {call.counts[rank], extent_of(call.counts, call.places, nranks), 0,
              place_of(call.counts, call.places, rank)};
    case Collective::reduce_scatter_v:
      return {extent_of(call.counts, nullptr, nranks), call.counts[rank],
              place_of(call.counts, nullptr, rank), 0};
    case Collective::all_to_all_v:
      return {extent_of(call.send_counts, call.send_places, nranks),
              extent_of(call.counts, call.places, nranks), 0, 0, false};
    case Collective::all_reduce:
    case Collective::barrier:
    case Collective::send_recv:
    case Collective::all_reduce_rms_norm:
    case Collective::all_reduce_bias:
    case Collective::gemv_all_reduce:
    case Collective::all_gather_gemv:
      // None of those that go by parts.
      break;
  }
  return {call.count, call.count};
}

Status check_side(const char* name, const void* pointer, std::size_t elements, std::size_t element,
                  std::size_t count) {
  if (elements == 0) return {};
  if (pointer == nullptr) return failure(Code::invalid_argument, "%s is null, count is %zu", name, count);
  const auto at = reinterpret_cast<std::uintptr_t>(pointer);
  if (at % element != 0)
    return failure(Code::invalid_argument, "%s (%p) is not aligned to %zu bytes", name, pointer, element);
  if (at + elements * element < at) {
    return failure(Code::invalid_argument, "count: %zu elements from %s (%p) reach past the last address",
                   elements, name, pointer);
  }
  return {};
}

// Counts that are there, and whose bytes, with their places, an address space holds.
Status check_counts(const char* name, const char* places_name, const std::size_t* counts,
                    const std::size_t* places, bool needs_places, int nranks, std::size_t most) {
  if (counts == nullptr) return failure(Code::invalid_argument, "%s is null", name);
  if (needs_places && places == nullptr) return failure(Code::invalid_argument, "%s is null", places_name);
  std::size_t packed = 0;
  for (int peer = 0; peer < nranks; ++peer) {
    const std::size_t place = places != nullptr ? places[peer] : packed;
    if (counts[peer] > most || place > most - counts[peer]) {
      return failure(Code::invalid_argument, "%s[%d]: %zu elements at %zu do not fit an address space", name,
                     peer, counts[peer], place);
    }
    packed = place + counts[peer];
  }
  return {};
}

// Parts of an output that lie across each other would be written by two ranks.
Status check_apart(const std::size_t* counts, const std::size_t* places, int nranks) {
  for (int a = 0; places != nullptr && a < nranks; ++a) {
    for (int b = 0; b < a; ++b) {
      if (counts[a] == 0 || counts[b] == 0 || places[a] >= places[b] + counts[b] ||
          places[b] >= places[a] + counts[a]) {
        continue;
      }
      return failure(Code::invalid_argument, "places: the parts of ranks %d and %d overlap in recv", b, a);
    }
  }
  return {};
}

Status check_uneven(const CollectiveCall& call, int rank, int nranks, std::size_t most) {
  const bool to_all = call.collective == Collective::all_to_all_v;
  NL_TRY(check_counts("recv_counts", "recv_places", call.counts, call.places, to_all, nranks, most));
  if (to_all) {
    NL_TRY(
        check_counts("send_counts", "send_places", call.send_counts, call.send_places, true, nranks, most));
  }
  if (to_all && call.send_counts[rank] != call.counts[rank]) {
    return failure(Code::invalid_argument,
                   "send_counts[%d] is %zu, recv_counts[%d] is %zu: what this rank gives to itself", rank,
                   call.send_counts[rank], rank, call.counts[rank]);
  }
  return check_apart(call.counts, call.places, nranks);
}

}  // namespace

CollectiveCall complete(CollectiveCall call, int nranks) {
  call.count = 0;
  if (call.collective != Collective::all_to_all_v && call.counts != nullptr)
    call.count = *std::max_element(call.counts, call.counts + nranks);
  return call;
}

CallBytes bytes_of(const CollectiveCall& call, int rank, int nranks) {
  // Arrays that are not there are check_call()'s to tell.
  if (is_uneven(call.collective) && call.counts == nullptr) return {};
  if (call.collective == Collective::all_to_all_v && call.send_counts == nullptr) return {};
  const Sides sides = sides_of(call, rank, nranks);
  return {sides.send * size_of(call.type), sides.recv * size_of(call.type)};
}

Status check_call(const CollectiveCall& call, int rank, int nranks, bool may_overlap) {
  const std::size_t element = size_of(call.type);
  if (element == 0) {
    return failure(Code::invalid_argument, "type: %d is no data type of this version",
                   static_cast<int>(call.type));
  }
  if (is_reduction(call.collective)) NL_TRY(check_reduction(call.type, call.op));
  if (has_root(call.collective) && (call.root < 0 || call.root >= nranks)) {
    return failure(Code::invalid_argument, "root: %d is not between 0 and %d", call.root, nranks - 1);
  }
  const auto most = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / element;
  if (!is_uneven(call.collective) && call.count > most / static_cast<std::size_t>(nranks)) {
    return failure(Code::invalid_argument,
                   "count: %zu elements of %zu bytes of %d ranks do not fit an address space", call.count,
                   element, nranks);
  }
  if (is_uneven(call.collective)) {
    NL_TRY(check_uneven(call, rank, nranks, most));
  } else if (call.count == 0) {
    return {};
  }
  const Sides sides = sides_of(call, rank, nranks);
  NL_TRY(check_side("send", call.send, sides.send, element, call.count));
  NL_TRY(check_side("recv", call.recv, sides.recv, element, call.count));
  if (may_overlap) return {};
  const auto from = reinterpret_cast<std::uintptr_t>(call.send);
  const auto to = reinterpret_cast<std::uintptr_t>(call.recv);
  const std::uintptr_t from_bytes = sides.send * element, to_bytes = sides.recv * element;
  if (from_bytes == 0 || to_bytes == 0 || from >= to + to_bytes || to >= from + from_bytes) return {};
  if (!sides.in_place) {
    return failure(Code::invalid_argument, "send (%p) and recv (%p) overlap: there is no %s in place",
                   call.send, call.recv, name_of(call.collective));
  }
  if (from + sides.own_send * element == to + sides.own_recv * element) return {};
  return failure(Code::invalid_argument,
                 "send (%p) and recv (%p) overlap without being in place, which for rank %d of %s is send == "
                 "recv%s%s",
                 call.send, call.recv, rank, name_of(call.collective),
                 call.collective == Collective::all_gather ? " + rank * count" : "",
                 call.collective == Collective::reduce_scatter ? " - rank * count" : "");
}

algorithm::Parts parts_of(const CollectiveCall& call, int rank, int nranks) {
  const std::uint64_t scale = is_reduction(call.collective) ? 1 : size_of(call.type);
  const std::uint64_t count = call.count * scale;
  algorithm::Parts parts;
  parts.most = count;
  for (int peer = 0; peer < nranks; ++peer) {
    const std::uint64_t place = count * static_cast<std::uint64_t>(peer);
    algorithm::Piece& send = parts.send[peer];
    algorithm::Piece& recv = parts.recv[peer];
    switch (call.collective) {
      case Collective::all_gather:
        send = {0, count};
        recv = {place, count};
        break;
      case Collective::reduce_scatter:
        send = {place, count};
        recv = {0, count};
        break;
      case Collective::broadcast:
        if (rank == call.root) send = {0, count};
        if (peer == call.root) recv = {0, count};
        break;
      case Collective::reduce:
        if (peer == call.root) send = {0, count};
        if (rank == call.root) recv = {0, count};
        break;
      case Collective::all_to_all:
        send = recv = {place, count};
        break;
      case Collective::all_gather_v:
        send = {0, call.counts[rank] * scale};
        recv = {place_of(call.counts, call.places, peer) * scale, call.counts[peer] * scale};
        break;
      case Collective::reduce_scatter_v:
        send = {place_of(call.counts, nullptr, peer), call.counts[peer]};
        recv = {0, call.counts[rank]};
        break;
      case Collective::all_to_all_v:
        send = {call.send_places[peer] * scale, call.send_counts[peer] * scale};
        recv = {call.places[peer] * scale, call.counts[peer] * scale};
        // Its own part, too, which goes round by round with the others.
        parts.most = std::max(parts.most, send.count);
        break;
      case Collective::all_reduce:
      case Collective::barrier:
      case Collective::send_recv:
      case Collective::all_reduce_rms_norm:
      case Collective::all_reduce_bias:
      case Collective::gemv_all_reduce:
      case Collective::all_gather_gemv:
        break;
    }
  }
  return parts;
}

std::uint32_t span_of(const route::Facts& facts, const route::Route& route, bool agrees) {
  if (route.protocol == route::Protocol::simple) {
    const std::uint64_t vecs = (facts.count * size_of(facts.type) + 15) / 16;
    const std::uint64_t even = std::max<std::uint64_t>(1, (vecs + route.grid - 1) / route.grid);
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(facts.cells, even));
  }
  // A slot more tells of the largest part (algorithm/parts.hpp).
  if (agrees) {
    const std::uint32_t wanted = facts.gpu ? route.threads * std::max(1u, route.held) : facts.slots;
    return std::min(wanted, facts.slots - 1);
  }
  if (!facts.gpu) return route.protocol == route::Protocol::ll ? facts.slots : facts.packets;
  return route.threads * std::max(1u, route.held);
}

}  // namespace nearlight::runtime
