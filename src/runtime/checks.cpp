#include "runtime/checks.hpp"
#include "base/collective.hpp"
#include "base/fault_point.hpp"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>

#include <nearlight/detail/protocol/channel_memory.hpp>
#include <nearlight/detail/protocol/region.hpp>
#include "algorithm/pipe_lane.hpp"
#include "base/variables.hpp"

namespace nearlight::runtime {

namespace {

constexpr std::int64_t kLongestMs = variables::kTimeoutMs.highest;

bool is_possible(std::chrono::milliseconds time) { return time.count() >= 1 && time.count() <= kLongestMs; }

}  // namespace

Status check_reduction(DataType type, const Reduction& reduction) {
  if (!is_valid(reduction.op)) {
    return failure(Code::invalid_argument, "op: %d is no reduction of this version",
                   static_cast<int>(reduction.op));
  }
  if ((reduction.op == ReduceOp::premul_sum) != reduction.factor.has_value()) {
    return failure(Code::invalid_argument, "op: %s %s factor", name_of(reduction.op),
                   reduction.factor ? "takes no" : "needs a");
  }
  if (reduction.factor && reduction.factor->type != type) {
    return failure(Code::invalid_argument, "op: the factor is of type %s, the elements are %s",
                   name_of(reduction.factor->type), name_of(type));
  }
  return {};
}

Status check_buffers(const void* send, const void* recv, std::size_t count, DataType type,
                     const Reduction& reduction, bool may_overlap) {
  const std::size_t element = size_of(type);
  if (element == 0)
    return failure(Code::invalid_argument, "type: %d is no data type of this version",
                   static_cast<int>(type));
  NL_TRY(check_reduction(type, reduction));
  if (count > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / element) {
    return failure(Code::invalid_argument, "count: %zu elements of %zu bytes do not fit an address space",
                   count, element);
  }
  if (send == nullptr) return failure(Code::invalid_argument, "send is null, count is %zu", count);
  if (recv == nullptr) return failure(Code::invalid_argument, "recv is null, count is %zu", count);
  const auto from = reinterpret_cast<std::uintptr_t>(send), to = reinterpret_cast<std::uintptr_t>(recv);
  if (from % element != 0)
    return failure(Code::invalid_argument, "send (%p) is not aligned to %zu bytes", send, element);
  if (to % element != 0)
    return failure(Code::invalid_argument, "recv (%p) is not aligned to %zu bytes", recv, element);
  const std::uintptr_t bytes = count * element;
  if (from + bytes < from || to + bytes < to) {
    return failure(Code::invalid_argument,
                   "count: %zu elements from send (%p) or recv (%p) reach past the last address", count, send,
                   recv);
  }
  if (!may_overlap && from != to && from < to + bytes && to < from + bytes) {
    return failure(Code::invalid_argument,
                   "send (%p) and recv (%p) overlap without being the same, %zu bytes each", send, recv,
                   static_cast<std::size_t>(bytes));
  }
  return {};
}

Status check_no_stream(Stream stream) {
  if (stream == nullptr) return {};
  return failure(Code::invalid_argument, "stream is %p; CPU ranks take none (null)", stream);
}

Deadline create_deadline(const Options& options) {
  return Deadline::after(is_possible(options.create_timeout) ? options.create_timeout
                                                             : Options().create_timeout);
}

Result<std::chrono::nanoseconds> effective_timeout(const Options& options) {
  if (options.timeout.has_value()) {
    if (!is_possible(*options.timeout)) {
      return failure(Code::invalid_argument, "timeout: %" PRId64 " ms is not between 1 ms and a year",
                     static_cast<std::int64_t>(options.timeout->count()));
    }
    return std::chrono::nanoseconds(*options.timeout);
  }
  NL_TRY_ASSIGN(const std::int64_t ms, variables::read(variables::kTimeoutMs));
  return std::chrono::nanoseconds(std::chrono::milliseconds(ms));
}

Result<bool> effective_check(const Options& options) {
  if (options.check.has_value()) return *options.check;
  return variables::read(variables::kCheck);
}

Result<bool> effective_deterministic(const Options& options) {
  if (options.deterministic.has_value()) return *options.deterministic;
  return variables::read(variables::kDeterministic);
}

Result<bool> effective_calibrate(const Options& options) {
  if (options.calibrate.has_value()) return *options.calibrate;
  return variables::read(variables::kCalibrate);
}

Result<std::optional<bool>> effective_early_launch(const Options& options) {
  if (options.early_launch.has_value()) return options.early_launch;
  NL_TRY_ASSIGN(const std::optional<std::int64_t> set, variables::read(variables::kEarlyLaunch));
  return set ? std::optional<bool>(*set == 1) : std::nullopt;
}

Result<std::uint32_t> effective_max_ctas(const Options& options) {
  const char* name = "max_ctas";
  std::uint32_t max_ctas = options.max_ctas;
  if (max_ctas == 0) {
    name = variables::kMaxCtas.name;
    NL_TRY_ASSIGN(const std::int64_t set, variables::read(variables::kMaxCtas));
    max_ctas = static_cast<std::uint32_t>(set);
  }
  if (options.regions != 0 && max_ctas > options.regions) {
    return failure(Code::invalid_argument, "%s: %u is more than the %u regions", name, max_ctas,
                   options.regions);
  }
  return max_ctas;
}

Result<RetryPolicy> effective_retry(const Options& options, bool gpu) {
  RetryPolicy policy;
  policy.backoff = options.retry_backoff;
  if (!is_possible(policy.backoff)) {
    return failure(Code::invalid_argument, "retry_backoff: %" PRId64 " ms is not between 1 ms and a year",
                   static_cast<std::int64_t>(policy.backoff.count()));
  }
  if (!options.retries.has_value()) {
    NL_TRY_ASSIGN(const std::int64_t set, variables::read(variables::kRetries));
    if (!gpu) policy.attempts = static_cast<std::uint32_t>(set);
    return policy;
  }
  policy.attempts = *options.retries;
  if (policy.attempts > RetryPolicy::kMost)
    return failure(Code::invalid_argument, "retries: %u is more than %u", policy.attempts,
                   RetryPolicy::kMost);
  if (policy.attempts > 0 && gpu) {
    return failure(
        Code::invalid_argument,
        "retries: %u, but a call of a GPU rank has returned when it fails, and cannot be made again",
        policy.attempts);
  }
  return policy;
}

Result<Settings> settings_of(const Options& options, const route::Target* target, int nccl_version) {
  NL_TRY(fault_points::pass(fault_points::kSettings));
  NL_TRY_ASSIGN(const auto timeout, effective_timeout(options));
  NL_TRY_ASSIGN(const bool check, effective_check(options));
  NL_TRY_ASSIGN(const bool deterministic, effective_deterministic(options));
  NL_TRY(check_options(options));
  NL_TRY_ASSIGN(const RetryPolicy retry, effective_retry(options, target == nullptr || target->gpu));
  NL_TRY_ASSIGN(const std::uint32_t max_ctas, effective_max_ctas(options));
  NL_TRY_ASSIGN(const std::optional<bool> early_launch, effective_early_launch(options));
  NL_TRY_ASSIGN(const Steering steering,
                read_steering(target != nullptr ? *target : route::Target(), target != nullptr));
  if (deterministic && steering.forced.algorithm == route::Algorithm::two_shot_atomic) {
    return failure(
        Code::invalid_argument,
        "%s is %s, which adds in the order of arrival, and the communicator is to be deterministic "
        "(deterministic in its configuration, else %s)",
        variables::kForcePath.name, name_of(route::Algorithm::two_shot_atomic),
        variables::kDeterministic.name);
  }
  NL_TRY_ASSIGN(const bool calibrate, effective_calibrate(options));
  NL_TRY(check_forced(steering.forced, nccl_version != 0, variables::kForcePath.name));
  return Settings{timeout,      check, deterministic, calibrate,   max_ctas,
                  early_launch, retry, steering,      nccl_version};
}

std::string scratch_in_words(std::uint32_t regions, const protocol::RegionLayout& layout) {
  char text[192];
  std::snprintf(text, sizeof text,
                "scratch of %.1f MiB (%u regions; of each, for %d ranks: slots %u, chunk_bytes %zu, packets "
                "%u, lines %u%s)",
                static_cast<double>(regions * layout.region_bytes()) / (1024 * 1024), regions, layout.nranks,
                layout.slots, std::size_t{layout.cells} * 16, layout.packets, layout.wide,
                layout.sums == 0 ? "" : " and as many that are added to");
  return text;
}

Status check_options(const Options& options) {
  if (options.chunk_bytes % 16 != 0) {
    return failure(Code::invalid_argument, "chunk_bytes: %u is not a multiple of 16", options.chunk_bytes);
  }
  if (options.chunk_bytes > 64u << 20) {
    return failure(Code::invalid_argument, "chunk_bytes: %u is more than 64 MiB", options.chunk_bytes);
  }
  if (options.slots > 1u << 20)
    return failure(Code::invalid_argument, "slots: %u is more than 1048576", options.slots);
  if (options.packets > route::kMostPackets)
    return failure(Code::invalid_argument, "packets: %u is more than %u", options.packets,
                   route::kMostPackets);
  if (options.lines % protocol::kWideStep != 0)
    return failure(Code::invalid_argument, "lines: %u is not a multiple of %u", options.lines,
                   protocol::kWideStep);
  if (options.lines > route::kMostLines)
    return failure(Code::invalid_argument, "lines: %u is more than %u", options.lines, route::kMostLines);
  if (options.slots % 32 != 0)
    return failure(Code::invalid_argument, "slots: %u is not a multiple of 32", options.slots);
  if (options.regions > 1024)
    return failure(Code::invalid_argument, "regions: %u is more than 1024", options.regions);
  if (options.max_ctas > 1024)
    return failure(Code::invalid_argument, "max_ctas: %u is more than 1024", options.max_ctas);
  if (options.heap_offset % protocol::kFlagStride != 0) {
    return failure(Code::invalid_argument, "heap_offset: %zu is not a multiple of %zu", options.heap_offset,
                   protocol::kFlagStride);
  }
  // More does not fit an address space, and the sum with the regions' size must not wrap.
  if (options.heap_offset > std::size_t{1} << 48) {
    return failure(Code::invalid_argument, "heap_offset: %zu is more than 2^48", options.heap_offset);
  }
  if (!is_possible(options.create_timeout)) {
    return failure(Code::invalid_argument, "create_timeout: %" PRId64 " ms is not between 1 ms and a year",
                   static_cast<std::int64_t>(options.create_timeout.count()));
  }
  return {};
}

Status check_options_agree(Exchange& exchange, const Options& options, const Settings& settings,
                           Deadline deadline) {
  struct Field {
    const char* name;
    std::uint64_t value;
    std::string (*in_words)(std::uint64_t) = [](std::uint64_t number) { return std::to_string(number); };
  };
  const Field fields[] = {
      {"timeout (ms)", static_cast<std::uint64_t>(
                           std::chrono::duration_cast<std::chrono::milliseconds>(settings.timeout).count())},
      {"check", settings.check},
      {"calibrate", settings.calibrate},
      {"regions", options.regions},
      {"slots", options.slots},
      {"chunk_bytes", options.chunk_bytes},
      {"packets", options.packets},
      {"max_ctas", settings.max_ctas},
      {"early_launch", settings.early_launch ? 1 + *settings.early_launch : 0u,
       [](std::uint64_t said) {
         return std::string(said == 0 ? "unset" : said == 1 ? "off" : "on");
       }},
      {"retries", settings.retry.attempts},
      {"retry_backoff (ms)", static_cast<std::uint64_t>(settings.retry.backoff.count())},
      {"lines", options.lines},
      {"deterministic", settings.deterministic},
      {"test_lines", options.test_lines},
      {"line_way", static_cast<std::uint64_t>(options.line_way)},
      {"initial_epoch", options.initial_epoch},
      {"heap_offset", options.heap_offset},
      {variables::kTrace.name, options.trace.value_or(variables::read(variables::kTrace).has_value()),
       [](std::uint64_t on) { return std::string(on != 0 ? "set" : "not set"); }},
      {variables::kForcePath.name, number_of(settings.steering.forced), forced_in_words},
      {variables::kRouteTable.name, number_of(settings.steering.table), table_in_words},
      {"NCCL's version", static_cast<std::uint64_t>(settings.nccl_version)},
  };
  constexpr std::size_t kFields = std::size(fields);
  struct Values {
    std::uint64_t value[kFields];
  } mine{};
  for (std::size_t i = 0; i < kFields; ++i) mine.value[i] = fields[i].value;
  NL_TRY_ASSIGN(const auto all, gather_values(exchange, mine, deadline));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (std::size_t i = 0; i < kFields; ++i) {
      if (all[rank].value[i] != all[0].value[i]) {
        return failure(Code::invalid_usage,
                       "options differ between ranks: %s is %s on rank 0, %s on rank %zu", fields[i].name,
                       fields[i].in_words(all[0].value[i]).c_str(),
                       fields[i].in_words(all[rank].value[i]).c_str(), rank);
      }
    }
  }
  return {};
}

