#include "tests/support/checked_call.hpp"

#include <array>
#include <cstring>

#include <nearlight/detail/protocol/region.hpp>
#include "algorithm/kinds.hpp"

namespace nearlight::test {

namespace {

constexpr int kPoison = 0x5a;

std::uint64_t hash_of(const void* data, std::size_t bytes) {  // FNV-1a
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto* const at = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3u;
  return hash | 1;
}

}  // namespace

std::string Call::to_string() const {
  char text[160];
  std::snprintf(text, sizeof text, "%s %s, %llu elements, %s, %s, values %d, seed %llu",
                nearlight::name_of(type), nearlight::name_of(op), static_cast<unsigned long long>(count),
                algorithm ? algorithm::name_of(*algorithm) : "any algorithm",
                protocol ? algorithm::name_of(*protocol) : "any protocol", static_cast<int>(source.values),
                static_cast<unsigned long long>(source.seed));
  return text;
}

Caller::Caller(runtime::Communicator& comm, std::size_t most_bytes)
    : comm_(comm), send_(most_bytes), recv_(most_bytes) {}

std::uint64_t Caller::run(const Call& call, const Place& place, Problems& problems,
                          const runtime::CallOptions& extra) {
  const std::size_t element = size_of(call.type), bytes = call.count * element;
  const auto nranks = static_cast<std::size_t>(comm_.nranks());
  std::byte* const send = send_.place(bytes, place.send * element);
  std::byte* const recv = place.in_place ? send : recv_.place(bytes, place.recv * element);
  if (!place.in_place) std::memset(recv, kPoison, bytes);
  for (std::uint64_t i = 0; i < call.count; ++i) {
    store_bits(call.type, send, i, input_bits(call.source, call.type, comm_.rank(), i));
  }

  runtime::CallOptions options = extra;
  if (call.protocol) options.protocol = call.protocol;
  if (call.algorithm) options.algorithm = call.algorithm;
  const Reduction reduction = reduction_of(call.source, call.type, call.op, comm_.rank());
  const Status status = comm_.all_reduce(send, recv, call.count, call.type, reduction, nullptr, options);
  if (!status.ok()) {
    problems.add("%s: %s", call.to_string().c_str(), status.to_string().c_str());
    return 0;
  }

  std::array<std::uint64_t, protocol::kMaxRanks> inputs{}, factors{};
  for (std::size_t rank = 0; rank < nranks; ++rank) {
    factors[rank] = factor_bits(call.source, call.type, static_cast<int>(rank));
  }
  for (std::uint64_t i = 0; i < call.count; ++i) {
    for (std::size_t rank = 0; rank < nranks; ++rank) {
      inputs[rank] = input_bits(call.source, call.type, static_cast<int>(rank), i);
    }
    const std::uint64_t expected = reduce_reference(call.type, call.op, std::span(inputs).first(nranks),
                                                    std::span(factors).first(nranks));
    const std::uint64_t got = load_bits(call.type, recv, i);
    if (got != expected) {
      problems.add("%s: element %llu is %llx, expected %llx", call.to_string().c_str(),
                   static_cast<unsigned long long>(i), static_cast<unsigned long long>(got),
                   static_cast<unsigned long long>(expected));
      break;
    }
    if (!place.in_place && load_bits(call.type, send, i) != inputs[static_cast<std::size_t>(comm_.rank())]) {
      problems.add("%s: input element %llu was changed", call.to_string().c_str(),
                   static_cast<unsigned long long>(i));
      break;
    }
  }
  if (!send_.whole())
    problems.add("%s: bytes around the %s were written", call.to_string().c_str(),
                 place.in_place ? "buffer" : "input");
  if (!place.in_place && !recv_.whole())
    problems.add("%s: bytes around the output were written", call.to_string().c_str());
  return hash_of(recv, bytes);
}

}  // namespace nearlight::test
