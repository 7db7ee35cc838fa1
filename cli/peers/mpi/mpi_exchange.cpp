#include "cli/peers/mpi/mpi_exchange.hpp"

#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "cli/peers/mpi/mpi_call.hpp"

namespace nearlight::peers {

namespace {

class MpiExchange final : public Exchange {
 public:
  MpiExchange(int rank, int nranks) : rank_(rank), nranks_(nranks) {}

  int rank() const override { return rank_; }
  int nranks() const override { return nranks_; }
  bool same_process() const override { return false; }
  std::vector<pid_t> processes() const override { return processes_; }

  Status all_gather(std::span<const std::byte> mine, std::span<std::byte> all, Deadline deadline) override {
    if (mine.size() > INT_MAX)
      return failure(Code::invalid_argument, "mine: %zu bytes are too many for MPI", mine.size());
    if (all.size() != mine.size() * static_cast<std::size_t>(nranks_)) {
      return failure(Code::invalid_argument, "all has %zu bytes, not %d times %zu", all.size(), nranks_,
                     mine.size());
    }
    const unsigned long long size = mine.size();
    std::vector<unsigned long long> sizes(static_cast<std::size_t>(nranks_));
    NL_TRY(gather(&size, sizeof size, sizes.data(), deadline));
    for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
      if (sizes[rank] != size) {
        return failure(Code::invalid_usage, "rank %zu brought %llu bytes, rank %d %llu", rank, sizes[rank],
                       rank_, size);
      }
    }
    return mine.empty() ? Status() : gather(mine.data(), mine.size(), all.data(), deadline);
  }

  Status barrier(Deadline deadline) override {
    NL_TRY(broken_);
    MPI_Request request = MPI_REQUEST_NULL;
    return finish(mpi_status(MPI_Ibarrier(MPI_COMM_WORLD, &request), "MPI_Ibarrier"), request, deadline);
  }

  // Through /proc: the others are processes of the same user.
  Result<UniqueFd> share_fd(int fd, int root, Deadline deadline) override {
    NL_TRY_ASSIGN(const std::vector<int> fds, gather_values(*this, fd, deadline));
    Status opened;
    UniqueFd mine;
    if (rank_ == root) {
      mine = UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
      if (!mine) opened = system_failure("duplicating the shared file descriptor", errno);
    } else {
      const auto at = static_cast<std::size_t>(root);
      const std::string path = "/proc/" + std::to_string(processes_[at]) + "/fd/" + std::to_string(fds[at]);
      mine = UniqueFd(open(path.c_str(), O_RDWR | O_CLOEXEC));
      if (!mine) opened = system_failure("open of " + path, errno);
    }
    // Also keeps the root from closing it too early.
    NL_TRY(agree(*this, opened, deadline));
    return mine;
  }

  Status meet(Deadline deadline) {
    struct Who {
      pid_t pid;
      uid_t uid;
      char host[64];
    } mine{getpid(), getuid(), {}};
    gethostname(mine.host, sizeof mine.host - 1);
    NL_TRY_ASSIGN(const std::vector<Who> all, gather_values(*this, mine, deadline));
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      processes_.push_back(all[rank].pid);
      if (std::strcmp(all[rank].host, mine.host) != 0 || all[rank].uid != mine.uid) {
        return failure(Code::unsupported,
                       "rank %zu is on another machine or of another user; memory cannot be shared with it",
                       rank);
      }
    }
    return {};
  }

 private:
  Status gather(const void* mine, std::size_t bytes, void* all, Deadline deadline) {
    NL_TRY(broken_);
    MPI_Request request = MPI_REQUEST_NULL;
    const auto count = static_cast<int>(bytes);
    return finish(
        mpi_status(MPI_Iallgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, MPI_COMM_WORLD, &request),
                   "MPI_Iallgather"),
        request, deadline);
  }

  Status finish(Status begun, MPI_Request& request, Deadline deadline) {
    for (int done = 0, polls = 0; begun.ok() && done == 0; ++polls) {
      begun = mpi_status(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (begun.ok() && done == 0 && deadline.passed()) {
        begun = failure(Code::timeout, "rank %d: another rank did not come to MPI's exchange in time", rank_);
      }
      // Whoever is missing may need this processor.
      if (polls > 1000) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    // A request that is still under way cannot be taken back: nothing may follow it.
    if (!begun.ok()) broken_ = begun;
    return begun;
  }

  int rank_, nranks_;
  std::vector<pid_t> processes_;
  Status broken_;
};

}  // namespace

Result<std::unique_ptr<Exchange>> make_mpi_exchange(Deadline deadline) {
  int rank = 0, nranks = 0;
  NL_TRY(mpi_status(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank"));
  NL_TRY(mpi_status(MPI_Comm_size(MPI_COMM_WORLD, &nranks), "MPI_Comm_size"));
  auto exchange = std::make_unique<MpiExchange>(rank, nranks);
  NL_TRY(exchange->meet(deadline));
  return std::unique_ptr<Exchange>(std::move(exchange));
}

}  // namespace nearlight::peers
