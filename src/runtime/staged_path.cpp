#include "runtime/staged_path.hpp"

#include <system_error>
#include <utility>

#include <nearlight/detail/exec/host_space.hpp>
#include "base/collective.hpp"
#include "base/fault_point.hpp"

namespace nearlight::runtime {

namespace {

// A look costs little, but the thread has a processor only as long as calls come: it goes on looking for a
// moment, then takes naps, then longer ones.
void rest_after(std::uint32_t idle_looks) {
  constexpr std::uint32_t kBusy = 1000, kNaps = 20'000;
  if (idle_looks < kBusy) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(idle_looks < kNaps ? 20 : 1000));
  }
}

void set(std::uint32_t& word, std::uint32_t value) {
  std::atomic_ref(word).store(value, std::memory_order_relaxed);
}
std::uint32_t get(std::uint32_t& word) { return std::atomic_ref(word).load(std::memory_order_relaxed); }

}  // namespace

StagedPath::StagedPath(std::unique_ptr<Communicator> host, HostTurnWords* turn, char* staging,
                       std::size_t bytes)
    : host_(std::move(host)), turn_(turn), staging_(staging), bytes_(bytes), served_(get(turn->asked)) {}

StagedPath::~StagedPath() {
  stop();
  ending_.store(true, std::memory_order_relaxed);
  if (thread_.joinable()) thread_.join();
}

Status StagedPath::start() {
  const std::lock_guard lock(starting_);
  if (thread_.joinable()) return {};
  NL_TRY(fault_points::pass(fault_points::kStagedThread));
  try {
    thread_ = std::thread([this] { serve(); });
  } catch (const std::system_error& error) {
    return system_failure("starting the thread that makes the CPU's calls", error.code().value());
  }
  return {};
}

void StagedPath::serve() {
  for (std::uint32_t idle = 0; !ending_.load(std::memory_order_relaxed);) {
    bool did = false;
    {
      const std::lock_guard lock(calling_);
      did = algorithm::serve_host_turn<exec::HostSpace>(*turn_, served_, [this](const auto& request) {
        Status outcome = run(request);
        if (outcome.ok()) return true;
        {
          const std::lock_guard note(mutex_);
          if (failure_.ok()) failure_ = std::move(outcome);
        }
        set(turn_->stopped, 1);
        return false;
      });
    }
    idle = did ? 0 : idle + (idle < ~std::uint32_t{0} ? 1 : 0);
    if (!did) rest_after(idle);
  }
}

Status StagedPath::run(const algorithm::HostRequest& request) {
  if (request.collective == static_cast<std::uint32_t>(Collective::barrier)) return host_->barrier(nullptr);
  const auto type = static_cast<DataType>(request.type);
  const auto op = static_cast<ReduceOp>(request.op);
  Reduction reduction = op;
  if (op == ReduceOp::premul_sum) reduction.factor = Reduction::Factor{type, request.factor};
  return host_->all_reduce(staging_, staging_, request.count, type, reduction, nullptr);
}

Status StagedPath::status() const {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return failure_;
  }
  if (get(turn_->gave_up) == 0) return {};
  return failure(Code::timeout, "rank %d: its CPU has not made a call in time that its GPU had asked for",
                 host_->rank());
}

std::optional<Fault> StagedPath::fault() const {
  Status known = status();
  if (known.ok()) return std::nullopt;
  if (auto of_host = host_->fault(); of_host) return of_host;
  Fault fault;
  fault.status = std::move(known);
  fault.rank = host_->rank();
  return fault;
}

void StagedPath::stop() {
  set(turn_->stopped, 1);
  host_->abort();
}

Status StagedPath::rest(Deadline deadline) {
  std::unique_lock lock(calling_, std::try_to_lock);
  while (!lock.owns_lock() && !deadline.passed()) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    (void)lock.try_lock();
  }
  if (!lock.owns_lock()) {
    return failure(Code::timeout, "a call that the CPU of rank %d makes has not ended in time",
                   host_->rank());
  }
  // What was asked for before is not to be found once the CPU ranks are well again.
  algorithm::forget_host_turns<exec::HostSpace>(*turn_, served_);
  return host_->reset(deadline.left_or_1_ms());
}

void StagedPath::clear() {
  const std::lock_guard lock(calling_);
  algorithm::forget_host_turns<exec::HostSpace>(*turn_, served_);
  set(turn_->answered, served_);
  set(turn_->gave_up, 0);
  {
    const std::lock_guard note(mutex_);
    failure_ = {};
  }
  set(turn_->stopped, 0);
}

}  // namespace nearlight::runtime
