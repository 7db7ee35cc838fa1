#include "tests/storm/storm.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <memory>
#include <thread>
#include <vector>

#include "algorithm/one_shot.hpp"
#include "runtime/create.hpp"
#include "tests/support/checked_call.hpp"
#include "tests/support/message_image.hpp"
#include "tests/support/random.hpp"

namespace nearlight::test {

namespace {

using namespace std::chrono_literals;
using algorithm::DelayPoint;

constexpr int kMostRanks = 8, kMostCommunicators = 3;
constexpr std::uint64_t kMostCount = 20'000 / kSlowDown;
// Keeps a call at this many rounds, so that one with tiny chunks does not take long.
constexpr std::uint64_t kMostRounds = 200 / kSlowDown;

struct Group {
  int nranks;
  std::vector<runtime::Options> communicators;
  std::vector<std::uint64_t> operations;  // of each communicator
};

Group group_of(const Storm& storm, std::uint64_t operations) {
  Random random(storm.seed, 0);
  // Drawn even where it is given, so that the rest is the same then.
  const int chosen = 1 + static_cast<int>(random.one_of({1, 1, 1, 2, 2, 3, 4, 7, 0}));
  Group group{storm.nranks != 0 ? storm.nranks : chosen, {}, {}};
  const std::uint64_t communicators = 1 + random.below(kMostCommunicators);
  for (std::uint64_t i = 0; i < communicators; ++i) {
    runtime::Options options = patient();
    options.timeout = 60s;
    if (storm.plant != Storm::Plant::none) options.timeout = 2s;
    if (storm.plant == Storm::Plant::stays_away || storm.plant == Storm::Plant::lost) options.timeout = 300ms;
    options.slots = random.one_of({32u, 64u, 96u, 1024u});
    options.chunk_bytes = random.one_of({16u, 48u, 256u, 1024u, 64u * 1024});
    options.packets = random.one_of({1u, 3u, 16u, 64u, 1000u});
    options.lines = random.one_of({4u, 8u, 64u});
    options.deterministic = false;
    options.heap_offset = random.one_of({0u, 128u, 4096u});
    // Across the wrap of the epoch, now and then.
    options.initial_epoch = random.one_of({0u, 0u, 0x7fffffe0u, 0xffffffc0u});
    // Check mode uses the group's exchange, and so only one communicator at a time can have it.
    options.check = i == 0 && random.one_in(4);
    group.communicators.push_back(options);
    group.operations.push_back(operations / communicators + (i < operations % communicators ? 1 : 0));
  }
  return group;
}

std::uint64_t any_count(Random& random) {
  constexpr std::uint64_t kPrimes[] = {0, 1, 2, 3, 7, 17, 31, 127, 251, 509, 1021, 4099};
  switch (random.below(8)) {
    case 0:
    case 1:
    case 2:
      return random.below(70);
    case 3:
    case 4:
    case 5:
      return random.one_of(kPrimes);
    case 6:
      return random.below(1500);
    default:
      return random.below(random.one_in(8) ? kMostCount : 3000);
  }
}

// The same on all ranks.
Call any_call(Random& random, const runtime::Options& options) {
  const std::uint64_t round_bytes =
      std::min({options.slots * 8, options.chunk_bytes, options.packets * 16, options.lines * 120});
  Call call;
  call.type = random.one_of(kDataTypes);
  call.op = random.one_of(kReduceOps);
  call.count = std::min({any_count(random), kMostRounds * round_bytes / size_of(call.type), kMostCount});
  if (!random.one_in(3)) call.protocol = random.one_of(algorithm::kProtocols);
  if (call.protocol && !algorithm::carries(*call.protocol, call.type)) call.protocol.reset();
  if (random.one_in(2)) call.algorithm = random.one_of(algorithm::kAlgorithms);
  if (call.algorithm && call.protocol && !algorithm::go_together(*call.algorithm, *call.protocol))
    call.algorithm.reset();
  if (call.algorithm && !algorithm::reduces(*call.algorithm, call.type, call.op)) call.algorithm.reset();
  call.source = {random.one_of({Values::pattern, Values::numbers, Values::bits, Values::special}),
                 random.below(1'000'000)};
  // Exact in whatever order it is added.
  if (call.algorithm == route::Algorithm::two_shot_atomic) call.source.values = Values::pattern;
  return call;
}

// Messages that go together, the same on all ranks: between any two and from ranks to themselves, or from one
// rank to one other.
std::vector<Sent> any_messages(Random& random, int nranks, const runtime::Options& options, bool& one_way) {
  const std::uint64_t turn_bytes = std::min(options.slots * 8, options.chunk_bytes);
  const auto any_rank = [&] { return static_cast<int>(random.below(static_cast<std::uint64_t>(nranks))); };
  one_way = random.one_in(3);
  const int from = any_rank(), to = any_rank();
  one_way = one_way && from != to;
  std::vector<Sent> all(1 + random.below(random.one_in(4) ? 30 : 6));
  for (Sent& sent : all) {
    sent.from = one_way ? from : any_rank();
    sent.to = one_way ? to : any_rank();
    sent.type = random.one_of(kDataTypes);
    sent.count = std::min({any_count(random), kMostRounds / 8 * turn_bytes / size_of(sent.type), kMostCount});
    sent.offset = random.below(9);
  }
  return all;
}

// What the ranks of a group share, as threads or as processes.
struct Board {
  std::array<std::array<std::atomic<std::uint64_t>, kMostRanks>, kMostCommunicators>
      came;                                                         // to which barrier
  std::array<std::atomic<std::uint64_t>, kMostCommunicators> done;  // by rank 0
  std::atomic<std::uint64_t> messages, wrong, stuck;
};

// One rank's calls on one communicator.
class Stream {
 public:
  Stream(const Storm& storm, const Group& group, std::size_t index, runtime::Communicator& comm, Board& board)
      : storm_(storm),
        options_(group.communicators[index]),
        operations_(group.operations[index]),
        index_(index),
        comm_(comm),
        board_(board),
        caller_(comm, kMostCount * 8),
        shared_(storm.seed, 1 + index),
        own_(storm.seed, 100 + index * kMostRanks + static_cast<std::uint64_t>(comm.rank())) {}

