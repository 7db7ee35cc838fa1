// GPU ranks in processes of which one is killed or stopped: at every point of creation on every rank, inside
// calls and in between. The survivors return an error that names it, in time, and go on without it.
#include "tests/gpu/kills_gpu.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "algorithm/one_shot.hpp"
#include "base/fault_point.hpp"
#include "bootstrap/job.hpp"
#include "bootstrap/process_group.hpp"
#include "runtime/create.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/support/gpu_support.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/spawned.hpp"

namespace nearlight::test {
namespace {

using algorithm::DelayPoint;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A creation with a new context of CUDA's takes its time; a wait in a call does not.
constexpr milliseconds kCreationLimit{4000}, kCallLimit{500};
// A group in which one is killed inside a call must not need its limit.
constexpr milliseconds kPatience{60'000};
// Beyond the limit: 100 ms, and what many processes on one machine add.
constexpr milliseconds kSlack{2000};
constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

struct Trial {
  std::vector<int> devices;
  int victim = 0;
  int signal = SIGKILL;
  // At a point of creation, at the nth time; none: inside or between calls.
  const fault_points::Point* point = nullptr;
  int nth = 0;
  DelayPoint delay = DelayPoint::none;  // inside a call of the victim's; none: between two
  bool in_graph = false;
  bool shrinks = false;  // the survivors go on in a smaller communicator

  std::string to_string() const {
    std::string where = in_graph ? "between replays of a graph" : "between calls";
    if (delay != DelayPoint::none) where = "inside a call, point " + std::to_string(static_cast<int>(delay));
    if (point != nullptr) where = std::string(point->name) + ", time " + std::to_string(nth);
    return std::string(signal == SIGKILL ? "SIGKILL" : "SIGSTOP") + " to rank " + std::to_string(victim) +
           " of " + std::to_string(devices.size()) + ", " + where;
  }
  // What it is to a rank, as one word of its environment.
  std::string in_a_word() const {
    std::ostringstream text;
    text << "TEST_TRIAL=" << victim << ' ' << signal << ' ' << (point != nullptr ? point->name : "-") << ' '
         << nth << ' ' << static_cast<int>(delay) << ' ' << in_graph << ' ' << shrinks;
    return text.str();
  }
};

// ---- a rank
// ----------------------------------------------------------------------------------------------------

struct Role {
  Trial trial;
  int device = 0;
  bootstrap::Job job;
};

Role read_role() {
  Role role;
  const char* const text = std::getenv("TEST_TRIAL");
  std::istringstream words(text != nullptr ? text : "");
  std::string point;
  int delay = 0;
  words >> role.trial.victim >> role.trial.signal >> point >> role.trial.nth >> delay >>
      role.trial.in_graph >> role.trial.shrinks;
  role.trial.delay = static_cast<DelayPoint>(delay);
  for (const fault_points::Point* const one : fault_points::all()) {
    if (point == one->name) role.trial.point = one;
  }
  return role;
}

// Until something fails. `begin_ns`: of the step that failed.
Status live(const Role& role, Rank& rank, std::int64_t& begin_ns, const char*& stage) {
  const Trial& trial = role.trial;
  stage = "meeting";
  begin_ns = clock_ns();
  auto exchange = bootstrap::join_process_group({role.job.rank, role.job.nranks, role.job.key},
                                                Deadline::after(patient(kCreationLimit)));
  NL_TRY(exchange.status());
  stage = "creation";
  begin_ns = clock_ns();
  runtime::Options options = test_options();
  options.create_timeout = patient(kCreationLimit);
  options.timeout = patient(trial.signal == SIGSTOP ? kCallLimit : kPatience);
  auto created = runtime::create_cuda_processes(std::move(*exchange), role.device, options);
  NL_TRY(created.status());
  rank.comm = std::move(*created);
  // Every protocol has a kernel that waits, and one with delays is of each but the sentinel.
  runtime::CallOptions how;
  const Work work = rank.work({DataType::f32, ReduceOp::sum, Values::general, 1}, 1000, false);
  const bool victim = role.job.rank == trial.victim;
  std::optional<Graph> graph;
  if (trial.in_graph) {
    graph.emplace(rank, [&]() -> Status {
      for (int i = 0; i < 20; ++i) NL_TRY(rank.all_reduce(work));
      return {};
    });
    if (!graph->ok()) return failure(Code::internal_error, "no graph");
  }
  stage = "calls";
  const Deadline end = Deadline::after(2 * kPatience);
  for (int call = 0; !end.passed(); ++call) {
    begin_ns = clock_ns();
    if (call == 20) std::printf("going\n");
    if (victim && call == 20 && trial.point != nullptr) ::kill(::getpid(), trial.signal);  // it never came by
    if (trial.delay != DelayPoint::none) {
      how.protocol = call % 2 == 0 ? route::Protocol::ll : route::Protocol::simple;
      how.delay_point = static_cast<std::uint32_t>(trial.delay);
      how.delay_ns = victim && call >= 20 ? 20'000'000'000 : 0;
    }
    NL_TRY(graph ? ok_or("cudaGraphLaunch", graph->launch()) : rank.all_reduce(work, how));
    NL_TRY(ok_or("cudaStreamSynchronize", cudaStreamSynchronize(rank.stream)));
    NL_TRY(rank.comm->status());
  }
  return failure(Code::internal_error, "nothing has failed");
}

// The context is as good as before: a kernel runs in it.
Status look_at_context(Rank& rank) {
  const Work work = rank.work({DataType::f32, ReduceOp::sum, Values::general, 2}, 1000, false);
  NL_TRY(ok_or("prepare", prepare(work, rank.stream)));
  NL_TRY(ok_or("cudaDeviceSynchronize", cudaDeviceSynchronize()));
  return ok_or("cudaGetLastError", cudaGetLastError());
}

Status go_on_without(const Role& role, Rank& rank) {
  if (!role.trial.shrinks || rank.comm == nullptr) return {};
  std::vector<int> members;
  for (int other = 0; other < role.job.nranks; ++other) {
    if (other != role.trial.victim) members.push_back(other);
  }
  NL_TRY_ASSIGN(auto smaller, rank.comm->shrink(members, patient(seconds(30))));
  rank.comm = std::move(smaller);
  rank.rank = rank.comm->rank();
  rank.nranks = rank.comm->nranks();
  if (rank.nranks != role.job.nranks - 1) return failure(Code::internal_error, "not so many ranks");
  for (std::uint32_t call = 0; call < 50; ++call) {
    NL_TRY(rank.prepare_reduce_check(
        rank.work({DataType::bf16, ReduceOp::sum, Values::general, call}, 3 + 97 * call, false)));
  }
  const Report report = rank.wait_and_read();
  if (report.wrong != 0 || report.checks != 50)
    return failure(Code::internal_error, "%llu wrong, %llu checks",
                   static_cast<unsigned long long>(report.wrong),
                   static_cast<unsigned long long>(report.checks));
  NL_TRY(rank.comm->barrier(rank.stream));
  NL_TRY(ok_or("cudaStreamSynchronize", cudaStreamSynchronize(rank.stream)));
  return rank.comm->status();
}

Status play(Role& role) {
  NL_TRY_ASSIGN(role.job, bootstrap::find_job());
  Rank rank;
  rank.rank = role.job.rank;
  rank.nranks = role.job.nranks;
  rank.device = role.device;
  NL_TRY(ok_or("cudaSetDevice", cudaSetDevice(role.device)));
  NL_TRY(ok_or("cudaStreamCreate", cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking)));
  NL_TRY(ok_or("preload", preload_device_work()));
  for (char** const memory : {&rank.send, &rank.recv})
    NL_TRY(ok_or("cudaMalloc", cudaMalloc(reinterpret_cast<void**>(memory), kBufferBytes)));
  NL_TRY(ok_or("cudaMalloc", cudaMalloc(reinterpret_cast<void**>(&rank.report), sizeof(Report))));
  NL_TRY(ok_or("cudaMemset", cudaMemset(rank.report, 0, sizeof(Report))));
  NL_TRY(ok_or("cudaDeviceSynchronize", cudaDeviceSynchronize()));
  int passed = 0;
  std::optional<fault_points::Planted> planted;
  if (role.job.rank == role.trial.victim && role.trial.point != nullptr) {
    planted.emplace([&](const fault_points::Point& here) {
      if (&here == role.trial.point && passed++ == role.trial.nth) {
        std::printf("struck %lld\n", static_cast<long long>(clock_ns()));
        ::kill(::getpid(), role.trial.signal);
      }
      return Status();
    });
  }
  std::int64_t begin_ns = 0;
  const char* stage = "";
  const Status status = live(role, rank, begin_ns, stage);
  const std::int64_t end_ns = clock_ns();
  std::printf("failed %s %lld %lld %s\n", stage, static_cast<long long>(begin_ns),
              static_cast<long long>(end_ns), status.to_string().c_str());
  NL_TRY(look_at_context(rank).with_context("afterwards"));
  NL_TRY(go_on_without(role, rank).with_context("without the victim"));
  rank.comm.reset();
  std::printf("well\n");
  return {};
}

}  // namespace

int trial_main(int, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  setenv("CUDA_MODULE_LOADING", "LAZY", 0);  // most of what would be loaded is not used
  ::alarm(static_cast<unsigned>(std::chrono::duration_cast<seconds>(patient(seconds(90))).count()));
  Role role = read_role();
  role.device = std::atoi(argv[2]);
  const Status status = play(role);
  if (status.ok()) return 0;
  std::printf("%s\n", status.to_string().c_str());
  return 1;
}

namespace {

// ---- the tests
// -------------------------------------------------------------------------------------------------

struct Line {
  std::string stage, text;
  std::int64_t begin_ns = 0, end_ns = 0;
};
std::optional<Line> line_of(const std::string& output) {
  const std::size_t at = output.find("failed ");
  if (at == std::string::npos) return std::nullopt;
  std::istringstream words(output.substr(at + 7));
  Line line;
  words >> line.stage >> line.begin_ns >> line.end_ns;
  std::getline(words, line.text);
  return line;
}
std::int64_t struck_of(const std::string& output) {
  const std::size_t at = output.find("struck ");
  return at == std::string::npos ? 0 : std::atoll(output.c_str() + at + 7);
}

// "rank 1", or in a list: "rank(s) 0, 1".
bool names(const std::string& text, int rank) {
  if (text.find("rank " + std::to_string(rank)) != std::string::npos) return true;
  const std::size_t at = text.find("rank(s) ");
  if (at == std::string::npos) return false;
  const std::string list = text.substr(at + 8, text.find_first_not_of("0123456789, ", at + 8) - at - 8);
  return list.find(std::to_string(rank)) != std::string::npos;
}

struct TrialOutcome {
  std::string problems;  // "" when it went as it must
  bool struck = false;   // at its point, not only later
};

TrialOutcome run_trial(const Trial& trial) {
  const std::string key = fresh_key();
  std::vector<Spawned> ranks;
  for (std::size_t rank = 0; rank < trial.devices.size(); ++rank) {
    ranks.emplace_back(
        std::vector<std::string>{own_program(), "--trial", std::to_string(trial.devices[rank])},
        std::vector<std::string>{"NEARLIGHT_RANK=" + std::to_string(rank),
                                 "NEARLIGHT_NRANKS=" + std::to_string(trial.devices.size()),
                                 "NEARLIGHT_KEY=" + key, trial.in_a_word(), "GTEST_FILTER"});
  }
  Spawned& victim = ranks[static_cast<std::size_t>(trial.victim)];
  std::string problems;
  std::int64_t struck_ns = 0;
  if (trial.point == nullptr) {
    for (const Spawned& rank : ranks) {
      if (!rank.wait_for_output("going")) return {"\n  a rank does not get on:\n" + rank.output()};
    }
    std::this_thread::sleep_for(milliseconds(100));  // into the call
    struck_ns = clock_ns();
    victim.kill(trial.signal);
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (static_cast<int>(rank) == trial.victim) continue;
    const std::string who = "\n  rank " + std::to_string(rank) + ": ";
    const bool ended = wait_until(
        [&] {
          const std::string output = ranks[rank].output();
          return output.find("well\n") != std::string::npos ||
                 output.find("without the") != std::string::npos;
        },
        patient(seconds(80)));
    const std::string output = ranks[rank].output();
    if (!ended) problems += who + "has not ended well: " + output;
    const auto line = line_of(output);
    if (!line) continue;
    if (struck_ns == 0) struck_ns = struck_of(victim.output());
    if (line->text.find("nothing has failed") != std::string::npos) problems += who + line->text;
    if (!names(line->text, trial.victim)) {
      // It had all it needed of a stopped one, and waited for a survivor who had not.
      const bool for_another = trial.signal == SIGSTOP && ranks.size() > 2;
      if (!for_another) problems += who + "the victim is not named: " + line->text;
    }
    // Dead: at once where it is noticed; else, and stopped, at the limit.
    const bool at_once = line->stage == "calls" && trial.signal == SIGKILL;
    const milliseconds limit = at_once                  ? milliseconds(0)
                               : line->stage == "calls" ? patient(kCallLimit)
                                                        : patient(kCreationLimit);
    const std::int64_t from_ns = at_once ? std::max(line->begin_ns, struck_ns) : line->begin_ns;
    const std::int64_t beyond_ns = line->end_ns - from_ns - std::chrono::nanoseconds(limit).count();
    if (beyond_ns > std::chrono::nanoseconds(milliseconds(100) + patient(kSlack)).count())
      problems += who + std::to_string(beyond_ns / 1'000'000) + " ms beyond its limit: " + line->text;
  }
  victim.kill(SIGKILL);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const int expected = static_cast<int>(rank) == trial.victim ? -SIGKILL : 0;
    const int end = ranks[rank].wait(patient(seconds(30)));
    if (end != expected && problems.empty())
      problems += "\n  rank " + std::to_string(rank) + " ended with " + std::to_string(end) + ":\n" +
                  ranks[rank].output();
  }
  return {problems.empty() ? "" : "\n" + trial.to_string() + problems, struck_of(victim.output()) != 0};
}

using Points = std::set<const fault_points::Point*>;

// Several at a time, since most of one is the start of processes and waiting for limits. Returns the points
// at which a rank was struck.
Points run_trials(const std::vector<Trial>& trials, unsigned at_a_time) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::string problems;
  Points struck;
  std::size_t at_points = 0;
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < at_a_time; ++thread) {
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < trials.size(); i = next++) {
        const TrialOutcome one = run_trial(trials[i]);
        const std::lock_guard lock(mutex);
        problems += one.problems;
        if (one.struck) struck.insert(trials[i].point);
        at_points += one.struck;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(problems, "");
  std::printf("%zu trials, %zu of them at a point of creation\n", trials.size(), at_points);
  return struck;
}

