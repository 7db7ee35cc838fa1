#include "tests/storm/kill_trials.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "algorithm/one_shot.hpp"
#include "base/fault_point.hpp"
#include "bootstrap/process_group.hpp"
#include "runtime/create.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::test {

namespace {

using namespace std::chrono_literals;
using algorithm::DelayPoint;

// Of a meeting, of a creation, and of a wait in a call of a group in which one is stopped.
constexpr auto kLimit = 500ms;
// A group in which one is killed must not need its limit once it has met.
constexpr auto kPatience = 30s;
// What four processes on two cores that are busy with other things may add to 100 ms.
constexpr auto kSlack = 3000ms;
// Safety nets.
constexpr auto kSoon = 60s;

struct Trial {
  enum class When { at_point, at_moment, in_call };
  When when;
  int nranks, victim, signal;
  const fault_points::Point* point;  // at_point
  int nth;
  std::chrono::microseconds moment;  // at_moment: after the start; in_call: after it went into the call
  route::Algorithm algorithm;
  route::Protocol protocol;
  DelayPoint delay;  // in_call
  std::size_t count;

  std::string to_string() const {
    std::string where = "inside a call, point " + std::to_string(static_cast<int>(delay));
    if (when == When::at_point) where = std::string(point->name) + ", time " + std::to_string(nth);
    if (when == When::at_moment) where = std::to_string(moment.count()) + " us after the start";
    return "signal " + std::to_string(signal) + " to rank " + std::to_string(victim) + " of " +
           std::to_string(nranks) + ", " + where + ", " + algorithm::name_of(algorithm) + " " +
           algorithm::name_of(protocol) + ", " + std::to_string(count) + " elements";
  }
};

Trial trial_of(std::uint64_t seed) {
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15u);
  const auto below = [&random](std::size_t end) { return static_cast<std::size_t>(random() % end); };
  Trial trial{};
  trial.when = static_cast<Trial::When>(below(3));
  trial.nranks = 2 + static_cast<int>(below(3));
  trial.victim = static_cast<int>(below(static_cast<std::size_t>(trial.nranks)));
  // A stopped one takes all others their limit.
  trial.signal = below(3) == 0 ? SIGSTOP : SIGKILL;
  std::vector<const fault_points::Point*> points;
  for (const fault_points::Point* const point : fault_points::all()) {
    if (point->creation == fault_points::Creation::host) points.push_back(point);
  }
  trial.point = points[below(points.size())];
  trial.nth = static_cast<int>(below(trial.point == &fault_points::kExchangeRound ? 12 : 2));
  trial.moment =
      std::chrono::microseconds(trial.when == Trial::When::at_moment ? below(20'000) : below(3'000));
  do {
    trial.algorithm = algorithm::kAlgorithms[below(std::size(algorithm::kAlgorithms))];
    trial.protocol = algorithm::kProtocols[below(std::size(algorithm::kProtocols))];
  } while (!algorithm::go_together(trial.algorithm, trial.protocol));
  trial.delay = static_cast<DelayPoint>(1 + below(3));
  trial.count = 1 + below(600);
  return trial;
}

struct Board {
  std::atomic<int> reported;            // survivors that have told what they saw
  std::atomic<bool> in_call;            // the victim goes into the call in which it is held up
  std::atomic<std::int64_t> struck_ns;  // when the signal was sent
  std::atomic<int> in_meeting, in_creation, in_calls, naming, late;
  std::atomic<std::int64_t> latest_ns;
};

// One rank's life, until something fails.
struct Life {
  enum class Stage { meeting, creation, calls } stage = Stage::meeting;
  std::int64_t begin_ns = 0;  // of the step that failed
  std::unique_ptr<runtime::Communicator> comm;