  // Stops at the first operation that is not as it must be.
  void run() {
    for (std::uint64_t i = 0; i < operations_; ++i) {
      const bool planted = index_ == 0 && i >= operations_ / 2;
      const bool last_rank = comm_.rank() == comm_.nranks() - 1;
      const bool at_barrier = shared_.one_in(9);
      const bool at_messages = shared_.one_in(5);
      if (own_.one_in(16)) std::this_thread::sleep_for(std::chrono::microseconds(own_.below(300)));
      if (planted && last_rank && storm_.plant == Storm::Plant::stays_away) break;
      if (at_barrier) {
        pass_barrier(last_rank);
      } else if (at_messages) {
        exchange(planted && last_rank);
      } else {
        reduce(planted && last_rank);
      }
      if (!problems_.none()) {
        problems_.add("that was operation %llu of %llu of communicator %zu",
                      static_cast<unsigned long long>(i), static_cast<unsigned long long>(operations_),
                      index_);
        // The others need not wait for this rank.
        comm_.abort();
        return;
      }
      if (comm_.rank() == 0) ++board_.done[index_];
    }
  }
  const Problems& problems() const { return problems_; }

 private:
  void reduce(bool planted) {
    Call call = any_call(shared_, options_);
    Place place{.send = static_cast<std::uint32_t>(own_.below(kMaxPlace)),
                .recv = static_cast<std::uint32_t>(own_.below(kMaxPlace)),
                .in_place = own_.one_in(3)};
    runtime::CallOptions extra;
    if (algorithm::has_own_code(call.type, call.op) && own_.one_in(4)) {
      constexpr DelayPoint kPoints[] = {DelayPoint::before_publish, DelayPoint::after_arrival,
                                        DelayPoint::after_read};
      extra.delay_point = static_cast<std::uint32_t>(own_.one_of(kPoints));
      // The point may be passed once a round, or once a slot.
      extra.delay_ns = call.count < 100 ? own_.below(100'000) : own_.below(2'000);
    }
    if (planted && storm_.plant == Storm::Plant::other_input) {
      call.source.seed += 1'000'000;
      call.source.values = Values::bits;
    }
    if (planted && algorithm::has_own_code(call.type, call.op)) {
      if (storm_.plant == Storm::Plant::lost) extra.packet_fault = 1;
      if (storm_.plant == Storm::Plant::spoilt) extra.packet_fault = 2;
    }
    caller_.run(call, place, problems_, extra);
    if (!problems_.none()) ++(timed_out() ? board_.stuck : board_.wrong);
  }