bool is_a_processes(const fault_points::Point& point) {
  return point.creation != fault_points::Creation::nccl;
}

// A rank that is to be struck at a point which it never comes by is killed in its calls instead, which says
// nothing of the point. Some points are rank 0's, or the others'; but one rank must come by each of them,
// except for what is done only where it is asked for.
void expect_all_struck(const Points& struck) {
  const Points never = {&fault_points::kCudaCalibrate};
  for (const fault_points::Point* const point : fault_points::all()) {
    if (!is_a_processes(*point)) continue;
    EXPECT_EQ(struck.count(point), never.count(point) == 0 ? 1u : 0u) << point->name;
  }
}

std::vector<Trial> at_every_point(const std::vector<int>& devices) {
  std::vector<Trial> trials;
  std::size_t index = 0;
  for (const fault_points::Point* const point : fault_points::all()) {
    if (!is_a_processes(*point)) continue;
    for (int victim = 0; victim < static_cast<int>(devices.size()); ++victim, ++index) {
      Trial trial;
      trial.devices = devices;
      trial.victim = victim;
      // A stopped one takes the others their limit. On every rank in turn.
      trial.signal = (index / devices.size() + static_cast<std::size_t>(victim)) % 4 == 0 ? SIGSTOP : SIGKILL;
      trial.point = point;
      trial.nth = point == &fault_points::kExchangeRound ? static_cast<int>(index % 12) : 0;
      trials.push_back(trial);
    }
  }
  return trials;
}

