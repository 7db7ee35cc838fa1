#include "dropin/tally.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "base/log.hpp"
#include "base/unique_fd.hpp"
#include "base/variables.hpp"
#include "dropin/real_nccl.hpp"
#include "tally/tally_file.hpp"

namespace nearlight::dropin {

namespace {

using tally::kSizeClasses;
using tally::kTallyCells;
using tally::TallyCell;
using tally::TallyFile;

// Which row of the file a reason of a function and size has. Written by who comes first.
struct Key {
  std::atomic<const char*> reason{nullptr};
  std::atomic<std::uint32_t> rest{0};  // what and size, + 1
};

template <std::size_t n>
void put(char (&field)[n], const char* text) {
  std::snprintf(field, n, "%s", text);
}

// The file's memory, or memory of this process alone where nobody asked for it, or it cannot be had.
TallyFile* open_file() {
  void* memory = MAP_FAILED;
  std::string path;
  if (const auto folder = variables::read(variables::kDropInStats)) {
    path = *folder + "/" + std::to_string(::getpid());
    const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (file.get() >= 0 && ::ftruncate(file.get(), sizeof(TallyFile)) == 0) {
      memory = ::mmap(nullptr, sizeof(TallyFile), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    }
    if (memory == MAP_FAILED) {
      log::warn("the drop-in's counts cannot be written to " + path + ": " + std::strerror(errno));
      // An empty file would be taken for one of counts.
      if (file.get() >= 0) static_cast<void>(::unlink(path.c_str()));
    }
  }
  if (memory == MAP_FAILED) {
    memory = ::mmap(nullptr, sizeof(TallyFile), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (memory == MAP_FAILED) return nullptr;  // nothing is counted then
  auto* const file = new (memory) TallyFile;
  file->version = tally::kTallyVersion;
  file->cells = kTallyCells;
  file->process = ::getpid();
  put(file->program, program_invocation_short_name);
  if (const RealNccl* const nccl = real_nccl(); nccl != nullptr)
    put(file->nccl, ("NCCL " + std::to_string(nccl->version) + " in " + nccl->path).c_str());
  std::memcpy(file->magic, tally::kTallyMagic, sizeof tally::kTallyMagic);
  return file;
}

TallyFile* file() {
  static TallyFile* const opened = open_file();
  return opened;
}

// Of the drop-in's process, never destroyed.
constinit Key keys[kTallyCells];

// The row, made when it is needed first; null when there are no more.
TallyCell* row_of(std::uint32_t what, std::uint32_t size, const Verdict& verdict, const char* name) {
  const std::uint32_t rest = what * (kSizeClasses + 1) + size + 1;
  const auto start = (reinterpret_cast<std::uintptr_t>(verdict.reason) / 8 + rest * 37) % kTallyCells;
  for (std::size_t step = 0; step < kTallyCells; ++step) {
    const std::size_t i = (start + step) % kTallyCells;
    std::uint32_t seen = keys[i].rest.load(std::memory_order_acquire);
    if (seen == 0) {
      // The rest claims the place; the reason follows.
      if (keys[i].rest.compare_exchange_strong(seen, rest, std::memory_order_acq_rel)) {
        TallyFile* const opened = file();
        if (opened == nullptr) return nullptr;
        TallyCell& cell = opened->cell[i];
        cell.size_class = size;
        cell.taken = verdict.taken ? 1 : 0;
        put(cell.what, name);
        put(cell.reason, verdict.reason);
        cell.ready.store(1, std::memory_order_release);  // pairs with the load of who reads the file
        keys[i].reason.store(verdict.reason, std::memory_order_release);
        return &cell;
      }
    }
    if (seen != rest) continue;
    // Whoever claimed it is about to tell its reason. Should it be another one, this call gets a row of its
    // own: rows that are alike are added up when they are read.
    if (keys[i].reason.load(std::memory_order_acquire) == verdict.reason) return &file()->cell[i];
  }
  return nullptr;
}

void add(std::uint32_t what, std::uint32_t size, const Verdict& verdict, const char* name,
         std::size_t bytes) {
  TallyCell* const cell = row_of(what, size, verdict, name);
  if (cell == nullptr) return;
  cell->count.fetch_add(1, std::memory_order_relaxed);
  cell->bytes.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace

void count(const Operation& operation, const Verdict& verdict) {
  const std::size_t bytes = operation.bytes();
  add(static_cast<std::uint32_t>(operation.function), tally::size_class_of(bytes), verdict,
      name_of(operation.function), bytes);
}

void note(const char* what, const Verdict& verdict) {
  add(static_cast<std::uint32_t>(kFunctions), kSizeClasses, verdict, what, 0);
}

}  // namespace nearlight::dropin
