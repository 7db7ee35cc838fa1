// The state of a communicator as text for a person: what it does, how far it is, what has come from whom.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include <nearlight/detail/protocol/fault.hpp>
#include <nearlight/detail/protocol/region.hpp>
#include "base/status.hpp"
#include "runtime/call_log.hpp"
#include "runtime/health.hpp"

namespace nearlight::runtime {

// Bytes of the rank's memory that a dump looks at. `bytes` is a multiple of 4 and at most kMostPieceBytes.
struct Piece {
  const void* from;
  void* to;
  std::size_t bytes;
};
inline constexpr std::size_t kMostPieceBytes = 16 * 1024;

struct DumpSource {
  int rank, nranks;
  const char *backend, *memory;
  std::chrono::nanoseconds timeout;
  Status status;                                // the communicator's
  std::optional<protocol::FaultRecord> record;  // once it is whole
  const void* states;                           // RegionState, one a region
  std::uint32_t regions;
  char* first_region;  // rank 0's, as FlatRegion takes it
  std::size_t stride, region_bytes;
  protocol::RegionLayout layout;
  const HealthBoard* health;  // what the ranks say of themselves
  // Reads the pieces within a limit; a failure is told in the text. The memory may change meanwhile.
  std::function<Status(std::span<const Piece>)> fetch;
};

std::string dump_text(const DumpSource& source, const CallLog& calls);

// One line, from what the host knows alone.
std::string dump_summary(int rank, const CallLog& calls);

// Reads by atomic loads what CPU ranks store by atomic stores.
Status fetch_from_host(std::span<const Piece> pieces);

// Writes `text` to a file of its own in `folder`; the path.
Result<std::string> write_dump(const std::string& folder, int rank, const std::string& text);

// After a time-out: `text()` into a file of NEARLIGHT_DUMP_DIR, or, where that is not set, the summary as a
// warning. A file that cannot be written is a warning, too.
void tell_of_timeout(int rank, const CallLog& calls, const std::function<std::string()>& text);

}  // namespace nearlight::runtime
