#include "api/handles.hpp"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "api/operators.hpp"
#include "base/deadline.hpp"

namespace nearlight::api {

// A handle is (life << 16 | index + 1). `life` counts the uses of a slot: odd while a communicator is in it.
struct alignas(64) Slot {
  // life * 2, plus 1 while a collective call runs. One word, so that "still this communicator, and nobody
  // else in a call" is one compare-and-exchange.
  std::atomic<std::uint64_t> word{0};
  std::atomic<std::uint32_t> visitors{0};
  // Constant while the life is odd.
  std::unique_ptr<runtime::Communicator> communicator;
  int rank = -1;
};

namespace {

constexpr std::size_t kChunk = 256;
constexpr std::size_t kMostSlots = 65'535;

// Slots are made when they are first needed and never go: a dead handle still finds its slot.
constinit std::array<std::atomic<Slot*>, 256> chunks{};

struct Book {
  std::mutex mutex;  // guards the two below
  std::size_t used = 0;
  std::vector<std::size_t> free;
  Book* of_parent = nullptr;  // the parent process's, after a fork
};

// Never destroyed: communicators may be ended by destructors of other static objects.
Book*& the_book() {
  static Book* one = new Book;
  return one;
}
Book& book() { return *the_book(); }

struct Parts {
  std::uint64_t life;
  std::size_t index;
};

Parts parts_of(nearlightComm_t handle) {
  const auto bits = reinterpret_cast<std::uintptr_t>(handle);
  return {static_cast<std::uint64_t>(bits >> 16), static_cast<std::size_t>(bits & 0xffff) - 1};
}

Slot* slot_at(std::size_t index) {
  if (index >= kMostSlots) return nullptr;
  // Pairs with the release store of add_handle.
  Slot* const chunk = chunks[index / kChunk].load(std::memory_order_acquire);
  return chunk == nullptr ? nullptr : &chunk[index % kChunk];
}

// The slot of a handle that may be live.
Slot* slot_of(nearlightComm_t handle) {
  const Parts parts = parts_of(handle);
  return parts.life % 2 == 1 ? slot_at(parts.index) : nullptr;
}

Status not_live(nearlightComm_t handle) {
  if (handle == nullptr) return failure(Code::invalid_argument, "comm is NULL");
  return failure(Code::invalid_argument, "comm (%p) is no live communicator: destroyed, or never one%s",
                 static_cast<void*>(handle),
                 book().of_parent != nullptr ? ", or of the process that this one was forked from" : "");
}

bool is_live(const Slot* slot, nearlightComm_t handle) {
  return slot != nullptr && slot->word.load() / 2 == parts_of(handle).life;
}

// In the child of a fork. The parent goes on being the rank; its threads that watch the peers have not come
// along, nor have those that may have held a lock or been in a call. So every handle is dead here, and what
// it stood for is neither ended nor touched: its end would wait for such a thread, and tell the peers that
// the rank has left.
void forget_those_of_parent() {
  for (const auto& chunk : chunks) {
    Slot* const slots = chunk.load(std::memory_order_relaxed);
    for (std::size_t i = 0; slots != nullptr && i < kChunk; ++i) {
      const std::uint64_t life = slots[i].word.load(std::memory_order_relaxed) / 2;
      slots[i].word.store((life + life % 2) * 2, std::memory_order_relaxed);
      slots[i].visitors.store(0, std::memory_order_relaxed);
    }
  }
  auto* const fresh = new Book;
  fresh->used = book().used;
  fresh->of_parent = the_book();
  the_book() = fresh;
  forget_operators_of_parent();
}

}  // namespace

Result<nearlightComm_t> add_handle(std::unique_ptr<runtime::Communicator> communicator) {
  static const int registered = ::pthread_atfork(nullptr, nullptr, forget_those_of_parent);
  if (registered != 0) return system_failure("pthread_atfork", registered);
  Book& all = book();
  const std::lock_guard lock(all.mutex);
  std::size_t index = all.used;
  if (!all.free.empty()) {
    index = all.free.back();
  } else if (index >= kMostSlots) {
    return failure(Code::system_error, "%zu communicators are live, which is the most", index);
  }
  auto& chunk = chunks[index / kChunk];
  if (chunk.load(std::memory_order_relaxed) == nullptr) {
    chunk.store(new Slot[kChunk], std::memory_order_release);
  }
  Slot& slot = *slot_at(index);
  // So that giving the slot back later needs no memory.
  all.free.reserve(all.used + 1);
  if (index == all.used) {
    ++all.used;
  } else {
    all.free.pop_back();
  }
  slot.rank = communicator->rank();
  slot.communicator = std::move(communicator);
  const std::uint64_t life = slot.word.load(std::memory_order_relaxed) / 2 + 1;
  slot.word.store(life * 2);
  return reinterpret_cast<nearlightComm_t>(static_cast<std::uintptr_t>(life << 16 | (index + 1)));
}

Result<std::unique_ptr<runtime::Communicator>> remove_handle(nearlightComm_t handle) {
  Slot* const slot = slot_of(handle);
  if (slot == nullptr) return not_live(handle);
  const Parts parts = parts_of(handle);
  std::uint64_t word = parts.life * 2;
  // From here on nobody comes in. All of these are sequentially consistent: a visitor either is counted
  // before this store, or sees it.
  if (!slot->word.compare_exchange_strong(word, (parts.life + 1) * 2)) {
    if (word / 2 != parts.life) return not_live(handle);
    return failure(Code::invalid_usage, "comm (%p): another thread is in a collective call; abort ends it",
                   static_cast<void*>(handle));
  }
  // Visitors never wait; the limit is there so that this does not either.
  for (const Deadline deadline = Deadline::after_ms(60'000); slot->visitors.load() != 0;) {
    if (deadline.passed()) {
      return failure(Code::internal_error, "comm (%p): a query did not end; its memory is not given back",
                     static_cast<void*>(handle));
    }
    std::this_thread::yield();
  }
  auto communicator = std::move(slot->communicator);
  const std::lock_guard lock(book().mutex);
  book().free.push_back(parts.index);
  return communicator;
}

Call::Call(nearlightComm_t handle) : handle_(handle) {
  Slot* const slot = slot_of(handle);
  if (slot == nullptr) return;
  std::uint64_t word = parts_of(handle).life * 2;
  // Acquire: what the last caller and add_handle wrote. The release is in the destructor.
  if (!slot->word.compare_exchange_strong(word, word + 1, std::memory_order_acquire,
                                          std::memory_order_acquire)) {
    return;
  }
  slot_ = slot;
  communicator_ = slot->communicator.get();
  rank_ = slot->rank;
}

Call::~Call() {
  if (slot_ != nullptr) slot_->word.store(parts_of(handle_).life * 2, std::memory_order_release);
}

Status Call::status() const {
  if (slot_ != nullptr) return {};
  if (!is_live(slot_of(handle_), handle_)) return not_live(handle_);
  return failure(Code::invalid_usage, "comm (%p): another thread is in a collective call",
                 static_cast<void*>(handle_));
}

Visit::Visit(nearlightComm_t handle) : handle_(handle) {
  Slot* const slot = slot_of(handle);
  if (slot == nullptr) return;
  slot->visitors.fetch_add(1);
  if (!is_live(slot, handle)) {
    slot->visitors.fetch_sub(1);
    return;
  }
  slot_ = slot;
  communicator_ = slot->communicator.get();
}

Visit::~Visit() {
  if (slot_ != nullptr) slot_->visitors.fetch_sub(1);
}

Status Visit::status() const { return slot_ != nullptr ? Status() : not_live(handle_); }

}  // namespace nearlight::api
