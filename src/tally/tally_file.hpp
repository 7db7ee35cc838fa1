// What a process under the drop-in has counted, as a file in the folder of NEARLIGHT_DROPIN_STATS: memory
// that the process shares with the file, so that its end, of whatever kind, leaves the counts there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.hpp"

namespace nearlight::tally {

inline constexpr char kTallyMagic[16] = "nearlight tally";
inline constexpr std::uint32_t kTallyVersion = 1;
inline constexpr std::size_t kTallyCells = 256;

// Bytes of one rank's part of a message, by their upper limit.
inline constexpr std::uint64_t kSizeLimits[] = {0, 1 << 10, 16 << 10, 128 << 10, 1 << 20, 8 << 20};
inline constexpr const char* kSizeNames[] = {"0",        "to 1 KiB", "to 16 KiB", "to 128 KiB",
                                             "to 1 MiB", "to 8 MiB", "above"};
inline constexpr std::uint32_t kSizeClasses = sizeof kSizeNames / sizeof kSizeNames[0];
constexpr std::uint32_t size_class_of(std::uint64_t bytes) {
  std::uint32_t size = 0;
  while (size + 1 < kSizeClasses && bytes > kSizeLimits[size]) ++size;
  return size;
}

struct TallyCell {
  std::atomic<std::uint32_t> ready;  // 1: the texts are there
  std::uint32_t size_class;          // kSizeClasses: no size
  std::uint32_t taken;
  char what[20];  // "AllReduce", or "communicator"
  std::atomic<std::uint64_t> count;
  std::atomic<std::uint64_t> bytes;
  char reason[208];
};

struct TallyFile {
  char magic[16];
  std::uint32_t version;
  std::uint32_t cells;
  std::int32_t process;
  char program[60];
  char nccl[240];  // version and path
  TallyCell cell[kTallyCells];
};

// One line of it.
struct TallyRow {
  std::string what, size, reason;  // size: "" where there is none
  std::uint32_t size_class = 0;
  bool taken = false;
  std::uint64_t count = 0, bytes = 0;
};

struct ProcessTally {
  int process = 0;
  std::string program, nccl;
  std::vector<TallyRow> rows;
};

struct Tallies {
  std::vector<ProcessTally> processes;  // in the order of their numbers
  std::vector<Status> bad;              // files that hold no counts, each with its path
};

// All files of the folder.
Result<Tallies> read_tallies(const std::string& folder);

// For a person: a line a process, then all together, by what, size and reason.
std::string tally_text(const std::vector<ProcessTally>& processes);

}  // namespace nearlight::tally
