#include "bootstrap/shared_board.hpp"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>
#include <new>
#include <utility>

#include "base/unique_fd.hpp"

namespace nearlight::bootstrap {

Result<SharedBoard> SharedBoard::create(int nranks) {
  const std::size_t bytes =
      kHeaderBytes + offset_of_rank(nranks) + static_cast<std::size_t>(nranks) * 2 * sizeof(BoardSlot);
  const UniqueFd fd(::memfd_create("nearlight-bootstrap", MFD_CLOEXEC));
  if (!fd) return system_failure("memfd_create", errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return system_failure("ftruncate of a memfd", errno);
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return system_failure("mmap of a memfd", errno);
  SharedBoard board(static_cast<char*>(base), bytes, nranks);
  new (&board.header()) BoardHeader{};
  for (int r = 0; r < nranks; ++r) new (&board.rank(r)) BoardRank{};
  return board;
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

void SharedBoard::wait_for_bell(std::uint32_t seen, Deadline deadline) const {
  // The slice only guards against a parent that was killed between a store and its ring.
  const auto time = std::min<std::chrono::nanoseconds>(deadline.left(), std::chrono::milliseconds(100));
  const timespec limit{.tv_sec = 0, .tv_nsec = static_cast<long>(time.count())};
  ::syscall(SYS_futex, &header().bell, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

}  // namespace nearlight::bootstrap