std::vector<Trial> in_calls(const std::vector<int>& devices) {
  std::vector<Trial> trials;
  for (const int signal : {SIGKILL, SIGSTOP}) {
    for (int victim = 0; victim < static_cast<int>(devices.size()); ++victim) {
      for (const DelayPoint delay : {DelayPoint::none, DelayPoint::before_publish, DelayPoint::after_arrival,
                                     DelayPoint::after_read}) {
        Trial trial;
        trial.devices = devices;
        trial.victim = victim;
        trial.signal = signal;
        trial.delay = delay;
        trials.push_back(trial);
      }
      Trial graph;
      graph.devices = devices;
      graph.victim = victim;
      graph.signal = signal;
      graph.in_graph = true;
      trials.push_back(graph);
    }
  }
  return trials;
}

TEST(KillsTwoGpus, AtEveryPointOfCreationOnEveryRank) {
  const auto trials = at_every_point({0, 1});
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(std::any_of(trials.begin(), trials.end(), [rank](const Trial& trial) {
      return trial.victim == rank && trial.signal == SIGSTOP;
    })) << rank;
  }
  expect_all_struck(run_trials(trials, 10));
}
// One group at a time: kernels of several processes that wait would take turns on a GPU.
TEST(KillsTwoGpus, InCallsOnEveryRank) { run_trials(in_calls({0, 1}), 1); }

