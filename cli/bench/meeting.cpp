#include "cli/bench/meeting.hpp"

#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <thread>

#include <nearlight/detail/exec/host_space.hpp>

namespace nearlight::bench {

namespace {
// From the last arrival to the start: longer than a line needs to reach the other cores.
constexpr std::uint64_t kStartMargin_ns = 2000;
constexpr std::size_t kLine = 128;
// How often a waiting rank looks whether the others' processes are still there.
constexpr std::chrono::milliseconds kLook{100};
}  // namespace

// Zero bytes are its initial state. Lock-free atomics of the same size are fine between processes.
struct Meeting::Shared {
  alignas(kLine) std::atomic<std::uint32_t> arrived;
  alignas(kLine) std::atomic<std::uint32_t> generation;
  std::atomic<std::uint64_t> start_ns;
  alignas(kLine) std::atomic<std::int32_t> failed_rank;  // rank + 1
  char failed_text[256];
};

std::uint64_t now_ns() { return exec::HostSpace::now_ns(); }

Result<std::unique_ptr<Meeting>> Meeting::create(Exchange& exchange, std::size_t samples,
                                                 std::chrono::milliseconds limit) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  const Deadline deadline = Deadline::after(limit);
  std::unique_ptr<Meeting> meeting(new Meeting(exchange.rank(), exchange.nranks(), samples, limit));
  meeting->processes_ = exchange.processes();
  const std::size_t header = (sizeof(Shared) + kLine - 1) / kLine * kLine;
  meeting->bytes_ = header + static_cast<std::size_t>(meeting->nranks_) * samples * sizeof(double);

  UniqueFd fd;
  Status mine;
  if (meeting->rank_ == 0) {
    fd = UniqueFd(memfd_create("nearlight-bench", MFD_CLOEXEC));
    if (!fd) {
      mine = system_failure("memfd_create", errno);
    } else if (ftruncate(fd.get(), static_cast<off_t>(meeting->bytes_)) != 0) {
      mine = system_failure("ftruncate of the ranks' shared memory", errno);
    }
  }
  NL_TRY(agree(exchange, mine, deadline));
  NL_TRY_ASSIGN(UniqueFd shared, exchange.share_fd(fd.get(), 0, deadline));
  void* memory = mmap(nullptr, meeting->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, shared.get(), 0);
  if (memory == MAP_FAILED) {
    mine = system_failure("mmap of the ranks' shared memory", errno);
  } else {
    meeting->memory_ = memory;
    meeting->shared_ = static_cast<Shared*>(memory);
  }
  NL_TRY(agree(exchange, mine, deadline));
  return meeting;
}

Meeting::~Meeting() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

Status Meeting::failed_peer() const {
  const int who = shared_->failed_rank.load(std::memory_order_acquire) - 1;
  if (who < 0 || who == rank_) return {};
  return failure(Code::remote_error, "rank %d: %s", who, shared_->failed_text);
}

Status Meeting::dead_peer() const {
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    if (kill(processes_[rank], 0) != 0 && errno == ESRCH) {
      return failure(Code::remote_error, "rank %zu: its process %d has ended", rank,
                     static_cast<int>(processes_[rank]));
    }
  }
  return {};
}

void Meeting::fail(const Status& why) {
  std::int32_t expected = 0;
  // -1 keeps others out while the text is written; the release below makes it visible with the rank.
  if (!shared_->failed_rank.compare_exchange_strong(expected, -1, std::memory_order_relaxed)) return;
  const std::size_t length = std::min(why.text().size(), sizeof shared_->failed_text - 1);
  std::memcpy(shared_->failed_text, why.text().data(), length);
  shared_->failed_text[length] = 0;
  shared_->failed_rank.store(rank_ + 1, std::memory_order_release);
  wake_sleepers();
}

