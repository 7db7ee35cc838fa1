#include "bootstrap/shared_board.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>
#include <new>
#include <utility>

#include "base/fault_point.hpp"

namespace nearlight::bootstrap {

Result<SharedBoard::Created> SharedBoard::create(int nranks) {
  NL_TRY(fault_points::pass(fault_points::kBoardMemfd));
  UniqueFd memory(::memfd_create("nearlight-bootstrap", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) return system_failure("memfd_create", errno);
  NL_TRY(fault_points::pass(fault_points::kBoardSize));
  if (::ftruncate(memory.get(), static_cast<off_t>(bytes_for(nranks))) != 0)
    return system_failure("ftruncate of a memfd", errno);
  NL_TRY(fault_points::pass(fault_points::kBoardSeal));
  // Nobody can cut the memory away under another rank.
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return system_failure("fcntl(F_ADD_SEALS)", errno);
  NL_TRY_ASSIGN(SharedBoard board, map(memory.get(), nranks));
  new (&board.header()) BoardHeader{};
  for (int r = 0; r < nranks; ++r) new (&board.rank(r)) BoardRank{};
  return Created{std::move(board), std::move(memory)};
}

Result<SharedBoard> SharedBoard::attach(int memory, int nranks) {
  NL_TRY(fault_points::pass(fault_points::kBoardStat));
  struct stat info {};
  if (::fstat(memory, &info) != 0) return system_failure("fstat of the board", errno);
  if (static_cast<std::size_t>(info.st_size) != bytes_for(nranks)) {
    return failure(Code::internal_error, "the board has %lld bytes, not %zu for %d ranks",
                   static_cast<long long>(info.st_size), bytes_for(nranks), nranks);
  }
  return map(memory, nranks);
}

Result<SharedBoard> SharedBoard::map(int memory, int nranks) {
  NL_TRY(fault_points::pass(fault_points::kBoardMap));
  const std::size_t bytes = bytes_for(nranks);
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (base == MAP_FAILED) return system_failure("mmap of a memfd", errno);
  return SharedBoard(static_cast<char*>(base), bytes, nranks);
}

SharedBoard::SharedBoard(SharedBoard&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_), nranks_(other.nranks_) {}

SharedBoard::~SharedBoard() {
  if (base_ != nullptr) ::munmap(base_, bytes_);
}

void SharedBoard::ring() const {
  // Release: whoever sees the new value sees what was stored before. Pairs with the acquire load of the bell
  // in the waits.
  header().bell.fetch_add(1, std::memory_order_release);
  ::syscall(SYS_futex, &header().bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void SharedBoard::wait_for_bell(std::uint32_t seen, Deadline deadline,
                                std::chrono::milliseconds slice) const {
  const auto time = std::min<std::chrono::nanoseconds>(deadline.left(), slice);
  const timespec limit{.tv_sec = 0, .tv_nsec = static_cast<long>(time.count())};
  ::syscall(SYS_futex, &header().bell, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

}  // namespace nearlight::bootstrap
