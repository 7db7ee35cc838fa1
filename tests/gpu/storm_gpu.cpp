#include "tests/gpu/storm_gpu.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/deadline.hpp"
#include "tests/gpu/ranks.hpp"
#include "tests/gpu/storm_gpu_calls.hpp"
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {

namespace {

using namespace gpu_storm;
using route::Algorithm;
using std::chrono::milliseconds;

constexpr std::size_t kBufferBytes = (std::size_t{1} << 20) + 8192;
constexpr int kMostRanks = 8;

struct Totals {
  std::atomic<std::uint64_t> barriers{0}, messages{0}, hops{0}, held{0}, staged{0};
};

// One rank's calls: on the stream that it is on, with what is its own affair drawn from its own numbers.
class Player {
 public:
  Player(Rank& rank, Totals& totals, std::uint64_t seed, bool may_hop)
      : rank_(rank),
        totals_(totals),
        own_(seed, 100 + static_cast<std::uint64_t>(rank.rank)),
        may_hop_(may_hop) {
    for (cudaEvent_t& event : events_) EXPECT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  Player(const Player&) = delete;
  ~Player() {
    for (const cudaEvent_t event : events_) EXPECT_CUDA(cudaEventDestroy(event));
  }

  // `counted`: the data are new at each replay. Returns the checks that it enqueued.
  Status make(Call call, std::uint32_t case_id, bool counted, bool other_input, std::uint64_t& checks) {
    if (call.hops && may_hop_) NL_TRY(hop(1 - at_));
    const bool first_rank = rank_.rank == 0;
    if (own_.one_in(24)) {
      NL_TRY(ok_or("hold", hold(own_.below(30'000), stream())));
      if (first_rank) ++totals_.held;
    }
    if (call.barrier) {
      if (first_rank) ++totals_.barriers;
      return rank_.comm->barrier(stream());
    }
    if (!call.messages.empty()) return exchange(call, case_id, counted, other_input, checks);
    if (other_input) call.pattern.seed += 1'000'000;
    const std::uint32_t element = element_bytes(call.pattern.type);
    const std::uint64_t own = own_.below(1 << 20);
    Work work = rank_.work(call.pattern, call.count, own % 3 == 0, own / 4 % 16 / element * element,
                           own / 64 % 16 / element * element, case_id);
    if (counted) work.counter = rank_.counter;
    if (call.options.delay_point != 0) call.options.delay_ns = own_.one_in(2) ? own_.below(5'000) : 0;
    if (call.count == 0) return rank_.all_reduce(work, call.options, stream());
    Work told = work;
    if (other_input) told.pattern.seed -= 1'000'000;
    NL_TRY(ok_or("prepare", prepare(work, stream())));
    NL_TRY(rank_.all_reduce(work, call.options, stream()));
    if (first_rank && call.options.algorithm == Algorithm::staged) ++totals_.staged;
    ++checks;
    return ok_or("check", check(told, rank_.report, stream()));
  }
  // Where graphs begin and end.
  Status go_home() { return at_ == 0 ? Status() : hop(0); }

 private:
  // Data are made and looked at where they are sent and received, as those of a single rank's call.
  Status exchange(const Call& call, std::uint32_t case_id, bool counted, bool other_input,
                  std::uint64_t& checks) {
    std::vector<runtime::MessageCall> group;
    std::vector<Work> received;
    for (std::size_t i = 0; i < call.messages.size(); ++i) {
      const Message& message = call.messages[i];
      const bool sends = message.from == rank_.rank, receives = message.to == rank_.rank;
      if (!sends && !receives) continue;
      const std::uint32_t element = element_bytes(message.pattern.type);
      const std::uint64_t own = own_.below(1 << 8);
      Work work =
          rank_.work(message.pattern, message.count, false, i * kMessageBytes + own % 16 / element * element,
                     i * kMessageBytes + own / 16 / element * element, case_id);
      work.rank = 0;
      work.nranks = 1;
      if (counted) work.counter = rank_.counter;
      Work told = work;
      if (other_input && sends) work.pattern.seed += 1'000'000;
      if (message.count != 0) NL_TRY(ok_or("prepare", prepare(work, stream())));
      if (sends) group.push_back({true, work.send, message.count, message.pattern.type, message.to});
      if (receives) group.push_back({false, work.recv, message.count, message.pattern.type, message.from});
      if (receives && message.count != 0) received.push_back(told);
    }
    if (rank_.rank == 0) ++totals_.messages;
    if (!group.empty()) NL_TRY(rank_.comm->messages(group, stream(), call.options));
    for (const Work& work : received) NL_TRY(ok_or("check", check(work, rank_.report, stream())));
    checks += received.size();
    return {};
  }

  cudaStream_t stream() const { return rank_.streams[static_cast<std::size_t>(at_)].get(); }
  Status hop(int to) {
    const cudaEvent_t event = events_[at_];
    NL_TRY(ok_or("cudaEventRecord", cudaEventRecord(event, stream())));
    at_ = to;
    if (rank_.rank == 0) ++totals_.hops;
    return ok_or("cudaStreamWaitEvent", cudaStreamWaitEvent(stream(), event, 0));
  }

  Rank& rank_;
  Totals& totals_;
  Random own_;
  const bool may_hop_;
  int at_ = 0;
  cudaEvent_t events_[2] = {};
};

class StormGroup {
 public:
  StormGroup(const GpuStorm& storm, GpuStormOutcome& outcome)
      : storm_(storm),
        outcome_(outcome),
        plan_(plan_of(storm)),
        group_(plan_.setup, plan_.options, kBufferBytes, 2),
        shared_(storm.seed, 1) {
    if (!group_.ok()) return;
    for (Rank& rank : group_.ranks()) {
      EXPECT_CUDA(cudaSetDevice(rank.device));
      // In check mode every hop would be put in order and told of.
      players_.push_back(std::make_unique<Player>(rank, totals_, storm.seed, plan_.options.check != true));
    }
  }

  // Until so many operations are made or the deadline has passed. False: something went wrong.
  bool run(std::uint64_t operations, const Deadline& deadline) {
    if (!group_.ok()) {
      problems_ = "\n  no group: see above";
      return false;
    }
    std::uint64_t made = 0;
    while (made < operations && !deadline.passed() && problems_.empty()) {
      const bool plants = storm_.plant != GpuStorm::Plant::none;
      planted_ = plants && made >= operations / 2;
      const std::uint64_t until = plants && !planted_ ? operations / 2 : operations;
      made += shared_.one_in(3) ? eager() : replayed(until - made);
      if (testing::Test::HasFailure() && problems_.empty()) problems_ = "\n  see above";
    }
    outcome_.operations += made;
    outcome_.barriers += totals_.barriers;
    outcome_.messages += totals_.messages;
    outcome_.hops += totals_.hops;
    outcome_.held += totals_.held;
    outcome_.staged += totals_.staged;
    return problems_.empty();
  }
  const std::string& problems() const { return problems_; }
  int nranks() const { return plan_.setup.ranks; }

 private:
  std::vector<Call> draw(std::uint64_t calls, bool in_graph) {
    std::vector<Call> all;
    for (std::uint64_t i = 0; i < calls; ++i) all.push_back(any_call(shared_, storm_, group_, in_graph));
    return all;
  }

  // Makes the calls on every rank, in a thread each.
  std::uint64_t eager() {
    const auto calls = draw(1 + shared_.below(static_cast<std::uint64_t>(scaled(300, 10))), false);
    std::vector<std::uint64_t> checks(static_cast<std::size_t>(nranks()));
    const bool planted = planted_;
    group_.run([&](Rank& rank) {
      const auto at = static_cast<std::size_t>(rank.rank);
      Random own(storm_.seed + calls.size(), 200 + at);
      const bool last = rank.rank == nranks() - 1;
      Status status;
      for (std::size_t i = 0; i < calls.size(); ++i) {
        group_.keep_pace(i);
        if (!status.ok()) continue;  // the others keep pace with this one
        if (own.one_in(32)) std::this_thread::sleep_for(std::chrono::microseconds(own.below(200)));
        const bool now = planted && last && i == calls.size() / 2;
        if (now && storm_.plant == GpuStorm::Plant::stays_away) continue;
        status = players_[at]->make(calls[i], static_cast<std::uint32_t>(i), false,
                                    now && storm_.plant == GpuStorm::Plant::other_input, checks[at]);
      }
      if (status.ok()) status = players_[at]->go_home();
      note(rank, status);
    });
    judge(checks, calls, "eager call");
    outcome_.eager += calls.size();
    return calls.size();
  }

  // A graph of some calls, replayed with new data each time.
  std::uint64_t replayed(std::uint64_t most) {
    const auto calls = draw(1 + shared_.below(48), true);
    const std::uint64_t replays =
        1 +
        std::min<std::uint64_t>(most / calls.size(),
                                shared_.below(static_cast<std::uint64_t>(scaled(4000, 20))) / calls.size());
    std::vector<std::uint64_t> checks(static_cast<std::size_t>(nranks()));
    const bool plants_input = planted_ && storm_.plant == GpuStorm::Plant::other_input;
    const bool stays_away = planted_ && storm_.plant == GpuStorm::Plant::stays_away;
    group_.run([&](Rank& rank) {
      const auto at = static_cast<std::size_t>(rank.rank);
      const bool last = rank.rank == nranks() - 1;
      // Nothing runs while a graph is made: that might wait for kernels that wait for another rank.
      const Graph graph(rank, [&]() -> Status {
        for (std::size_t i = 0; i < calls.size(); ++i) {
          NL_TRY(players_[at]->make(calls[i], static_cast<std::uint32_t>(i), true,
                                    plants_input && last && i == calls.size() / 2, checks[at]));
        }
        NL_TRY(players_[at]->go_home());
        return ok_or("advance", advance(rank.counter, rank.stream));
      });
      group_.meet();
      checks[at] *= replays;
      if (!graph.ok()) return;
      Status status;
      const std::uint64_t mine = replays - (stays_away && last ? 1 : 0);
      for (std::uint64_t i = 0; i < mine && status.ok(); ++i) {
        status = ok_or("cudaGraphLaunch", graph.launch());
        // A stream's queue is not endless, and a launch that waits may hold a lock that another rank needs.
        if (i % 8 == 7 && status.ok())
          status = ok_or("cudaStreamSynchronize", cudaStreamSynchronize(rank.stream));
      }
      note(rank, status);
    });
    judge(checks, calls, "replayed call");
    outcome_.replayed += calls.size() * replays;
    return calls.size() * replays;
  }

  void note(Rank& rank, const Status& status) {
    Status all = status.ok() ? ok_or("cudaStreamSynchronize", cudaStreamSynchronize(rank.stream)) : status;
    if (all.ok()) all = rank.comm->status();
    if (all.ok()) return;
    // The others need not wait for this rank.
    rank.comm->abort();
    const std::lock_guard lock(mutex_);
    if (all.code() == Code::timeout) ++outcome_.stuck;
    problems_ += "\n  rank " + std::to_string(rank.rank) + ": " + all.to_string();
  }

  void judge(const std::vector<std::uint64_t>& checks, const std::vector<Call>& calls, const char* what) {
    for (Rank& rank : group_.ranks()) {
      const Report report = rank.wait_and_read();
      const std::uint64_t expected = checks[static_cast<std::size_t>(rank.rank)];
      if (report.wrong != 0) {
        ++outcome_.wrong;
        const Call& call = calls[std::min<std::size_t>(report.case_id, calls.size() - 1)];
        problems_ += "\n  rank " + std::to_string(rank.rank) + ": " + what + " " +
                     std::to_string(report.case_id) + " of " + std::to_string(calls.size()) + ", " +
                     (call.messages.empty()
                          ? std::string(name_of(call.pattern.type)) + " " + name_of(call.pattern.op) + ", " +
                                std::to_string(call.count) + " elements: "
                          : std::to_string(call.messages.size()) + " messages: ") +
                     std::to_string(report.wrong) + " wrong, the first at " + std::to_string(report.index) +
                     ", expected " + std::to_string(report.expected) + ", got " + std::to_string(report.got);
      } else if (report.checks != expected && problems_.empty()) {
        problems_ += "\n  rank " + std::to_string(rank.rank) + ": " + std::to_string(report.checks) +
                     " checks instead of " + std::to_string(expected);
      }
    }
  }

  const GpuStorm storm_;
  GpuStormOutcome& outcome_;
  const Plan plan_;
  Group group_;
  Random shared_;
  Totals totals_;
  std::vector<std::unique_ptr<Player>> players_;
  bool planted_ = false;
  std::mutex mutex_;
  std::string problems_;
};

std::uint64_t number_of(const char* text, bool& good) {
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text, &end, 10);
  good = good && *text >= '0' && *text <= '9' && *end == '\0';
  return value;
}

}  // namespace

std::string GpuStormOutcome::to_string() const {
  char time[32];
  std::snprintf(time, sizeof time, "%.1f", seconds);
  return std::to_string(operations) + " operations in " + time + " s (" + std::to_string(eager) + " eager, " +
         std::to_string(replayed) + " replayed; " + std::to_string(groups) + " groups, " +
         std::to_string(barriers) + " barriers, " + std::to_string(messages) + " groups of messages, " +
         std::to_string(hops) + " changes of stream, " + std::to_string(held) + " times held up, " +
         std::to_string(staged) + " by the CPU), " + std::to_string(wrong) + " wrong, " +
         std::to_string(stuck) + " stuck" + problems;
}

GpuStormOutcome run_gpu_storm(const GpuStorm& storm) {
  GpuStormOutcome outcome;
  const auto begin = std::chrono::steady_clock::now();
  const Deadline deadline = Deadline::after(std::chrono::seconds(storm.seconds != 0 ? storm.seconds : 3600));
  GpuStorm one = storm;
  for (; outcome.problems.empty() && !deadline.passed(); ++one.seed) {
    std::uint64_t operations = kGpuGroupOperations;
    if (storm.operations != 0) {
      if (outcome.operations >= storm.operations) break;
      operations = std::min(operations, storm.operations - outcome.operations);
    } else if (storm.seconds == 0) {
      break;
    }
    StormGroup group(one, outcome);
    ++outcome.groups;
    one.operations = operations;
    if (group.run(operations, deadline)) continue;
    one.ranks = group.nranks();
    one.seconds = 0;
    outcome.problems = "\n  again: " + command_line_of(one) + group.problems();
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return outcome;
}

std::string command_line_of(const GpuStorm& storm) {
  return "--seed " + std::to_string(storm.seed) + " --operations " + std::to_string(storm.operations) +
         " --seconds " + std::to_string(storm.seconds) + " --gpus " + std::to_string(storm.gpus) +
         " --ranks " + std::to_string(storm.ranks) + " --windows " + (storm.windows ? "1" : "0") +
         " --staged " + (storm.staged ? "1" : "0") +
         (storm.plant != GpuStorm::Plant::none ? " --plant " + std::to_string(static_cast<int>(storm.plant))
                                               : "");
}

bool read_command_line(int argc, char** argv, GpuStorm& storm, std::string& error) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const char* const text = i + 1 < argc ? argv[i + 1] : "";
    bool good = true;
    const std::uint64_t number = number_of(text, good);
    if (name == "--seed") {
      storm.seed = number;
    } else if (name == "--operations") {
      storm.operations = number;
    } else if (name == "--seconds") {
      storm.seconds = number;
    } else if (name == "--gpus") {
      good = good && number >= 1 && number <= kMostRanks;
      storm.gpus = static_cast<int>(number);
    } else if (name == "--ranks") {
      good = good && number != 1 && number <= kMostRanks;
      storm.ranks = static_cast<int>(number);
    } else if (name == "--windows") {
      good = good && number <= 1;
      storm.windows = number == 1;
    } else if (name == "--staged") {
      good = good && number <= 1;
      storm.staged = number == 1;
    } else if (name == "--plant") {
      good = good && number <= static_cast<std::uint64_t>(GpuStorm::Plant::stays_away);
      if (good) storm.plant = static_cast<GpuStorm::Plant>(number);
    } else {
      error = "unknown: " + name;
      return false;
    }
    if (!good) {
      error = name + " cannot be \"" + text + "\"";
      return false;
    }
  }
  if (storm.windows && storm.staged) {
    error = "--windows 1 and --staged 1: where NCCL is attached it makes what the CPU would";
    return false;
  }
  return true;
}

}  // namespace nearlight::test