  void exchange(bool planted) {
    bool one_way = false;
    const std::vector<Sent> pattern = any_messages(shared_, comm_.nranks(), options_, one_way);
    const std::uint64_t round = shared_.below(1'000);
    runtime::CallOptions options;
    if (!shared_.one_in(3)) options.protocol = shared_.one_of({route::Protocol::ll, route::Protocol::simple});
    if (own_.one_in(4)) {
      options.delay_point = static_cast<std::uint32_t>(
          own_.one_of({DelayPoint::before_publish, DelayPoint::after_arrival, DelayPoint::after_read}));
      options.delay_ns = own_.below(2'000);
    }
    if (planted && storm_.plant == Storm::Plant::lost) options.packet_fault = 1;
    if (planted && storm_.plant == Storm::Plant::spoilt) options.packet_fault = 2;
    const bool others = planted && storm_.plant == Storm::Plant::other_bytes;
    MessagePart part(pattern, comm_.rank(), others ? round + 1'000 : round);
    const auto calls = part.calls();
    Status status;
    // What goes one way may be single calls at either end.
    if (one_way && own_.one_in(2)) {
      for (std::size_t i = 0; i < calls.size() && status.ok(); ++i)
        status = comm_.messages({&calls[i], 1}, nullptr, options);
    } else {
      status = comm_.messages(calls, nullptr, options);
    }
    if (!status.ok())
      problems_.add("messages: %s", status.to_string().c_str());
    else
      part.check(problems_);
    if (!problems_.none()) ++(timed_out() ? board_.stuck : board_.wrong);
    if (comm_.rank() == 0) ++board_.messages;
  }

  void pass_barrier(bool last_rank) {
    auto& came = board_.came[index_];
    ++barriers_;
    const bool planted = storm_.plant == Storm::Plant::no_barrier;
    if (planted && last_rank) std::this_thread::sleep_for(20ms);
    came[static_cast<std::size_t>(comm_.rank())].store(barriers_, std::memory_order_relaxed);
    const Status status = planted ? Status() : comm_.barrier(nullptr);
    if (!status.ok()) {
      problems_.add("barrier: %s", status.to_string().c_str());
      ++(timed_out() ? board_.stuck : board_.wrong);
      return;
    }
    for (int rank = 0; rank < comm_.nranks(); ++rank) {
      // Relaxed: the barrier itself must make it visible.
      if (came[static_cast<std::size_t>(rank)].load(std::memory_order_relaxed) >= barriers_) continue;
      problems_.add("barrier: rank %d had not come", rank);
      ++board_.wrong;
      return;
    }
  }

  bool timed_out() const { return comm_.status().code() == Code::timeout; }

  const Storm& storm_;
  const runtime::Options options_;
  const std::uint64_t operations_;
  const std::size_t index_;
  runtime::Communicator& comm_;
  Board& board_;
  Caller caller_;
  Random shared_, own_;
  std::uint64_t barriers_ = 0;
  Problems problems_;
};

void run_rank(const Storm& storm, const Group& group, Exchange& exchange, Board& board, Problems& problems) {
  std::vector<std::unique_ptr<runtime::Communicator>> comms;
  for (const runtime::Options& options : group.communicators) {
    auto comm = runtime::create_host(exchange, options);
    if (!comm.ok()) return problems.add("create_host: %s", comm.status().to_string().c_str());
    comms.push_back(std::move(*comm));
  }
  std::vector<std::unique_ptr<Stream>> streams;
  for (std::size_t i = 0; i < comms.size(); ++i)
    streams.push_back(std::make_unique<Stream>(storm, group, i, *comms[i], board));
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < streams.size(); ++i)
    threads.emplace_back([stream = streams[i].get()] { stream->run(); });
  streams[0]->run();
  for (std::thread& thread : threads) thread.join();
  for (const auto& stream : streams) {
    if (!stream->problems().none()) problems.add("%s", stream->problems().text().c_str());
  }
  // Nobody leaves before all are done: a process that ends makes the others' communicators fail. In a group
  // where something went wrong, check mode may have spent the exchange.
  Problems unmet;
  meet(exchange, unmet);
  if (problems.none() && !unmet.none()) problems.add("%s", unmet.text().c_str());
}

std::uint64_t number_of(const char* text, bool& good) {
  char* end = nullptr;
  const std::uint64_t value = std::strtoull(text, &end, 10);
  good = good && *text >= '0' && *text <= '9' && *end == '\0';
  return value;
}

}  // namespace

std::string StormOutcome::to_string() const {
  return std::to_string(operations) + " operations, " + std::to_string(wrong) + " wrong, " +
         std::to_string(stuck) + " stuck (" + std::to_string(messages) + " of them groups of messages)" +
         problems;
}

StormOutcome run_storm(const Storm& storm) {
  StormOutcome outcome;
  Storm one = storm;
  for (std::uint64_t left = storm.operations; left > 0; ++one.seed) {
    one.operations = std::min(left, kGroupOperations);
    left -= one.operations;
    const Group group = group_of(one, one.operations);
    const Shared<Board> board;
    const std::string problems = run_ranks(
        one.kind, group.nranks,
        [&](Exchange& exchange, Problems& trouble) { run_rank(one, group, exchange, *board, trouble); });
    for (const auto& done : board->done) outcome.operations += done;
    outcome.messages += board->messages;
    outcome.wrong += board->wrong;
    outcome.stuck += board->stuck;
    if (problems.empty()) continue;
    one.nranks = group.nranks;
    outcome.problems = "\n  again: " + command_line_of(one) + problems;
    break;
  }
  return outcome;
}

std::string command_line_of(const Storm& storm) {
  return "--seed " + std::to_string(storm.seed) + " --operations " + std::to_string(storm.operations) +
         " --ranks " + std::to_string(storm.nranks) + " --kind " + name_of(storm.kind);
}

bool read_command_line(int argc, char** argv, Storm& storm, std::string& error) {
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const char* const text = i + 1 < argc ? argv[i + 1] : "";
    bool good = true;
    if (name == "--seed") {
      storm.seed = number_of(text, good);
    } else if (name == "--operations") {
      storm.operations = number_of(text, good);
    } else if (name == "--ranks") {
      const std::uint64_t ranks = number_of(text, good);
      good = good && ranks <= kMostRanks;
      storm.nranks = good ? static_cast<int>(ranks) : 0;
    } else if (name == "--kind") {
      good = text == std::string("threads") || text == std::string("processes");
      storm.kind = text == std::string("threads") ? Kind::threads : Kind::processes;
    } else {
      error = name + " is no option: --seed N --operations N --ranks 0..8 --kind threads|processes";
      return false;
    }
    if (!good) {
      error = name + " does not take \"" + text + "\"";
      return false;
    }
  }
  return true;
}

int storm_main(int argc, char** argv) {
  Storm storm;
  std::string error;
  if (!read_command_line(argc, argv, storm, error)) {
    std::printf("%s\n", error.c_str());
    return 2;
  }
  std::printf("%s\n", command_line_of(storm).c_str());
  std::fflush(stdout);  // before the ranks fork
  const StormOutcome outcome = run_storm(storm);
  std::printf("%s\n", outcome.to_string().c_str());
  return outcome.problems.empty() && outcome.operations == storm.operations ? 0 : 1;
}

}  // namespace nearlight::test