bool Meeting::wait_for_failure(std::chrono::milliseconds limit) const {
  static_assert(sizeof shared_->failed_rank == sizeof(std::int32_t));
  if (shared_->failed_rank.load(std::memory_order_acquire) > 0) return true;
  const timespec time{static_cast<time_t>(limit.count() / 1000),
                      static_cast<long>(limit.count() % 1000 * 1'000'000)};
  // Between processes: not FUTEX_PRIVATE. Returns at once when the word is no longer 0.
  syscall(SYS_futex, &shared_->failed_rank, FUTEX_WAIT, 0, &time, nullptr, 0);
  return shared_->failed_rank.load(std::memory_order_acquire) > 0;
}

void Meeting::wake_sleepers() const {
  syscall(SYS_futex, &shared_->failed_rank, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

template <class Ready>
Status Meeting::wait(Ready ready) const {
  const Deadline deadline = Deadline::after(limit_);
  Deadline next_look = Deadline::after(kLook);
  for (std::uint32_t polls = 0; !ready(); ++polls) {
    exec::HostSpace::relax(polls);
    if (polls % 1024 == 1023) {
      NL_TRY(failed_peer());
      if (next_look.passed()) {
        // Whoever came last may have left since.
        if (Status dead = dead_peer(); !dead.ok()) return ready() ? Status() : dead;
        next_look = Deadline::after(kLook);
      }
      if (deadline.passed()) {
        return failure(Code::timeout, "a rank did not reach the benchmark's barrier within %lld ms",
                       static_cast<long long>(limit_.count()));
      }
    }
    if (polls == 0xffffffffu) polls = 4096;
  }
  return {};
}

Status Meeting::barrier() { return align().status(); }

Result<std::uint64_t> Meeting::align() {
  NL_TRY(failed_peer());
  const std::uint32_t generation = shared_->generation.load(std::memory_order_relaxed);
  // acq_rel: what every rank wrote before its arrival is seen by all after the barrier, through the last
  // arrival.
  if (shared_->arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<std::uint32_t>(nranks_)) {
    shared_->arrived.store(0, std::memory_order_relaxed);
    shared_->start_ns.store(now_ns() + kStartMargin_ns, std::memory_order_relaxed);
    shared_->generation.store(generation + 1, std::memory_order_release);
  } else {
    // Acquire pairs with the release of the last to arrive.
    NL_TRY(wait([&] { return shared_->generation.load(std::memory_order_acquire) != generation; }));
  }
  const std::uint64_t start_ns = shared_->start_ns.load(std::memory_order_relaxed);
  while (now_ns() < start_ns) exec::HostSpace::relax(0);
  return start_ns;
}

std::span<double> Meeting::of(int rank) const {
  const std::size_t header = (sizeof(Shared) + kLine - 1) / kLine * kLine;
  auto* numbers = reinterpret_cast<double*>(static_cast<char*>(memory_) + header);
  return {numbers + static_cast<std::size_t>(rank) * samples_, samples_};
}

template <class Combine>
Status Meeting::combine(std::span<double> out, Combine combine) {
  if (out.size() > samples_)
    return failure(Code::internal_error, "%zu samples do not fit into the ranks' shared memory", out.size());
  NL_TRY(barrier());
  for (std::size_t i = 0; i < out.size(); ++i) {
    double least = of(0)[i], most = least;
    for (int rank = 1; rank < nranks_; ++rank) {
      least = std::min(least, of(rank)[i]);
      most = std::max(most, of(rank)[i]);
    }
    out[i] = combine(least, most);
  }
  return barrier();
}

Status Meeting::slowest(std::span<double> out) {
  return combine(out, [](double, double most) { return most; });
}

Status Meeting::spread(std::span<double> out) {
  return combine(out, [](double least, double most) { return most - least; });
}

Result<double> Meeting::total(double value) {
  mine()[0] = value;
  NL_TRY(barrier());
  double sum = 0;
  for (int rank = 0; rank < nranks_; ++rank) sum += of(rank)[0];
  NL_TRY(barrier());
  return sum;
}

}  // namespace nearlight::bench
