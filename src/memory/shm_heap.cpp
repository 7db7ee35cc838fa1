#include "memory/shm_heap.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/fault_point.hpp"
#include "base/unique_fd.hpp"
#include "memory/handover.hpp"

// Linux 5.14; Debian 12's headers have them, older ones may not.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace nearlight::memory {

namespace {

constexpr std::size_t kHugePage_bytes = std::size_t{2} << 20;

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

class Mapping {
 public:
  // Maps `bytes` of `fd`, or anonymous memory with fd -1, at a 2 MiB boundary when it is large.
  static Result<std::shared_ptr<Mapping>> create(int fd, std::size_t bytes) {
    NL_TRY(fault_points::pass(fault_points::kMemoryReserve));
    const bool huge = bytes >= kHugePage_bytes;
    const std::size_t slack = huge ? kHugePage_bytes : 0;
    void* const reserved =
        ::mmap(nullptr, bytes + slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return system_failure("mmap of " + std::to_string(bytes) + " bytes", errno);
    char* const begin = static_cast<char*>(reserved);
    char* base = begin;
    if (huge) {
      base = reinterpret_cast<char*>(round_up(reinterpret_cast<std::uintptr_t>(begin), kHugePage_bytes));
      const auto front = static_cast<std::size_t>(base - begin);
      if (front > 0) ::munmap(begin, front);
      if (front < slack) ::munmap(base + bytes, slack - front);
    }
    auto mapping = std::make_shared<Mapping>(base, bytes);  // from here on it cleans up
    NL_TRY(fault_points::pass(fault_points::kMemoryMap));
    const int flags = MAP_FIXED | (fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
    if (::mmap(base, bytes, PROT_READ | PROT_WRITE, flags, fd, 0) == MAP_FAILED) {
      return system_failure("mmap of " + std::to_string(bytes) + " bytes", errno);
    }
    // Advice: a system without huge pages works as well, only slower.
    if (huge) static_cast<void>(::madvise(base, bytes, MADV_HUGEPAGE));
    return mapping;
  }
  Mapping(char* base, std::size_t bytes) : base_(base), bytes_(bytes) {}
  Mapping(const Mapping&) = delete;
  ~Mapping() { ::munmap(base_, bytes_); }

  char* base() const { return base_; }

 private:
  char* base_;
  std::size_t bytes_;
};

class ShmHeap final : public Heap {
 public:
  ShmHeap(std::shared_ptr<Mapping> mapping, const HeapView& view)
      : mapping_(std::move(mapping)), view_(view) {}
  const HeapView& view() const override { return view_; }
  const char* kind() const override { return "shm"; }

 private:
  std::shared_ptr<Mapping> mapping_;
  HeapView view_;
};

// The ranks live on one machine, so the verdict is the same on all of them.
Status check_fits(std::size_t bytes, int nranks) {
  const std::size_t memory = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * page_bytes();
  if (bytes <= memory / static_cast<std::size_t>(nranks)) return {};
  return failure(Code::invalid_argument, "bytes: %zu on each of %d ranks is more than this machine's %zu",
                 bytes, nranks, memory);
}

Result<UniqueFd> create_memfd(std::size_t bytes) {
  NL_TRY(fault_points::pass(fault_points::kMemoryMemfd));
  UniqueFd fd(::memfd_create("nearlight-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return system_failure("memfd_create", errno);
  NL_TRY(fault_points::pass(fault_points::kMemorySize));
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return system_failure("ftruncate of a memfd to " + std::to_string(bytes) + " bytes", errno);
  }
  NL_TRY(fault_points::pass(fault_points::kMemorySeal));
  // Nobody can cut the memory away under another rank.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return system_failure("fcntl(F_ADD_SEALS)", errno);
  }
  return fd;
}

// Puts zeroed pages behind this rank's part, near the thread that calls. For a memfd through fallocate, which
// reports a lack of memory instead of a signal at the first touch.
Status provide_part(int fd, const HeapView& view) {
  NL_TRY(fault_points::pass(fault_points::kMemoryProvide));
  if (fd >= 0) {
    const auto offset = static_cast<off_t>(static_cast<std::size_t>(view.rank) * view.stride);
    while (::fallocate(fd, 0, offset, static_cast<off_t>(view.stride)) != 0) {
      if (errno != EINTR)
        return system_failure("fallocate of " + std::to_string(view.stride) + " bytes", errno);
    }
    return {};
  }
  if (::madvise(view.mine(), view.stride, MADV_POPULATE_WRITE) == 0) return {};
  if (errno != EINVAL) return system_failure("madvise(MADV_POPULATE_WRITE)", errno);
  for (std::size_t at = 0; at < view.stride; at += page_bytes()) {  // an older kernel
    static_cast<volatile char*>(view.mine())[at] = 0;
  }
  return {};
}

// Enters all parts into this process's page table.
Status touch_all(const HeapView& view) {
  NL_TRY(fault_points::pass(fault_points::kMemoryTouch));
  const std::size_t bytes = static_cast<std::size_t>(view.nranks) * view.stride;
  if (::madvise(view.base, bytes, MADV_POPULATE_READ) == 0) return {};
  if (errno != EINVAL) return system_failure("madvise(MADV_POPULATE_READ)", errno);
  for (std::size_t at = 0; at < bytes; at += page_bytes())
    static_cast<void>(static_cast<volatile char*>(view.base)[at]);
  return {};
}

Result<UniqueFd> share_among_processes(Exchange& exchange, std::size_t bytes, Deadline deadline) {
  UniqueFd fd;
  Status made;
  if (exchange.rank() == 0) {
    auto created = create_memfd(bytes);
    made = created.status();
    if (made.ok()) fd = std::move(created).value();
  }
  NL_TRY(agree(exchange, made, deadline));
  return exchange.share_fd(fd.get(), 0, deadline);
}

}  // namespace

Result<std::unique_ptr<Heap>> create_shm_heap(Exchange& exchange, std::size_t bytes, Deadline deadline) {
  // Each step ends with everyone knowing whether all came through, so that nobody waits for a rank that
  // stopped earlier.
  NL_TRY(check_same_bytes(exchange, bytes, deadline));
  NL_TRY(check_fits(bytes, exchange.nranks()));
  HeapView view;
  view.stride = round_up(bytes, bytes >= kHugePage_bytes ? kHugePage_bytes : page_bytes());
  view.bytes = bytes;
  view.rank = exchange.rank();
  view.nranks = exchange.nranks();
  const std::size_t total = static_cast<std::size_t>(view.nranks) * view.stride;

  UniqueFd fd;
  std::shared_ptr<Mapping> mapping;
  if (exchange.same_process()) {
    Result<std::shared_ptr<Mapping>> made(nullptr);
    if (exchange.rank() == 0) made = Mapping::create(-1, total);
    NL_TRY_ASSIGN(mapping, share_from_rank0(exchange, std::move(made), deadline));
  } else {
    NL_TRY_ASSIGN(fd, share_among_processes(exchange, total, deadline));
    auto mapped = Mapping::create(fd.get(), total);
    NL_TRY(agree(exchange, mapped.status(), deadline));
    mapping = *mapped;
  }
  view.base = mapping->base();
  NL_TRY(agree(exchange, provide_part(fd.get(), view), deadline));
  NL_TRY(agree(exchange, touch_all(view), deadline));
  return std::unique_ptr<Heap>(std::make_unique<ShmHeap>(std::move(mapping), view));
}

}  // namespace nearlight::memory