  Status live(const Trial& trial, int rank, const std::string& key, Board& board) {
    begin_ns = clock_ns();
    auto exchange = bootstrap::join_process_group({rank, trial.nranks, key}, Deadline::after(kLimit));
    NL_TRY(exchange.status());
    stage = Stage::creation;
    begin_ns = clock_ns();
    runtime::Options options;
    options.create_timeout = kLimit;
    options.timeout = trial.signal == SIGSTOP ? std::chrono::milliseconds(kLimit) : kPatience;
    options.slots = 32;
    options.chunk_bytes = 256;
    options.packets = 16;
    options.lines = 4;
    options.deterministic = false;
    auto created = runtime::create_host(std::move(*exchange), options);
    NL_TRY(created.status());
    comm = std::move(*created);
    stage = Stage::calls;
    runtime::CallOptions how;
    how.algorithm = trial.algorithm;
    how.protocol = trial.protocol;
    std::vector<float> data(trial.count, 1.0f);
    const Deadline end = Deadline::after(2 * kPatience);
    for (int call = 0; !end.passed(); ++call) {
      if (rank == trial.victim && call == 5) {
        if (trial.when == Trial::When::in_call) {
          how.delay_point = static_cast<std::uint32_t>(trial.delay);
          how.delay_ns = 300'000'000'000;
          board.in_call = true;
        } else if (trial.when == Trial::When::at_point) {
          strike_self(trial, board);  // it has not come by the point
        }
      }
      begin_ns = clock_ns();
      std::fill(data.begin(), data.end(), 1.0f);
      NL_TRY(comm->all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum, nullptr,
                              how));
      for (const float value : data) {
        if (value != static_cast<float>(trial.nranks))
          return failure(Code::internal_error, "call %d: the sum is %g", call, static_cast<double>(value));
      }
    }
    return failure(Code::internal_error, "nothing has failed");
  }

  static void strike_self(const Trial& trial, Board& board) {
    board.struck_ns = clock_ns();
    ::kill(::getpid(), trial.signal);
  }
};

// `list` in "rank(s) 0, 2 did" holds the rank.
bool is_listed(const std::string& text, int rank) {
  for (std::size_t at = text.find("rank(s) "); at != std::string::npos; at = text.find("rank(s) ", at + 1)) {
    for (std::size_t i = at + 8;
         i < text.size() && (std::isdigit(text[i]) != 0 || text[i] == ',' || text[i] == ' '); ++i) {
      if (text[i] == '0' + rank) return true;
    }
  }
  return false;
}
bool is_named(const std::string& text, int rank) {
  return text.find("rank " + std::to_string(rank)) != std::string::npos || is_listed(text, rank);
}

// The survivors are a group of their own.
Status go_on_without(const Trial& trial, int rank, const std::string& key) {
  const int nranks = trial.nranks - 1;
  NL_TRY_ASSIGN(auto exchange,
                bootstrap::join_process_group({rank - (rank > trial.victim ? 1 : 0), nranks, key},
                                              Deadline::after(kSoon)));
  runtime::Options options;
  options.timeout = options.create_timeout = kSoon;
  NL_TRY_ASSIGN(const auto comm, runtime::create_host(std::move(exchange), options));
  std::int32_t value = 1;
  NL_TRY(comm->all_reduce(&value, &value, 1, DataType::i32, ReduceOp::sum, nullptr));
  if (value != nranks) return failure(Code::internal_error, "the sum is %d", value);
  return comm->barrier(nullptr);
}

void survive(const Trial& trial, int rank, int named, const std::string& key, Board& board,
             Problems& problems) {
  Life life;
  const Status status = life.live(trial, rank, key, board);
  const std::int64_t end_ns = clock_ns(), struck_ns = board.struck_ns;
  const std::string text = status.to_string();
  const auto stage = life.stage;
  ++(stage == Life::Stage::meeting    ? board.in_meeting
     : stage == Life::Stage::creation ? board.in_creation
                                      : board.in_calls);
  if (struck_ns == 0) problems.add("failed before the signal: %s", text.c_str());
  if (status.code() == Code::internal_error) problems.add("%s", text.c_str());

  if (is_named(text, named)) {
    ++board.naming;
  } else if (stage == Life::Stage::meeting && is_named(text, 0)) {
    // It came when the others' meeting had failed already, and waited for another rank 0.
  } else if (stage == Life::Stage::calls && trial.signal == SIGSTOP &&
             text.find("nothing from rank") != std::string::npos) {
    // It had all it needed of the victim, and waited for one who had not: that one names the victim.
  } else {
    problems.add("the victim is not named: %s", text.c_str());
  }

  // A call ends at once when the victim is dead; everything else at its limit.
  const bool at_once = stage == Life::Stage::calls && trial.signal == SIGKILL;
  const std::int64_t limit_ns = at_once ? 0 : std::chrono::nanoseconds(kLimit).count();
  const std::int64_t beyond_ns = end_ns - std::max(life.begin_ns, at_once ? struck_ns : 0) - limit_ns;
  if (beyond_ns > 100'000'000) ++board.late;
  if (beyond_ns > std::chrono::nanoseconds(100ms + kSlack).count()) {
    problems.add("%lld ms beyond its limit: %s", static_cast<long long>(beyond_ns / 1'000'000), text.c_str());
  }
  for (std::int64_t latest = board.latest_ns; latest < beyond_ns;) {
    if (board.latest_ns.compare_exchange_weak(latest, beyond_ns)) break;
  }
  // Nobody leaves before all have seen it: a rank that ends is noticed, too.
  ++board.reported;
  wait_until([&] { return board.reported == trial.nranks - 1; }, kSoon);
  if (const Status again = go_on_without(trial, rank, key + "-again"); !again.ok())
    problems.add("without the victim: %s", again.to_string().c_str());
}

