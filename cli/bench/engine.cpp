#include "cli/bench/engine.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <mutex>

#include "cli/bench/failure_watch.hpp"
#include "cli/bench/reference.hpp"

namespace nearlight::bench {

// One contender with one case and variant.
struct Engine::Lane {
  std::vector<Work> works;  // the one that is measured, and that of a second job
  Measured& measured;
  std::unique_ptr<Timer> timer;
  double cpu_us = 0;  // of this rank, all its samples together
};

// Elements of a rank's input and output, and where they begin in its two buffers; in place both lie in the
// second.
struct Engine::Sides {
  std::size_t send_at = 0, send = 0, recv_at = 0, recv = 0;
  bool in_place = false;
};

namespace {

// As many elements for each rank, one at least.
Case fitted(Case what, int nranks) {
  if (!has_part_a_rank(what.collective)) return what;
  const auto ranks = static_cast<std::size_t>(nranks);
  what.count = std::max<std::size_t>(what.count / ranks, 1) * ranks;
  return what;
}

// Inputs of the second job differ from those of the first, so that one's result is not taken for the other's.
constexpr std::uint64_t kJobSeed = 1'000'003;

// With a budget, the first turn finds out what a sample takes.
constexpr std::size_t kPilot = 10;

std::size_t rounds_of(const Plan& plan) {
  return std::clamp<std::size_t>(plan.rounds, 1, std::max<std::size_t>(plan.samples, 1));
}

// What is left of `plan.samples`, spread over the turns that are left.
std::size_t even_share(const Plan& plan, std::size_t taken, std::size_t turns_left) {
  return (plan.samples - std::min(taken, plan.samples) + turns_left - 1) / turns_left;
}

}  // namespace

std::size_t samples_per_turn(const Plan& plan) {
  const std::size_t rounds = rounds_of(plan);
  const std::size_t after_pilot =
      rounds > 1 ? even_share(plan, std::min(kPilot, plan.samples), rounds - 1) : 0;
  return std::max({even_share(plan, 0, rounds), after_pilot, plan.warmup, kPilot});
}

// The same on all ranks: rank 0 looks at its clock and decides.
Result<std::size_t> Engine::next_turn(const Plan& plan, std::size_t taken, std::size_t turns_left,
                                      std::chrono::steady_clock::time_point begin) {
  // Later turns do not make up for what a short first one left: there is room for so many only.
  const std::size_t share = std::min(even_share(plan, taken, turns_left), samples_per_turn(plan));
  if (plan.budget.count() == 0 || plan.samples <= kPilot) return share;
  if (taken == 0) return std::min(share, kPilot);
  using Seconds = std::chrono::duration<double>;
  const double spent = Seconds(std::chrono::steady_clock::now() - begin).count();
  const double left = std::max(0.0, Seconds(plan.budget).count() - spent) / static_cast<double>(turns_left);
  const double affordable = std::max(1.0, left * static_cast<double>(taken) / spent);
  const double mine =
      meeting_.rank() == 0 ? std::floor(std::min(static_cast<double>(share), affordable)) : 0.0;
  NL_TRY_ASSIGN(const double agreed, meeting_.total(mine));
  return static_cast<std::size_t>(agreed);
}

// `common`: for those that bring no memory of their own; null members until the first needs it.
Result<Buffers> Engine::buffers_for(Contender& contender, std::size_t room, Buffers& common) {
  NL_TRY_ASSIGN(const Buffers own, contender.own_buffers(room));
  if (own.send != nullptr) return own;
  if (common.send == nullptr) {
    NL_TRY_ASSIGN(common.send, place_.allocate(room));
    NL_TRY_ASSIGN(common.recv, place_.allocate(room));
  }
  return common;
}

Engine::Sides Engine::sides_of(const Case& what, bool in_place) const {
  const auto ranks = static_cast<std::size_t>(meeting_.nranks());
  const std::size_t part = has_part_a_rank(what.collective) ? what.count / ranks : what.count;
  const std::size_t own = static_cast<std::size_t>(meeting_.rank()) * part;
  const bool is_root = meeting_.rank() == what.root;
  switch (what.collective) {
    case Collective::all_gather:
      return {in_place ? own : 0, part, 0, what.count, in_place};
    case Collective::reduce_scatter:
      return {0, what.count, in_place ? own : 0, part, in_place};
    case Collective::broadcast:
      return {0, is_root ? part : 0, 0, part, in_place};
    case Collective::reduce:
      return {0, part, 0, is_root ? part : 0, in_place};
    default:
      return {0, what.count, 0, what.count, in_place};
  }
}

Status Engine::reserve(std::size_t bytes) {
  if (!beside_.empty() && beside_.size() != contenders_.size())
    return failure(Code::internal_error, "a second job beside some of the contenders only");
  // An element for each rank in any case, see fitted().
  const std::size_t room =
      std::max(bytes, sizeof(double) * static_cast<std::size_t>(meeting_.nranks())) + 2 * kGuardBytes;
  const auto allocate = [&]() -> Status {
    Buffers common, common_beside;
    for (Contender* contender : contenders_) {
      NL_TRY_ASSIGN(Buffers buffers, buffers_for(*contender, room, common));
      buffers_.push_back(buffers);
    }
    for (Contender* contender : beside_) {
      NL_TRY_ASSIGN(Buffers buffers, buffers_for(*contender, room, common_beside));
      beside_buffers_.push_back(buffers);
    }
    return {};
  };
  Status status = allocate();
  if (!status.ok()) {
    meeting_.fail(status);
    return status;
  }
  bytes_ = room - 2 * kGuardBytes;
  image_.resize(room);
  return meeting_.barrier();
}

Result<std::vector<Measured>> Engine::measure(const std::vector<Case>& cases, const Plan& plan,
                                              const Progress& progress) {
  std::once_flag abandoned;
  const auto abandon_once = [&] { std::call_once(abandoned, [this] { abandon(); }); };
  const FailureWatch watch(meeting_, abandon_once);
  std::vector<Measured> out;
  const std::size_t variants = plan.in_place ? 2 : 1;
  out.reserve(cases.size() * variants * contenders_.size());
  std::size_t begun = 0;
  for (const Case& given : cases) {
    const Case what = fitted(given, meeting_.nranks());
    for (std::size_t variant = 0; variant < variants; ++variant) {
      // There is no such thing.
      if (variant == 1 &&
          (what.collective == Collective::all_to_all || what.collective == Collective::send_recv)) {
        ++begun;
        continue;
      }
      const auto report = [&](double part, const std::string& text) {
        if (progress && meeting_.rank() == 0) {
          progress((static_cast<double>(begun) + part) / static_cast<double>(cases.size() * variants), text);
        }
      };
      Status status = measure_case(what, variant == 1, plan, out, report);
      if (!status.ok()) {
        // Whoever failed first has the word; this rank may just have been told to stop for that.
        const Status cause = meeting_.failed_peer();
        meeting_.fail(status);
        abandon_once();
        return cause.ok() ? status : cause;
      }
      ++begun;
    }
  }
  return out;
}

void Engine::abandon() {
  for (Contender* contender : contenders_) contender->abandon();
  for (Contender* contender : beside_) contender->abandon();
}

Status Engine::measure_case(const Case& what, bool in_place, const Plan& plan, std::vector<Measured>& out,
                            const std::function<void(double, const std::string&)>& progress) {
  if (what.bytes() > bytes_) {
    return failure(Code::internal_error, "%zu bytes do not fit into the benchmark's buffers", what.bytes());
  }
  std::vector<Lane> lanes;
  for (std::size_t i = 0; i < contenders_.size(); ++i) {
    Contender& contender = *contenders_[i];
    Measured entry;
    entry.what = what;
    entry.impl = contender.impl();
    entry.in_place = in_place;
    entry.chain = plan.chain;
    entry.checked = plan.check;
    const auto work_of = [&](Contender& who, const Buffers& buffers) {
      const bool one_buffer = in_place || who.in_place_only();
      const Sides sides = sides_of(what, one_buffer);
      const std::size_t element = size_of(what.type);
      const std::size_t part = has_part_a_rank(what.collective)
                                   ? what.count / static_cast<std::size_t>(meeting_.nranks())
                                   : what.count;
      return Work{
          who,
          Operation{(one_buffer ? buffers.recv : buffers.send) + kGuardBytes + sides.send_at * element,
                    buffers.recv + kGuardBytes + sides.recv_at * element, part, what.type,
                    is_reduction(what.collective) ? reduction_of(what.type, what.op, meeting_.rank())
                                                  : Reduction(ReduceOp::sum),
                    what.collective, what.root},
          one_buffer};
    };
    NL_TRY_ASSIGN(entry.choice, contender.choice_of(work_of(contender, buffers_[i]).operation, plan.mode));
    entry.jobs = beside_.empty() ? 1 : 2;
    out.push_back(std::move(entry));
    lanes.push_back({{work_of(contender, buffers_[i])}, out.back(), nullptr, 0});
    if (!beside_.empty()) lanes.back().works.push_back(work_of(*beside_[i], beside_buffers_[i]));
  }
  // `out` has room for all of them: the lanes' references stay good.
  for (Lane& lane : lanes) {
    NL_TRY(prepare_buffers(lane, 1));
    auto timer = place_.prepare(lane.works[0], lane.works.size() > 1 ? &lane.works[1] : nullptr, plan.mode,
                                plan.chain);
    NL_TRY(timer.status().with_context(lane.measured.impl));
    lane.timer = std::move(timer).value();
    if (meeting_.rank() == meeting_.nranks() - 1) lane.timer->set_lateness(plan.late);
  }

  const auto begin = std::chrono::steady_clock::now();
  const std::size_t rounds = rounds_of(plan);
  std::size_t taken = 0;
  for (std::size_t round = 0; round < rounds; ++round) {
    NL_TRY_ASSIGN(const std::size_t samples, next_turn(plan, taken, rounds - round, begin));
    if (samples == 0) break;
    taken += samples;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      char text[96];
      std::snprintf(text, sizeof text, "%zu B %s%s", what.bytes(), lanes[i].measured.impl.c_str(),
                    in_place ? " in place" : "");
      progress(static_cast<double>(round * lanes.size() + i) / static_cast<double>(rounds * lanes.size()),
               text);
      NL_TRY(turn(lanes[i], plan, samples, 2 * round + 2).with_context(lanes[i].measured.impl));
    }
  }
  for (Lane& lane : lanes) {
    NL_TRY_ASSIGN(const double wrong, meeting_.total(static_cast<double>(lane.measured.wrong)));
    lane.measured.wrong = static_cast<std::size_t>(wrong);
    if (!lane.measured.cpu_us) continue;
    double most[1] = {};
    meeting_.mine()[0] = lane.cpu_us / static_cast<double>(lane.measured.samples.size());
    NL_TRY(meeting_.slowest(most));
    lane.measured.cpu_us = most[0];
  }
  return {};
}

