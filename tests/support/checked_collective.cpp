#include "tests/support/checked_collective.hpp"

#include <array>
#include <cstring>
#include <span>

#include <nearlight/detail/protocol/region.hpp>

namespace nearlight::test {

namespace {

constexpr int kPoison = 0x5a;
// An address that nobody may look at.
void* nowhere() { return reinterpret_cast<void*>(std::uintptr_t{1}); }

}  // namespace

std::string PartsCase::to_string() const {
  char text[200];
  std::snprintf(text, sizeof text, "%s of %llu %s%s%s, root %d, %s, values %d, seed %llu",
                name_of(collective), static_cast<unsigned long long>(count), nearlight::name_of(type),
                is_reduction(collective) ? ", " : "", is_reduction(collective) ? nearlight::name_of(op) : "",
                root, protocol ? algorithm::name_of(*protocol) : "any protocol",
                static_cast<int>(source.values), static_cast<unsigned long long>(source.seed));
  return text;
}

std::uint64_t expected_bits(const PartsCase& test, int rank, int nranks, std::uint64_t index) {
  const auto own = static_cast<std::uint64_t>(rank) * test.count;
  const auto from = [&](int source, std::uint64_t at) {
    return input_bits(test.source, test.type, source, at);
  };
  switch (test.collective) {
    case Collective::all_gather:
      return from(static_cast<int>(index / test.count), index % test.count);
    case Collective::broadcast:
      return from(test.root, index);
    case Collective::all_to_all:
      return from(static_cast<int>(index / test.count), own + index % test.count);
    default:
      break;
  }
  const std::uint64_t at = test.collective == Collective::reduce_scatter ? own + index : index;
  std::array<std::uint64_t, protocol::kMaxRanks> inputs{}, factors{};
  for (int source = 0; source < nranks; ++source) {
    inputs[static_cast<std::size_t>(source)] = from(source, at);
    factors[static_cast<std::size_t>(source)] = factor_bits(test.source, test.type, source);
  }
  const auto size = static_cast<std::size_t>(nranks);
  return reduce_reference(test.type, test.op, std::span(inputs).first(size), std::span(factors).first(size));
}

std::uint64_t send_count(const PartsCase& test, int rank, int nranks) {
  const std::uint64_t all = test.count * static_cast<std::uint64_t>(nranks);
  switch (test.collective) {
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return all;
    case Collective::broadcast:
      return rank == test.root ? test.count : 0;
    default:
      return test.count;
  }
}

std::uint64_t recv_count(const PartsCase& test, int rank, int nranks) {
  const std::uint64_t all = test.count * static_cast<std::uint64_t>(nranks);
  switch (test.collective) {
    case Collective::all_gather:
    case Collective::all_to_all:
      return all;
    case Collective::reduce:
      return rank == test.root ? test.count : 0;
    default:
      return test.count;
  }
}

std::optional<std::uint64_t> in_place_at(const PartsCase& test, int rank, int nranks) {
  if (send_count(test, rank, nranks) == 0 || recv_count(test, rank, nranks) == 0) return std::nullopt;
  switch (test.collective) {
    case Collective::all_gather:
    case Collective::reduce_scatter:
      return static_cast<std::uint64_t>(rank) * test.count;
    default:
      return 0;
  }
}

PartsCaller::PartsCaller(runtime::Communicator& comm, std::size_t most_bytes)
    : comm_(comm), send_(most_bytes), recv_(most_bytes) {}

void PartsCaller::run(const PartsCase& test, const Place& place, Problems& problems,
                      const runtime::CallOptions& extra) {
  const int rank = comm_.rank(), nranks = comm_.nranks();
  const std::size_t element = size_of(test.type);
  const std::uint64_t sent = send_count(test, rank, nranks), received = recv_count(test, rank, nranks);
  const auto shared = place.in_place ? in_place_at(test, rank, nranks) : std::nullopt;
  // In place the larger of the two holds the smaller.
  std::byte* send = send_.place(sent * element, place.send * element);
  std::byte* recv = recv_.place(received * element, place.recv * element);
  const bool send_is_inside = shared && sent < received;
  if (shared && send_is_inside) send = recv + *shared * element;
  if (shared && !send_is_inside) recv = send + *shared * element;
  if (!shared || send_is_inside) std::memset(recv, kPoison, received * element);
  for (std::uint64_t i = 0; i < sent; ++i)
    store_bits(test.type, send, i, input_bits(test.source, test.type, rank, i));

  runtime::CallOptions options = extra;
  if (test.protocol) options.protocol = test.protocol;
  options.may_overlap = shared && test.collective == Collective::all_to_all;
  runtime::CollectiveCall call{test.collective,
                               sent != 0 ? static_cast<const void*>(send) : nowhere(),
                               received != 0 ? static_cast<void*>(recv) : nowhere(),
                               test.count,
                               test.type,
                               ReduceOp::sum,
                               test.root};
  if (is_reduction(test.collective)) call.op = reduction_of(test.source, test.type, test.op, rank);
  const Status status = comm_.collective(call, nullptr, options);
  if (!status.ok()) return problems.add("%s: %s", test.to_string().c_str(), status.to_string().c_str());

  for (std::uint64_t i = 0; i < received; ++i) {
    const std::uint64_t expected = expected_bits(test, rank, nranks, i), got = load_bits(test.type, recv, i);
    if (got == expected) continue;
    problems.add("%s: element %llu is %llx, expected %llx", test.to_string().c_str(),
                 static_cast<unsigned long long>(i), static_cast<unsigned long long>(got),
                 static_cast<unsigned long long>(expected));
    break;
  }
  // All of the input that the output does not lie on.
  for (std::uint64_t i = 0; i < sent; ++i) {
    const std::byte* const at = send + i * element;
    if (at >= recv && at < recv + received * element) continue;
    if (load_bits(test.type, send, i) == input_bits(test.source, test.type, rank, i)) continue;
    problems.add("%s: input element %llu was changed", test.to_string().c_str(),
                 static_cast<unsigned long long>(i));
    break;
  }
  if (!send_.whole() && !(shared && send_is_inside))
    problems.add("%s: bytes around the input were written", test.to_string().c_str());
  if (!recv_.whole() && !(shared && !send_is_inside))
    problems.add("%s: bytes around the output were written", test.to_string().c_str());
}

}  // namespace nearlight::test
