#include "runtime/call_check.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include <nearlight/detail/exec/bits.hpp>
#include "runtime/steering.hpp"

namespace nearlight::runtime {

namespace {

// A type that the library does not know stays a number.
std::string type_in_words(std::uint64_t number) {
  const auto type = static_cast<DataType>(number);
  return size_of(type) != 0 ? name_of(type) : std::to_string(static_cast<int>(number));
}
std::string op_in_words(std::uint64_t number) {
  const auto op = static_cast<ReduceOp>(number);
  return is_valid(op) ? name_of(op) : std::to_string(static_cast<int>(number));
}
std::string collective_in_words(std::uint64_t number) { return name_of(static_cast<Collective>(number)); }
std::string number_in_words(std::uint64_t number) { return std::to_string(number); }
std::string yes_or_no(std::uint64_t number) { return number != 0 ? "yes" : "no"; }
std::string float_in_words(std::uint64_t bits) {
  char text[32];
  std::snprintf(text, sizeof text, "%g",
                static_cast<double>(exec::as_float(static_cast<std::uint32_t>(bits))));
  return text;
}
// An option that may be unset: 0, else the value + 1.
template <class T>
std::uint64_t number_of_option(const std::optional<T>& option) {
  return option ? 1 + static_cast<std::uint64_t>(*option) : 0;
}
template <class T>
std::string option_in_words(std::uint64_t number) {
  return number == 0 ? "not given" : algorithm::name_of(static_cast<T>(number - 1));
}

struct Field {
  const char* name;
  std::string (*in_words)(std::uint64_t);
};
constexpr Field kFields[] = {
    {"the number of the call", number_in_words},
    {"the collective", collective_in_words},
    {"count", number_in_words},
    {"type", type_in_words},
    {"op", op_in_words},
    {"the forced path", forced_in_words},
    {"algorithm", option_in_words<route::Algorithm>},
    {"protocol", option_in_words<route::Protocol>},
    {"grid", number_in_words},
    {"threads", number_in_words},
    {"first_slot", number_in_words},
    {"captured into a graph", yes_or_no},
    {"root", number_in_words},
    {"the count of rank 0", number_in_words},
    {"the count of rank 1", number_in_words},
    {"the count of rank 2", number_in_words},
    {"the count of rank 3", number_in_words},
    {"the count of rank 4", number_in_words},
    {"the count of rank 5", number_in_words},
    {"the count of rank 6", number_in_words},
    {"the count of rank 7", number_in_words},
    {"hidden", number_in_words},
    {"out_type", type_in_words},
    {"eps", float_in_words},
    {"with a residual", yes_or_no},
    {"spread", number_in_words},
    {"out_size", number_in_words},
};
static_assert(protocol::kMaxRanks == 8);
using Values = std::array<std::uint64_t, std::size(kFields)>;

Values values_of(const Call& call, std::uint64_t number) {
  return {number,
          static_cast<std::uint64_t>(call.collective),
          call.count,
          static_cast<std::uint64_t>(call.type),
          static_cast<std::uint64_t>(call.op),
          call.path,
          number_of_option(call.options.algorithm),
          number_of_option(call.options.protocol),
          call.options.grid,
          call.options.threads,
          call.options.first_slot,
          call.captured ? 1u : 0u,
          static_cast<std::uint64_t>(call.root),
          call.counts[0],
          call.counts[1],
          call.counts[2],
          call.counts[3],
          call.counts[4],
          call.counts[5],
          call.counts[6],
          call.counts[7],
          call.rows.hidden,
          static_cast<std::uint64_t>(call.rows.output_type),
          call.rows.eps_bits,
          call.rows.has_residual ? 1u : 0u,
          call.options.spread,
          call.out_size};
}

Status compare(std::uint64_t number, const Values& first, std::size_t first_rank, const Values& other,
               std::size_t rank) {
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (other[i] == first[i]) continue;
    return failure(
        Code::invalid_usage, "call %llu differs between ranks: %s is %s on rank %zu, %s on rank %zu",
        static_cast<unsigned long long>(number), kFields[i].name, kFields[i].in_words(first[i]).c_str(),
        first_rank, kFields[i].in_words(other[i]).c_str(), rank);
  }
  return {};
}

}  // namespace

Call to_compare(const FusedCall& call) {
  Call compared{.collective = call.collective,
                .count = count_of(call),
                .type = call.type,
                .op = ReduceOp::sum,
                .rows = {.hidden = call.hidden}};
  if (call.collective != Collective::all_reduce_rms_norm) return compared;
  compared.rows.output_type = call.output_type;
  compared.rows.eps_bits = exec::as_bits(call.eps);
  compared.rows.has_residual = call.residual != nullptr;
  return compared;
}

Call to_compare(const GemvCall& call) {
  return {.collective = call.collective,
          .count = count_of(call),
          .type = call.type,
          .op = ReduceOp::sum,
          .out_size = call.out};
}

std::array<std::uint64_t, protocol::kMaxRanks> counts_of(const CollectiveCall& call, int nranks) {
  std::array<std::uint64_t, protocol::kMaxRanks> counts = {};
  const bool alike = is_uneven(call.collective) && !agrees_on_most(call.collective);
  if (alike && call.counts != nullptr) std::copy_n(call.counts, nranks, counts.begin());
  return counts;
}

Status check_calls_agree(Exchange& exchange, const Call& call, std::uint64_t number, Deadline deadline) {
  auto all = gather_values(exchange, values_of(call, number), deadline);
  if (!all.ok()) return all.status().with_context("check mode");
  for (std::size_t rank = 1; rank < all->size(); ++rank)
    NL_TRY(compare(number, (*all)[0], 0, (*all)[rank], rank));
  return {};
}

void CallLedger::join(int rank, Stop stop) {
  const std::lock_guard lock(mutex_);
  stops_[rank] = std::move(stop);
}

void CallLedger::leave(int rank) {
  const std::lock_guard lock(mutex_);
  stops_.erase(rank);
}

Status CallLedger::post(int rank, std::uint64_t number, const Call& call) {
  const std::lock_guard lock(mutex_);
  if (number < first_) return {};  // it was not kept
  const std::uint64_t at = number - first_;
  if (at >= entries_.size()) {
    if (at > entries_.size() || entries_.size() >= kMost) return {};
    entries_.push_back({call, rank});
    return {};
  }
  Entry& entry = entries_[at];
  const Status same = compare(number, values_of(entry.call, number), static_cast<std::size_t>(entry.rank),
                              values_of(call, number), static_cast<std::size_t>(rank));
  if (!same.ok()) {
    for (const auto& [other, stop] : stops_) stop(same);
    return same;
  }
  ++entry.passed;
  while (!entries_.empty() && entries_.front().passed == nranks_) {
    entries_.pop_front();
    ++first_;
  }
  return {};
}

void CallLedger::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
  first_ = 0;
}

}  // namespace nearlight::runtime