Status Engine::turn(Lane& lane, const Plan& plan, std::size_t samples, std::uint64_t seed) {
  if (plan.check) NL_TRY(check_one(lane, seed));
  const bool check_block = plan.check && !lane.works[0].in_place;
  NL_TRY(prepare_buffers(lane, seed + 1));
  if (plan.warmup > 0) NL_TRY(settle(lane, lane.timer->run(meeting_, meeting_.mine().first(plan.warmup))));
  NL_TRY(settle(lane, lane.timer->run(meeting_, meeting_.mine().first(samples))));
  if (const std::optional<double> cpu_us = lane.timer->cpu_us()) {
    lane.cpu_us += *cpu_us * static_cast<double>(samples);
    lane.measured.cpu_us = 0;  // agreed on when all turns are through
  }
  std::vector<double> slowest(samples);
  NL_TRY(meeting_.slowest(slowest));
  for (const double us : slowest) lane.measured.samples.add_us(us);
  std::sort(slowest.begin(), slowest.end());
  lane.measured.turn_p50_us.push_back(trace::nearest_rank(slowest, 50));
  NL_TRY(note_skew(lane));
  // In place the sums of sums have no reference; check_one has looked at that variant.
  return check_block ? check_buffers(lane, seed + 1) : Status();
}

Status Engine::note_skew(Lane& lane) {
  if (meeting_.nranks() == 1) return {};
  const std::span<const std::uint64_t> arrivals_ns = lane.timer->arrivals_ns();
  // Rounded to some nanoseconds where a machine has run for months.
  for (std::size_t i = 0; i < arrivals_ns.size(); ++i) {
    meeting_.mine()[i] = static_cast<double>(arrivals_ns[i]);
  }
  std::vector<double> apart_ns(arrivals_ns.size());
  NL_TRY(meeting_.spread(apart_ns));
  for (const double ns : apart_ns) lane.measured.skew.add_us(ns * 1e-3);
  return {};
}