Fault describe(const protocol::FaultRecord& record, const Status& aborted_by,
               std::chrono::nanoseconds timeout, bool of_call) {
  Fault fault;
  fault.rank = record.rank;
  fault.peer = record.peer;
  fault.epoch = record.epoch;
  fault.region = record.region;
  fault.slot = record.slot;
  fault.expected = record.expected;
  fault.seen = record.seen;
  fault.time_ns = record.time_ns;
  const char* const collective = name_of(static_cast<Collective>(record.collective));
  const bool timed_out = record.kind == static_cast<std::uint32_t>(protocol::Wait::timeout);
  const double ms = std::chrono::duration<double, std::milli>(timeout).count();
  if (record.kind == static_cast<std::uint32_t>(protocol::kMisuse)) {
    fault.status = failure(Code::invalid_usage, "%s %u on rank %d: %s (peer %d, epoch %u, slot %u)",
                           collective, record.region, record.rank,
                           protocol::in_words(static_cast<protocol::Misuse>(record.reserved)), record.peer,
                           record.epoch, record.slot);
  } else if (record.kind == static_cast<std::uint32_t>(algorithm::kMismatch)) {
    fault.status = failure(
        Code::invalid_usage,
        "%s on rank %d: rank %d sends %u bytes of %s, which are received as %u bytes of %s", collective,
        record.rank, record.peer, record.seen, name_of(static_cast<DataType>(record.slot & 0xffffu)),
        record.expected, name_of(static_cast<DataType>(record.slot >> 16)));
  } else if (!timed_out && !aborted_by.ok()) {
    fault.status = aborted_by;
  } else if (timed_out && record.collective == static_cast<std::uint32_t>(Collective::send_recv) &&
             record.reserved == algorithm::kNotTaken) {
    fault.status =
        failure(Code::timeout,
                "%s on rank %d: rank %d has not received within %.0f ms what it was sent before "
                "(turn %u, lane %u: turn %u is the last that it has)",
                collective, record.rank, record.peer, ms, record.epoch, record.region, record.seen);
  } else if (timed_out) {
    // What there is instead: of an epoch before, or never written, or (the sentinel) without a number.
    const std::string instead =
        record.seen == 0 ? "nothing is there" : "of epoch " + std::to_string(record.seen) + " still";
    fault.status =
        failure(Code::timeout,
                "%s on rank %d: nothing from rank %d within %s%.0f ms (epoch %u, region %u, slot %u: %s)",
                collective, record.rank, record.peer, of_call ? "the call's " : "", ms, record.epoch,
                record.region, record.slot, instead.c_str());
  } else {
    fault.status = failure(Code::aborted, "%s on rank %d was aborted while it waited for rank %d (epoch %u)",
                           collective, record.rank, record.peer, record.epoch);
  }
  return fault;
}

}  // namespace nearlight::runtime
