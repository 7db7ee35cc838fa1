#include "dropin/creation.hpp"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/variables.hpp"
#include "dropin/ending.hpp"
#include "dropin/group.hpp"
#include "dropin/last_error.hpp"
#include "dropin/real_nccl.hpp"
#include "dropin/takes.hpp"
#include "dropin/tally.hpp"
#include "memory/nccl_environment.hpp"

namespace nearlight::dropin {

namespace {

// The others have not been taken on two GPUs yet.
constexpr const char* kTakesByDefault = "all_reduce";
// As many ranks as nearlight has.
constexpr int kMostRanks = 8;

Result<Attached> attach_guarded(ncclComm* comm, const Wish& wish) {
  try {
    return attach(comm, wish, Deadline::after_ms(attach_limit_ms()));
  } catch (const std::exception& error) {
    return failure(Code::system_error, "%s", error.what());
  }
}

// Where nobody needs to be asked: the number of ranks is the same on all of them. Null otherwise.
const char* decided_by_ranks(const RealNccl& nccl, ncclComm* comm) {
  int nranks = 0;
  if (nccl.ncclCommCount == nullptr || nccl.ncclCommCount(comm, &nranks) != ncclSuccess)
    return "the communicator does not tell its ranks";
  if (nranks == 1) return "one rank has nobody to talk to";
  if (nranks > kMostRanks) return "nearlight has 8 ranks at most";
  return nullptr;
}

// What has come of it: the entry's last step.
void settle(Entry& entry, Result<Attached> outcome) {
  // Nobody else finds it: freed at the end of this function, without the locks, in a thread that nobody waits
  // for.
  std::unique_ptr<Companion> too_late;
  State state = State::alone;
  const std::lock_guard no_call(entry.busy);
  const std::lock_guard lock(entry.guard);
  if (entry.cancelled) {
    // Who ended it has told the reason. What has been made nevertheless goes with the communicator, or here
    // where that has gone: the entry is the next communicator's soon.
    if (outcome.ok()) {
      auto& place = entry.comm.load(std::memory_order_acquire) == nullptr ? too_late : entry.companion;
      place = std::move(outcome->companion);
      if (too_late != nullptr) too_late->communicator_is_gone();
    }
  } else if (!outcome.ok()) {
    state = State::broken;
    entry.broken = outcome.status();
    note("communicator", {false, for_ever(("broken: " + outcome.status().text()).c_str())});
  } else if (outcome->companion == nullptr) {
    const char* const reason = for_ever(outcome->reason.c_str());
    entry.reason.store(reason, std::memory_order_relaxed);
    note("communicator", {false, reason});
  } else {
    entry.companion = std::move(outcome->companion);
    state = State::attached;
    note("communicator", {true, for_ever(outcome->reason.c_str())});
  }
  entry.state.store(state, std::memory_order_release);  // pairs with the loads in intercept.cpp
  entry.no_longer.notify_all();
}

Entry& entry_for(ncclComm* comm, const Wish& wish, bool blocking) {
  Entry& entry = add_entry(comm, "");
  entry.limits = wish.limits;
  entry.blocking = blocking;
  return entry;
}

// Attaches, and returns how it failed where it did.
Status attach_entry(const RealNccl& nccl, Entry& entry, ncclComm* comm, const Wish& wish) {
  const char* const decided = decided_by_ranks(nccl, comm);
  Result<Attached> outcome =
      decided != nullptr ? Result<Attached>(Attached{nullptr, decided}) : attach_guarded(comm, wish);
  Status status = outcome.status();
  settle(entry, std::move(outcome));
  return status;
}

// Until NCCL has made the communicator, for as long as the program has not ended it.
ncclResult_t wait_for_nccl(const RealNccl& nccl, Entry& entry, ncclComm* comm) {
  for (;;) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl.ncclCommGetAsyncError(comm, &state);
    if (asked != ncclSuccess) return asked;
    if (state != ncclInProgress) return state;
    std::unique_lock lock(entry.guard);
    // How often a program may ask, too.
    if (entry.no_longer.wait_for(lock, std::chrono::microseconds(200), [&] { return entry.cancelled; }))
      return ncclInProgress;
  }
}

void attach_behind(const RealNccl& nccl, ncclComm* comm, const Wish& wish) {
  const Hold entry(entry_for(comm, wish, false));
  entry->state.store(State::attaching, std::memory_order_release);
  const auto work = [&nccl, entry, comm, wish] {
    const ncclResult_t made = wait_for_nccl(nccl, *entry, comm);
    if (made == ncclSuccess) {
      static_cast<void>(attach_entry(nccl, *entry, comm, wish));  // the entry keeps the failure
    } else {
      settle(*entry, Attached{nullptr, "NCCL did not make the communicator"});
    }
  };
  try {
    std::thread(work).detach();
  } catch (const std::system_error& error) {
    // The other ranks wait for this one, which does not come.
    settle(*entry, system_failure("starting a thread", error.code().value()));
  }
}

// Every communicator at the same time: one waits for the others' ranks, which may be of this thread.
ncclResult_t attach_here(const RealNccl& nccl, std::span<const NewCommunicator> made) {
  std::vector<Status> outcomes(made.size());
  std::vector<std::thread> threads;
  const auto one = [&](std::size_t i) {
    ncclComm* const comm = *made[i].place;
    outcomes[i] =
        attach_entry(nccl, entry_for(comm, made[i].wish, made[i].wish.blocking), comm, made[i].wish);
  };
  for (std::size_t i = 1; i < made.size(); ++i) {
    try {
      threads.emplace_back(one, i);
    } catch (const std::system_error& error) {
      outcomes[i] = system_failure("starting a thread", error.code().value());
      settle(entry_for(*made[i].place, made[i].wish, made[i].wish.blocking), outcomes[i]);
    }
  }
  one(0);
  for (std::thread& thread : threads) thread.join();
  for (const Status& outcome : outcomes) {
    if (outcome.ok()) continue;
    // NCCL gives none of them when one has failed.
    for (const NewCommunicator& communicator : made) {
      static_cast<void>(abort_communicator(nccl, *communicator.place));
      *communicator.place = nullptr;
    }
    return failed(outcome.with_context("making the companion of a communicator"));
  }
  return ncclSuccess;
}

// Why a configuration leaves nearlight no room; null: it does. Fields that a shorter structure lacks are
// those that its program does not know.
const char* limits_of(const ncclConfig_t& config) {
  const auto has = [&config](std::size_t offset) { return config.size >= offset + sizeof(int); };
  if (has(offsetof(ncclConfig_t, CTAPolicy)) && config.CTAPolicy != NCCL_CONFIG_UNDEF_INT &&
      config.CTAPolicy != NCCL_CTA_POLICY_DEFAULT)
    return "the communicator's configuration wants few CTAs (CTAPolicy)";
  if (has(offsetof(ncclConfig_t, maxCTAs)) && config.maxCTAs != NCCL_CONFIG_UNDEF_INT)
    return "the communicator's configuration limits the CTAs (maxCTAs)";
  return nullptr;
}

}  // namespace

