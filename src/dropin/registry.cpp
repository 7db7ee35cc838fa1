#include "dropin/registry.hpp"

#include <cassert>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace nearlight::dropin {

namespace {

struct Book {
  std::shared_mutex mutex;
  std::unordered_map<ncclComm*, Entry*> entries;
  std::vector<Entry*> unused;
};

// Never destroyed: programs that end without destroying their communicators have threads that still look.
Book& book() {
  static Book& one = *new Book;
  return one;
}

constinit thread_local Entry* last_found = nullptr;

// With the book locked.
void use_again(Entry& entry) {
  if (entry.holders > 0 || !entry.taken_out) return;
  // Who ends a communicator, or comes too late with its companion, has taken that out. A fault there must not
  // give the next communicator the companion of this one: the entry is left alone then.
  assert(entry.companion == nullptr);
  if (entry.companion != nullptr) return;
  entry.taken_out = false;
  book().unused.push_back(&entry);
}

}  // namespace

Entry* find_entry(ncclComm* comm) {
  // An entry that was taken out, or used again, has another communicator.
  if (last_found != nullptr && last_found->comm.load(std::memory_order_acquire) == comm && comm != nullptr)
    return last_found;
  const std::shared_lock lock(book().mutex);
  const auto found = book().entries.find(comm);
  if (found == book().entries.end()) return nullptr;
  last_found = found->second;
  return last_found;
}

Hold::Hold(Entry& entry) : entry_(&entry) {
  const std::unique_lock lock(book().mutex);
  ++entry_->holders;
}

Hold::Hold(const Hold& other) : entry_(other.entry_) {
  if (entry_ == nullptr) return;
  const std::unique_lock lock(book().mutex);
  ++entry_->holders;
}

Hold::~Hold() {
  if (entry_ == nullptr) return;
  const std::unique_lock lock(book().mutex);
  --entry_->holders;
  use_again(*entry_);
}

Hold hold_entry(ncclComm* comm) {
  const std::unique_lock lock(book().mutex);
  const auto found = book().entries.find(comm);
  if (found == book().entries.end()) return {};
  ++found->second->holders;
  return {*found->second, std::adopt_lock};
}

Entry& add_entry(ncclComm* comm, const char* reason) {
  const std::unique_lock lock(book().mutex);
  Entry* entry = nullptr;
  if (!book().unused.empty()) {
    entry = book().unused.back();
    book().unused.pop_back();
  } else {
    entry = new Entry;
  }
  {
    const std::lock_guard guard(entry->guard);  // a thread that found it before may look
    entry->reason.store(reason, std::memory_order_relaxed);
    entry->state.store(State::alone, std::memory_order_relaxed);
    entry->limits = nullptr;
    entry->blocking = true;
    entry->broken = Status();
    entry->cancelled = entry->aborted = entry->destroyed = false;
    entry->comm.store(comm, std::memory_order_release);  // pairs with the load in find_entry()
  }
  // NCCL gives an address again once a communicator is gone; one that went past the drop-in is forgotten so.
  Entry*& place = book().entries[comm];
  if (place != nullptr) place->comm.store(nullptr, std::memory_order_release);
  place = entry;
  return *entry;
}

void take_out(const Hold& entry) {
  const std::unique_lock lock(book().mutex);
  ncclComm* const comm = entry->comm.exchange(nullptr, std::memory_order_acq_rel);
  if (comm == nullptr) return;
  book().entries.erase(comm);
  entry->taken_out = true;
}

}  // namespace nearlight::dropin