void run_victim(const Trial& trial, const std::string& key, Board& board) {
  int passed = 0;
  std::optional<fault_points::Planted> planted;
  if (trial.when == Trial::When::at_point) {
    planted.emplace([&](const fault_points::Point& here) {
      if (&here == trial.point && passed++ == trial.nth) Life::strike_self(trial, board);
      return Status();
    });
  }
  Life life;
  static_cast<void>(life.live(trial, trial.victim, key, board));
  // Struck from outside, it may be late.
  wait_until([&] { return board.reported == trial.nranks - 1; }, kSoon);
}

void add(KillOutcome& outcome, const Trial& trial, const Board& board) {
  ++outcome.trials;
  ++(trial.signal == SIGKILL ? outcome.killed : outcome.stopped);
  outcome.in_meeting += board.in_meeting;
  outcome.in_creation += board.in_creation;
  outcome.in_calls += board.in_calls;
  outcome.late += board.late;
  outcome.latest_ms = std::max(outcome.latest_ms, board.latest_ns / 1'000'000);
}

}  // namespace

std::string KillOutcome::to_string() const {
  return std::to_string(trials) + " trials (" + std::to_string(killed) + " kills, " +
         std::to_string(stopped) + " stops); survivors failed in the meeting " + std::to_string(in_meeting) +
         ", in creation " + std::to_string(in_creation) + ", in calls " + std::to_string(in_calls) + "; " +
         std::to_string(late) + " more than 100 ms beyond their limit, the latest " +
         std::to_string(latest_ms) + " ms" + problems;
}

KillOutcome run_kill_trials(const KillTrials& trials) {
  KillOutcome outcome;
  const std::string key = fresh_key();
  for (int i = 0; i < trials.trials; ++i) {
    const std::uint64_t seed = trials.seed + static_cast<std::uint64_t>(i);
    const Trial trial = trial_of(seed);
    const int named = trials.name_another ? (trial.victim + 1) % trial.nranks + 8 : trial.victim;
    const Shared<Board> board;
    std::string problems = run_ranks(
        Kind::processes, trial.nranks,
        // The exchange of the forked group is not used: these meet as strangers do.
        [&](Exchange& forked, Problems& trouble) {
          if (forked.rank() == trial.victim) return run_victim(trial, key, *board);
          survive(trial, forked.rank(), named, key, *board, trouble);
        },
        {.time_limit = 2 * kSoon,
         .on_started =
             [&](std::span<const pid_t> pids) {
               const pid_t victim = pids[static_cast<std::size_t>(trial.victim)];
               if (trial.when != Trial::When::at_point) {
                 if (trial.when == Trial::When::in_call)
                   wait_until([&] { return board->in_call || board->reported > 0; }, kSoon);
                 std::this_thread::sleep_for(trial.moment);
                 board->struck_ns = clock_ns();
                 ::kill(victim, trial.signal);
               }
               wait_until([&] { return board->reported == trial.nranks - 1; }, kSoon);
               ::kill(victim, SIGKILL);
             }},
        1u << trial.victim);
    if (board->reported != trial.nranks - 1) problems += "\n  a survivor has not returned";
    if (board->in_calls > 0 && board->naming == 0) problems += "\n  no survivor names the victim";
    add(outcome, trial, *board);
    if (problems.empty()) continue;
    outcome.problems = "\n  seed " + std::to_string(seed) + ": " + trial.to_string() + problems;
    break;
  }
  return outcome;
}

}  // namespace nearlight::test