Wish wish_of(const ncclConfig_t* config, ncclComm* parent) {
  Wish wish;
  if (config != nullptr) {
    wish.limits = limits_of(*config);
    wish.blocking = config->size < offsetof(ncclConfig_t, blocking) + sizeof(int) || config->blocking != 0;
  } else if (const Hold from = hold_entry(parent)) {
    wish.limits = from->limits;
    wish.blocking = from->blocking;
  }
  const auto wanted = variables::read(variables::kDropIn);
  if (!wanted.ok()) {
    log::warn(wanted.status().text());
    wish.refusal = "NEARLIGHT_DROPIN has no value that it takes";
    return wish;
  }
  if (!wanted.value()) wish.refusal = "NEARLIGHT_DROPIN is 0";
  if (const Status apart = memory::check_gpus_are_not_kept_apart(); !apart.ok())
    wish.refusal = for_ever(apart.text().c_str());
  const auto takes = parse_takes(variables::read(variables::kDropInTakes).value_or(kTakesByDefault));
  if (takes.ok()) {
    wish.takes = takes.value();
  } else {
    log::warn(takes.status().text());
    wish.refusal = "NEARLIGHT_DROPIN_TAKES has no value that it takes";
  }
  if (wish.limits != nullptr) wish.refusal = wish.limits;
  return wish;
}

ncclResult_t after_creation(ncclResult_t result, std::span<const NewCommunicator> made) {
  if (result != ncclSuccess && result != ncclInProgress) return forwarded(result);
  if (in_group()) {
    for (const NewCommunicator& communicator : made) keep_for_end(communicator);
    return result;
  }
  return attach_now(result, made);
}

ncclResult_t attach_now(ncclResult_t result, std::span<const NewCommunicator> made) {
  const RealNccl* const nccl = real_nccl();
  std::vector<NewCommunicator> there;  // a split gives none to who has no colour
  for (const NewCommunicator& communicator : made) {
    if (communicator.place != nullptr && *communicator.place != nullptr) there.push_back(communicator);
  }
  if (there.empty() || nccl == nullptr || nccl->ncclCommGetAsyncError == nullptr) return result;
  if (const std::string copies = report_copies(); !copies.empty())
    note("process", {false, for_ever(copies.c_str())});
  if (result == ncclSuccess) return attach_here(*nccl, there);
  for (const NewCommunicator& communicator : there)
    attach_behind(*nccl, *communicator.place, communicator.wish);
  return result;
}

bool wait_until_settled(Entry& entry) {
  std::unique_lock lock(entry.guard);
  return entry.no_longer.wait_for(lock, std::chrono::milliseconds(2 * attach_limit_ms()),
                                  [&] { return !in_progress(entry.state.load()) && entry.endings == 0; });
}

}  // namespace nearlight::dropin
