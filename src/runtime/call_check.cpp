#include "runtime/call_check.hpp"

#include <string>

namespace nearlight::runtime {

namespace {

struct Packed {
  std::uint64_t number, count;
  std::uint32_t collective;
  std::int32_t type, op;
  std::uint32_t reserved;
};

Status differ(std::uint64_t number, const char* field, const std::string& first, std::size_t rank,
              const std::string& other) {
  return failure(Code::invalid_usage, "call %llu differs between ranks: %s is %s on rank 0, %s on rank %zu",
                 static_cast<unsigned long long>(number), field, first.c_str(), other.c_str(), rank);
}

// A type that the library does not know stays a number.
std::string text_of(DataType type) {
  return size_of(type) != 0 ? name_of(type) : std::to_string(static_cast<int>(type));
}
std::string text_of(ReduceOp op) { return is_valid(op) ? name_of(op) : std::to_string(static_cast<int>(op)); }

}  // namespace

Status check_calls_agree(Exchange& exchange, const Call& call, std::uint64_t number, Deadline deadline) {
  const Packed mine{number,
                    call.count,
                    static_cast<std::uint32_t>(call.collective),
                    static_cast<std::int32_t>(call.type),
                    static_cast<std::int32_t>(call.op),
                    0};
  auto all = gather_values(exchange, mine, deadline);
  if (!all.ok()) return all.status().with_context("check mode");
  const Packed& first = (*all)[0];
  for (std::size_t rank = 1; rank < all->size(); ++rank) {
    const Packed& other = (*all)[rank];
    if (other.collective != first.collective) {
      return differ(number, "the collective", name_of(static_cast<Collective>(first.collective)), rank,
                    name_of(static_cast<Collective>(other.collective)));
    }
    if (other.count != first.count) {
      return differ(number, "count", std::to_string(first.count), rank, std::to_string(other.count));
    }
    if (other.type != first.type) {
      return differ(number, "type", text_of(static_cast<DataType>(first.type)), rank,
                    text_of(static_cast<DataType>(other.type)));
    }
    if (other.op != first.op) {
      return differ(number, "op", text_of(static_cast<ReduceOp>(first.op)), rank,
                    text_of(static_cast<ReduceOp>(other.op)));
    }
  }
  return {};
}

}  // namespace nearlight::runtime