// The contender's late failure explains more than the call's.
Status Engine::settle(Lane& lane, Status status) {
  const Status late = place_.wait();
  for (const Work& work : lane.works) {
    if (Status failed = work.contender.failed(); !failed.ok()) return failed;
  }
  return status.ok() ? late : status;
}

Status Engine::check_one(Lane& lane, std::uint64_t seed) {
  NL_TRY(prepare_buffers(lane, seed));
  Status called;
  for (std::size_t job = 0; job < lane.works.size() && called.ok(); ++job) {
    const Work& work = lane.works[job];
    called = work.contender.run(work.operation, place_.stream(static_cast<int>(job)));
  }
  NL_TRY(settle(lane, called));
  return check_buffers(lane, seed);
}

Status Engine::prepare_buffers(Lane& lane, std::uint64_t seed) {
  for (std::size_t job = 0; job < lane.works.size(); ++job) {
    NL_TRY(prepare_buffers(lane.measured, lane.works[job], seed + job * kJobSeed));
  }
  for (std::size_t job = 0; job < lane.works.size(); ++job) {
    const Work& work = lane.works[job];
    NL_TRY(work.contender.prepare(work.operation, place_.stream(static_cast<int>(job))));
  }
  // Nobody's operation begins before everybody's buffers are ready: a one-sided implementation could write
  // early.
  return meeting_.barrier();
}

