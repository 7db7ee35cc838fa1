#include "runtime/health.hpp"

#include <atomic>

namespace nearlight::runtime {

namespace {

template <class T>
void put(T& word, T value) {
  std::atomic_ref(word).store(value, std::memory_order_relaxed);
}
template <class T>
T get(T& word) {
  return std::atomic_ref(word).load(std::memory_order_relaxed);
}

}  // namespace

HealthBoard::HealthBoard(const memory::HeapView& view, std::size_t offset) : view_(view), offset_(offset) {}

HealthWords* HealthBoard::words_of(int rank) const {
  if (view_.base == nullptr || rank < 0 || rank >= view_.nranks) return nullptr;
  return reinterpret_cast<HealthWords*>(view_.part(rank) + offset_);
}

std::uint64_t* HealthBoard::call_word() const {
  HealthWords* const mine = words_of(view_.rank);
  return mine == nullptr ? nullptr : &mine->call;
}

void HealthBoard::set(Health state) const {
  HealthWords* const mine = words_of(view_.rank);
  if (mine != nullptr) put(mine->state, static_cast<std::uint32_t>(state));
}

void HealthBoard::set_epoch(std::uint32_t epoch) const {
  HealthWords* const mine = words_of(view_.rank);
  if (mine != nullptr) put(mine->epoch, epoch);
}

void HealthBoard::fail(Code cause, int peer) const {
  HealthWords* const mine = words_of(view_.rank);
  if (mine == nullptr) return;
  put(mine->cause, static_cast<std::uint32_t>(cause));
  put(mine->peer, static_cast<std::int32_t>(peer));
  put(mine->state, static_cast<std::uint32_t>(Health::failed));
}

std::string HealthBoard::of(int peer) const {
  HealthWords* const words = words_of(peer);
  if (words == nullptr) return "";
  const std::uint64_t call = get(words->call);
  const std::string number = std::to_string(call >> 8);
  const std::string name = std::string(" (") + name_of(static_cast<Collective>(call >> 1 & 0x7f)) + ")";
  const std::string calls = call >> 8 == 0    ? "has made no call"
                            : (call & 1) != 0 ? "is in its call " + number + name
                                              : "has made its call " + number + name + ", and none since";
  const std::uint32_t epoch = get(words->epoch);
  const std::string epochs = epoch == 0 ? "" : ", epoch " + std::to_string(epoch);
  switch (static_cast<Health>(get(words->state))) {
    case Health::well:
      return calls + epochs;
    case Health::failed: {
      const std::int32_t missed = get(words->peer);
      return std::string("has failed (") + code_name(static_cast<Code>(get(words->cause))) +
             (missed >= 0 ? ": it missed rank " + std::to_string(missed) : "") + "); it " + calls + epochs;
    }
    case Health::resetting:
      return "is in a reset; it " + calls + epochs;
    case Health::left:
      return "has ended its communicator; it " + calls + epochs;
    case Health::unknown:
      break;
  }
  return "";
}

std::string HealthBoard::first_of(int peer) const {
  const std::lock_guard lock(mutex_);
  if (!told_) first_ = of(peer);
  told_ = true;
  return first_;
}

void HealthBoard::forget() const {
  const std::lock_guard lock(mutex_);
  told_ = false;
}

Status with_health(Status status, int peer, const HealthBoard& health) {
  if (status.code() != Code::timeout || peer < 0) return status;
  const std::string words = health.first_of(peer);
  if (words.empty()) return status;
  return Status(status.code(), status.text() + "; rank " + std::to_string(peer) + " " + words);
}

}  // namespace nearlight::runtime
