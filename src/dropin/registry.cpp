#include "dropin/registry.hpp"

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

Entry& add_entry(ncclComm* comm, const char* reason) {
  const std::unique_lock lock(book().mutex);
  Entry* entry = nullptr;
  if (!book().unused.empty()) {
    entry = book().unused.back();
    book().unused.pop_back();
  } else {
    entry = new Entry;
  }
  entry->reason.store(reason, std::memory_order_relaxed);
  entry->state.store(State::alone, std::memory_order_relaxed);
  entry->limits = nullptr;
  entry->blocking = true;
  entry->broken = Status();
  entry->cancelled = entry->aborted = false;
  entry->comm.store(comm, std::memory_order_release);  // pairs with the load in find_entry()
  // NCCL gives an address again once a communicator is gone; one that went past the drop-in is forgotten so.
  book().entries[comm] = entry;
  return *entry;
}

Entry* take_entry(ncclComm* comm) {
  const std::unique_lock lock(book().mutex);
  const auto found = book().entries.find(comm);
  if (found == book().entries.end()) return nullptr;
  Entry* const entry = found->second;
  book().entries.erase(found);
  entry->comm.store(nullptr, std::memory_order_release);
  return entry;
}

void reuse_entry(Entry& entry) {
  const std::unique_lock lock(book().mutex);
  book().unused.push_back(&entry);
}

}  // namespace nearlight::dropin