// On one GPU the processes take turns, so a few are enough.
TEST(KillsGpu, SomeOnOneGpu) {
  const auto all = at_every_point({0, 0});
  std::vector<Trial> some;
  for (std::size_t i = 0; i < all.size(); i += 9) some.push_back(all[i]);
  run_trials(some, 3);
}

// After kill -9 of one of three those that are left shrink and are right.
TEST(KillsTwoGpus, SurvivorsShrink) {
  for (const DelayPoint delay : {DelayPoint::none, DelayPoint::before_publish}) {
    Trial trial;
    trial.devices = {0, 1, 1};
    trial.victim = 2;
    trial.delay = delay;
    trial.shrinks = true;
    run_trials({trial}, 1);
  }
  Trial two;
  two.devices = {0, 1};
  two.victim = 0;
  two.shrinks = true;
  run_trials({two}, 1);
}

// What decides whether a text names the victim.
TEST(KillsGpu, NamesAreRead) {
  EXPECT_TRUE(names("all_reduce on rank 0 had nothing from rank 1", 1));
  EXPECT_TRUE(names("rank(s) 0, 1 did not come", 1));
  EXPECT_FALSE(names("rank(s) 0, 2 did not come", 1));
  EXPECT_FALSE(names("out of memory", 1));
}

}  // namespace
}  // namespace nearlight::test
