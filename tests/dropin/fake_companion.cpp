// Companions for the stand-in for NCCL: they take small all-reduces of floats, and tell its log what they do.
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "dropin/companion.hpp"
#include "dropin/real_nccl.hpp"
#include "tests/dropin/fake_nccl.hpp"

namespace nearlight::dropin {

namespace {

template <class F>
F* fake(F*, const char* name) {
  return reinterpret_cast<F*>(::dlsym(real_nccl()->library, name));
}
#define FAKE(name) fake(&::name, #name)

std::mutex tails_mutex;
std::set<void*> tails;

void tell(const std::string& line) { FAKE(fakeNcclLog)(line.c_str()); }

class FakeCompanion final : public Companion {
 public:
  FakeCompanion(ncclComm* comm, int rank) : comm_(comm), rank_(rank) {
    taken_ = FAKE(fakeNcclTaken);
    failure_ = FAKE(fakeNcclCompanionFailure);
    held_ = FAKE(fakeNcclHeld);
    pass_ = FAKE(fakeNcclPass);
  }
  ~FakeCompanion() override { tell("free" + rank()); }

  Verdict decide(const Operation& operation) const override {
    if (operation.is_message() && operation.type == ncclFloat32) return {true, "messages of floats"};
    if (operation.function != Function::all_reduce) return {false, "nearlight does not take this function"};
    if (operation.op >= ncclNumOps) return {false, "an operator that the program has made"};
    if (operation.type != ncclFloat32) return {false, "the test takes floats alone"};
    if (operation.bytes() > 64 << 10) return {false, "the test takes no large messages"};
    return {true, "small floats"};
  }
  Status run(const Operation& operation) override {
    if (operation.is_message()) return run_together({&operation, 1});
    NL_TRY(status());
    NL_TRY(before_other(operation.stream));
    last_ = operation.stream;
    taken_(operation.send, operation.recv, operation.count, static_cast<ncclDataType_t>(operation.type),
           static_cast<ncclRedOp_t>(operation.op), comm_, operation.stream);
    const std::lock_guard lock(tails_mutex);
    tails.insert(operation.stream);
    return {};
  }
  Status run_together(std::span<const Operation> messages) override {
    NL_TRY(status());
    NL_TRY(before_other(messages.front().stream));
    last_ = messages.front().stream;
    std::string line = "nearlight messages" + rank();
    for (const Operation& message : messages) {
      line += message.function == Function::send ? " to " : " from ";
      line += std::to_string(message.root);
    }
    tell(line);
    const std::lock_guard lock(tails_mutex);
    tails.insert(messages.front().stream);
    return {};
  }
  // Tells where a wait for another stream stands.
  Status before_other(void* stream) override {
    if (last_ != nullptr && last_ != stream)
      tell("wait" + rank() + " s" + std::to_string(reinterpret_cast<std::uintptr_t>(stream)) + " for s" +
           std::to_string(reinterpret_cast<std::uintptr_t>(last_)));
    return {};
  }
  Status after_other(void* stream) override {
    last_ = stream;
    return {};
  }
  Status join(std::span<void* const> streams) override {
    std::string line = "join" + rank();
    for (const void* stream : streams)
      line += " s" + std::to_string(reinterpret_cast<std::uintptr_t>(stream));
    tell(line);
    return {};
  }
  Status status() const override {
    pass_(fakeNcclCompanionIsAsked);
    const int code = failure_();
    return code == 0 ? Status() : failure(static_cast<Code>(code), "the test let the companion fail");
  }
  void abort() override { tell("stop" + rank()); }
  Status drain(Deadline deadline) override {
    while (held_() != 0) {
      if (deadline.passed()) return failure(Code::timeout, "the test lets it not end");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    tell("drain" + rank());
    return {};
  }
  void communicator_is_gone() override { tell("gone" + rank()); }

 private:
  std::string rank() const { return " r" + std::to_string(rank_); }

  ncclComm* comm_;
  int rank_;
  void* last_ = nullptr;  // the stream of the operation before
  decltype(&::fakeNcclTaken) taken_;
  decltype(&::fakeNcclCompanionFailure) failure_;
  decltype(&::fakeNcclHeld) held_;
  decltype(&::fakeNcclPass) pass_;
};

bool attach_is_stuck() {
  const char* const how = std::getenv("FAKE_ATTACH");
  return how != nullptr && std::strcmp(how, "stuck") == 0;
}

}  // namespace

std::int64_t attach_limit_ms() { return attach_is_stuck() ? 100 : 60'000; }

// FAKE_ATTACH: "refused" by all alike, "broken" where the ranks do not meet, "slow", "stuck" beyond its limit
// where the test holds it.
Result<Attached> attach(ncclComm* comm, const Wish& wish, Deadline) {
  const char* const how = std::getenv("FAKE_ATTACH");
  std::uint64_t refusals[8] = {};
  const auto mine = reinterpret_cast<std::uint64_t>(wish.refusal);
  if (FAKE(fakeNcclMeet)(comm, mine, refusals) == 0) return failure(Code::timeout, "the ranks did not come");
  for (const std::uint64_t refusal : refusals) {
    if (refusal != 0) return Attached{nullptr, reinterpret_cast<const char*>(refusal)};
  }
  if (how != nullptr && std::strcmp(how, "refused") == 0)
    return Attached{nullptr, "peer access is not supported between devices 0 and 1"};
  if (how != nullptr && std::strcmp(how, "broken") == 0)
    return failure(Code::timeout, "rank 1 did not come in time");
  if (how != nullptr && std::strcmp(how, "slow") == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const int rank = FAKE(fakeNcclRank)(comm);
  if (attach_is_stuck()) FAKE(fakeNcclPass)(fakeNcclAttaches);
  return Attached{std::make_unique<FakeCompanion>(comm, rank), "attached by the test"};
}

Status before_nccl(ncclComm*, void* stream) {
  const std::lock_guard lock(tails_mutex);
  if (tails.erase(stream) != 0)
    tell("full stop s" + std::to_string(reinterpret_cast<std::uintptr_t>(stream)));
  return {};
}

}  // namespace nearlight::dropin