Status Engine::check_buffers(Lane& lane, std::uint64_t seed) {
  for (std::size_t job = 0; job < lane.works.size(); ++job) {
    const Work& work = lane.works[job];
    NL_TRY(work.contender.finish(work.operation, place_.stream(static_cast<int>(job))));
    NL_TRY(check_buffers(lane.measured, work, seed + job * kJobSeed));
  }
  return {};
}

Status Engine::prepare_buffers(const Measured& measured, const Work& work, std::uint64_t seed) {
  const Case& what = measured.what;
  const Sides sides = sides_of(what, work.in_place);
  const std::size_t element = size_of(what.type);
  // const_cast: the engine owns the buffers; the contender must not write to `send`.
  char* const send =
      static_cast<char*>(const_cast<void*>(work.operation.send)) - sides.send_at * element - kGuardBytes;
  char* const recv = static_cast<char*>(work.operation.recv) - sides.recv_at * element - kGuardBytes;
  // In place one buffer holds both, as long as the longer.
  const auto image_of = [&](std::size_t elements) {
    const std::span image = std::span(image_).first(elements * element + 2 * kGuardBytes);
    fill_guard(image);
    fill_poison(image.subspan(kGuardBytes, elements * element));
    return image;
  };
  const auto put_input = [&](std::span<std::byte> image) {
    fill_input(image.subspan(kGuardBytes + sides.send_at * element, sides.send * element), what.type, what.op,
               seed, meeting_.rank());
  };
  if (work.in_place) {
    const std::span image = image_of(std::max(sides.send_at + sides.send, sides.recv_at + sides.recv));
    put_input(image);
    return place_.write(recv, image);
  }
  const std::span input = image_of(sides.send);
  put_input(input);
  NL_TRY(place_.write(send, input));
  return place_.write(recv, image_of(sides.recv));
}

Status Engine::check_buffers(Measured& measured, const Work& work, std::uint64_t seed) {
  const Case& what = measured.what;
  const Sides sides = sides_of(what, work.in_place);
  const std::size_t element = size_of(what.type);
  const auto note = [&](std::size_t wrong, const std::string& text) {
    if (wrong > 0 && measured.first_wrong.empty()) {
      measured.first_wrong = "rank " + std::to_string(meeting_.rank()) + ": " + text;
    }
    measured.wrong += wrong;
  };
  // A buffer of so many elements, with its guards looked at.
  const auto fetch = [&](const void* at, std::size_t first, std::size_t elements,
                         const char* name) -> Result<std::span<const std::byte>> {
    const std::span image = std::span(image_).first(elements * element + 2 * kGuardBytes);
    NL_TRY(place_.read(image, static_cast<const char*>(at) - first * element - kGuardBytes));
    note(changed_guard_bytes(image.first(kGuardBytes)),
         std::string("bytes before the ") + name + " were changed");
    note(changed_guard_bytes(image.last(kGuardBytes)),
         std::string("bytes behind the ") + name + " were changed");
    return std::span<const std::byte>(image.subspan(kGuardBytes, elements * element));
  };

  const std::size_t longest = std::max(sides.send_at + sides.send, sides.recv_at + sides.recv);
  NL_TRY_ASSIGN(const auto output,
                fetch(work.operation.recv, sides.recv_at, work.in_place ? longest : sides.recv, "output"));
  const Part part{what.collective, meeting_.rank(), meeting_.nranks(), what.root, work.operation.count};
  const Verdict verdict = compare(output.subspan(sides.recv_at * element, sides.recv * element), what.type,
                                  what.op, seed, part, work.contender.roundings());
  note(verdict.wrong, verdict.first);
  if (!work.in_place) {
    NL_TRY_ASSIGN(const auto input, fetch(work.operation.send, 0, sides.send, "input"));
    const Verdict unchanged = compare_input(input, what.type, what.op, seed, meeting_.rank());
    note(unchanged.wrong, unchanged.first);
  }
  return {};
}

}  // namespace nearlight::bench
