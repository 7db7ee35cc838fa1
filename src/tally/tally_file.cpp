#include "tally/tally_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

namespace nearlight::tally {

namespace {

namespace fs = std::filesystem;

template <std::size_t n>
std::string text_of(const char (&field)[n]) {
  return {field, ::strnlen(field, n)};
}

// Places of the parts in the bytes; the file is read as bytes, since another process may still write it.
Result<ProcessTally> tally_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream.good() && !stream.eof()) return system_failure("reading " + path, errno);
  const auto* const file = reinterpret_cast<const TallyFile*>(bytes.data());
  if (bytes.size() != sizeof(TallyFile) || std::memcmp(file->magic, kTallyMagic, sizeof kTallyMagic) != 0 ||
      file->version != kTallyVersion || file->cells != kTallyCells) {
    return failure(Code::invalid_argument, "%s holds no counts of this version's drop-in", path.c_str());
  }
  ProcessTally tally;
  tally.process = file->process;
  tally.program = text_of(file->program);
  tally.nccl = text_of(file->nccl);
  for (const TallyCell& cell : file->cell) {
    if (cell.ready.load(std::memory_order_acquire) == 0) continue;
    TallyRow row;
    row.what = text_of(cell.what);
    row.reason = text_of(cell.reason);
    row.size_class = std::min(cell.size_class, kSizeClasses);
    if (row.size_class < kSizeClasses) row.size = kSizeNames[row.size_class];
    row.taken = cell.taken != 0;
    row.count = cell.count.load(std::memory_order_relaxed);
    row.bytes = cell.bytes.load(std::memory_order_relaxed);
    tally.rows.push_back(std::move(row));
  }
  return tally;
}

bool is_call(const TallyRow& row) { return row.size_class < kSizeClasses; }

}  // namespace

Result<Tallies> read_tallies(const std::string& folder) {
  Tallies tallies;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    auto tally = tally_of(entry.path().string());
    if (tally.ok()) {
      tallies.processes.push_back(std::move(tally).value());
    } else {
      tallies.bad.push_back(tally.status());
    }
  }
  if (error) return system_failure("listing " + folder, error.value());
  std::sort(tallies.processes.begin(), tallies.processes.end(),
            [](const ProcessTally& a, const ProcessTally& b) { return a.process < b.process; });
  return tallies;
}

std::string tally_text(const std::vector<ProcessTally>& processes) {
  std::string text;
  using Key = std::tuple<bool, std::string, std::uint32_t, bool, std::string>;  // what is no call first
  std::map<Key, std::uint64_t> sums;
  for (const ProcessTally& process : processes) {
    std::uint64_t taken = 0, forwarded = 0;
    for (const TallyRow& row : process.rows) {
      sums[{is_call(row), row.what, row.size_class, !row.taken, row.reason}] += row.count;
      if (is_call(row)) (row.taken ? taken : forwarded) += row.count;
    }
    char line[512];
    std::snprintf(line, sizeof line, "process %d (%s, %s): %" PRIu64 " calls taken, %" PRIu64 " forwarded\n",
                  process.process, process.program.c_str(), process.nccl.c_str(), taken, forwarded);
    text += line;
  }
  char line[512];
  std::snprintf(line, sizeof line, "%-14s %-10s %-9s %12s  %s\n", "what", "bytes", "", "count", "why");
  text += line;
  for (const auto& [key, count] : sums) {
    const auto& [call, what, size, forwarded, reason] = key;
    std::snprintf(line, sizeof line, "%-14s %-10s %-9s %12" PRIu64 "  %s\n", what.c_str(),
                  call ? kSizeNames[size] : "", forwarded ? "forwarded" : "taken", count, reason.c_str());
    text += line;
  }
  return text;
}

}  // namespace nearlight::tally
