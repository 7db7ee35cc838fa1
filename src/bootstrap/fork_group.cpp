#include "bootstrap/fork_group.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "bootstrap/board_exchange.hpp"
#include "bootstrap/pidfd.hpp"
#include "bootstrap/shared_board.hpp"

namespace nearlight::bootstrap {

namespace {

static_assert(kMaxForkRanks <= kMaxBoardRanks);
// How often the children are looked at where the kernel has no pidfd.
constexpr int kBlindPoll_ms = 5;
// A killed process can hang in the kernel; it is given up after this long.
constexpr std::int64_t kReap_ms = 10'000;

// The children of this call. Whatever is left is killed and reaped on destruction.
class Children {
 public:
  explicit Children(const SharedBoard& board) : board_(board) {}
  Children(const Children&) = delete;
  ~Children() {
    if (running() == 0) return;
    kill_all();
    // A destructor has nobody to tell that a child hangs in the kernel.
    static_cast<void>(wait(Deadline::after_ms(kReap_ms)));
  }

  void add(pid_t pid) {
    children_.emplace_back();
    children_.back().pid = pid;
  }
  // After the last fork, so that no child inherits a pidfd.
  void watch() {
    for (Child& child : children_) child.fd = open_pidfd(child.pid);
  }
  int running() const {
    return static_cast<int>(
        std::count_if(children_.begin(), children_.end(), [](const Child& c) { return !c.reaped; }));
  }
  std::vector<pid_t> pids() const {
    std::vector<pid_t> all;
    for (const Child& child : children_) all.push_back(child.pid);
    return all;
  }
  std::vector<RankExit> exits() const {
    std::vector<RankExit> all;
    for (const Child& child : children_) all.push_back(child.end);
    return all;
  }

  // Reaps children as they end, until none is left or the deadline passes (Code::timeout).
  Status wait(Deadline deadline) {
    for (;;) {
      NL_TRY(reap());
      if (running() == 0) return {};
      if (deadline.passed())
        return failure(Code::timeout, "%d child processes have not ended in time", running());
      NL_TRY(sleep_until_one_ends(deadline));
    }
  }

  // A child that is not reaped yet keeps its pid, so this hits no stranger.
  void kill_all() {
    for (Child& child : children_) {
      if (!child.reaped && ::kill(child.pid, SIGKILL) == 0) child.killed = true;
    }
  }

 private:
  struct Child {
    pid_t pid = -1;
    UniqueFd fd;  // pidfd; empty where the kernel has none
    bool reaped = false;
    bool killed = false;
    RankExit end;
  };

  Status reap() {
    for (std::size_t r = 0; r < children_.size(); ++r) {
      Child& child = children_[r];
      if (child.reaped) continue;
      int status = 0;
      const pid_t got = ::waitpid(child.pid, &status, WNOHANG);
      if (got == 0) continue;
      if (got < 0) {
        if (errno == EINTR) continue;
        child.reaped = true;  // somebody else took it (SIGCHLD ignored?)
        return system_failure("waitpid of rank " + std::to_string(r), errno);
      }
      child.reaped = true;
      child.fd.reset();
      if (WIFSIGNALED(status)) {
        child.end.signal = WTERMSIG(status);
        child.end.over_time = child.killed && child.end.signal == SIGKILL;
      } else {
        child.end.exit_code = WEXITSTATUS(status);
      }
      BoardRank& state = board_.rank(static_cast<int>(r));
      state.end_signal = child.end.signal;
      state.end_code = child.end.exit_code;
      state.dead.store(BoardRank::kEndedSoAndSo,
                       std::memory_order_release);  // pairs with the acquire load in the ranks' waits
      board_.ring();
    }
    return {};
  }

  Status sleep_until_one_ends(Deadline deadline) const {
    std::vector<pollfd> entries;
    int limit_ms = deadline.left_ms();
    for (const Child& child : children_) {
      if (child.reaped) continue;
      if (child.fd) {
        entries.push_back({.fd = child.fd.get(), .events = POLLIN, .revents = 0});
      } else {
        limit_ms = std::min(limit_ms, kBlindPoll_ms);
      }
    }
    if (::poll(entries.data(), entries.size(), limit_ms) < 0 && errno != EINTR)
      return system_failure("poll", errno);
    return {};
  }

  const SharedBoard& board_;
  std::vector<Child> children_;
};

// Waits until all ranks exist. False when that does not come.
bool pass_gate(const SharedBoard& board, Deadline deadline) {
  for (;;) {
    const std::uint32_t bell = board.header().bell.load(std::memory_order_acquire);
    if (board.header().gate.load(std::memory_order_acquire) != 0) return true;
    if (deadline.passed()) return false;
    board.wait_for_bell(bell, deadline);
  }
}

// The life of a child. An exception that leaves the body ends it by SIGABRT, which the parent sees.
[[noreturn]] void run_child(const std::shared_ptr<const SharedBoard>& board, std::vector<FdLine> lines,
                            int rank, pid_t parent, const std::function<int(Exchange&)>& body,
                            Deadline deadline) noexcept {
  int exit_code = 127;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before that took effect.
  if (::getppid() == parent && pass_gate(*board, deadline)) {
    BoardExchange exchange(board, std::move(lines), rank);
    exit_code = body(exchange);
  }
  std::fflush(nullptr);
  ::_exit(exit_code);
}

}  // namespace

std::string RankExit::to_string() const {
  if (over_time) return "killed at the time limit";
  if (signal != 0) return "signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
  return "exit code " + std::to_string(exit_code);
}

bool ForkOutcome::ok() const {
  return std::all_of(ranks.begin(), ranks.end(), [](const RankExit& end) { return end.ok(); });
}

std::string ForkOutcome::to_string() const {
  std::string text;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].ok()) continue;
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(r) + ": " + ranks[r].to_string();
  }
  return text.empty() ? "all ranks ended well" : text;
}

Result<ForkOutcome> run_forked(int nranks, const std::function<int(Exchange&)>& body,
                               const ForkOptions& options) {
  if (nranks < 1 || nranks > kMaxForkRanks) {
    return failure(Code::invalid_argument, "nranks: %d is not between 1 and %d", nranks, kMaxForkRanks);
  }
  if (!body) return failure(Code::invalid_argument, "body: empty");
  const Deadline deadline = Deadline::after(options.time_limit);

  NL_TRY_ASSIGN(SharedBoard::Created created, SharedBoard::create(nranks));
  created.memory.reset();  // the children inherit the mapping
  const auto board = std::make_shared<const SharedBoard>(std::move(created.board));
  NL_TRY_ASSIGN(std::vector<FdLine> lines, make_fd_lines(nranks));
  Children children(*board);
  std::fflush(nullptr);  // else each child would write what is buffered once more
  const pid_t parent = ::getpid();
  for (int rank = 0; rank < nranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid < 0) return system_failure("fork of rank " + std::to_string(rank), errno);
    if (pid == 0) run_child(board, std::move(lines), rank, parent, body, deadline);
    children.add(pid);
    board->rank(rank).pid = pid;
  }
  lines.clear();
  children.watch();
  board->header().gate.store(1, std::memory_order_release);  // pairs with pass_gate: the pids are there
  board->ring();
  if (options.on_started) options.on_started(children.pids());

  if (Status ended = children.wait(deadline); !ended.ok()) {
    if (ended.code() != Code::timeout) return ended;
    children.kill_all();
    NL_TRY(children.wait(Deadline::after_ms(kReap_ms)));
  }
  return ForkOutcome{.ranks = children.exits()};
}

}  // namespace nearlight::bootstrap
