// What every communicator checks, the same way and with the same words.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include <nearlight/detail/protocol/fault.hpp>
#include <nearlight/detail/protocol/region.hpp>
#include "base/exchange.hpp"
#include "base/status.hpp"
#include "base/types.hpp"
#include "runtime/communicator.hpp"
#include "runtime/retry.hpp"
#include "runtime/steering.hpp"

namespace nearlight::runtime {

// Whether there is such an operator for the type; names op.
Status check_reduction(DataType type, const Reduction& reduction);

// The arguments of one reduction; count > 0. `may_overlap`: see CallOptions.
Status check_buffers(const void* send, const void* recv, std::size_t count, DataType type,
                     const Reduction& reduction, bool may_overlap = false);

// CPU ranks.
Status check_no_stream(Stream stream);

// When creation must be done. Every rank has one, even with a create_timeout that check_options refuses: it
// must still tell the others.
Deadline create_deadline(const Options& options);

// Options::timeout, else NEARLIGHT_TIMEOUT_MS, else 600 s.
Result<std::chrono::nanoseconds> effective_timeout(const Options& options);

// Options::check, else NEARLIGHT_CHECK, else false.
Result<bool> effective_check(const Options& options);

// Options::deterministic, else NEARLIGHT_DETERMINISTIC, else true.
Result<bool> effective_deterministic(const Options& options);

// Options::calibrate, else NEARLIGHT_CALIBRATE, else false.
Result<bool> effective_calibrate(const Options& options);

// Options::early_launch, else NEARLIGHT_EARLY_LAUNCH; none: neither says.
Result<std::optional<bool>> effective_early_launch(const Options& options);

// Options::max_ctas, else NEARLIGHT_MAX_CTAS, else 0. Fails, naming the one that it is, for more than the
// regions that are given.
Result<std::uint32_t> effective_max_ctas(const Options& options);

// Options::retries and ::retry_backoff, else NEARLIGHT_RETRIES, else none. `gpu`: GPU ranks, which have none.
Result<RetryPolicy> effective_retry(const Options& options, bool gpu);

// What the options and the environment come to on this rank; fails for options that cannot be.
struct Settings {
  std::chrono::nanoseconds timeout{};
  bool check = false;
  bool deterministic = true;
  bool calibrate = false;
  std::uint32_t max_ctas = 0;
  std::optional<bool> early_launch;
  RetryPolicy retry;
  Steering steering;
  int nccl_version = 0;  // of the attached one; 0: none
};
// `target`: what a route table must be for; null where this rank does not know, and then reads none.
// `nccl_version`: see Settings.
Result<Settings> settings_of(const Options& options, const route::Target* target, int nccl_version = 0);

// All ranks must have come with the same options and number of ranks; names the first field that differs, and
// the rank.
Status check_options_agree(Exchange& exchange, const Options& options, const Settings& settings,
                           Deadline deadline);

// What makes the scratch as large as it is, for the text of a failure to get it.
std::string scratch_in_words(std::uint32_t regions, const protocol::RegionLayout& layout);

// Checks the sizes themselves (multiples, limits).
Status check_options(const Options& options);

// A record turned into what the caller sees. `aborted_by` says why the abort word was set, when it was set on
// purpose. `of_call`: `timeout` is of a whole call, not of one wait.
Fault describe(const protocol::FaultRecord& record, const Status& aborted_by,
               std::chrono::nanoseconds timeout, bool of_call = false);

}  // namespace nearlight::runtime
