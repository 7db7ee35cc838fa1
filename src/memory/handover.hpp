// How rank 0 hands an object of its own to the other ranks of the same process.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/exchange.hpp"

namespace nearlight::memory {

// Live objects by number. A raw pointer through the exchange could be freed by a rank 0 that gave up
// meanwhile; a number is found or it is not.
template <class T>
class Handover {
 public:
  static Handover& instance() {
    static Handover handover;
    return handover;
  }
  std::uint64_t add(const std::shared_ptr<T>& object) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [](const auto& entry) { return entry.second.expired(); });
    entries_.emplace(++last_, object);
    return last_;
  }
  std::shared_ptr<T> find(std::uint64_t key) {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(key);
    return it == entries_.end() ? nullptr : it->second.lock();
  }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::weak_ptr<T>> entries_;
  std::uint64_t last_ = 0;
};

// Collective. Everyone gets what rank 0 made, or everyone the failure: `made` counts on rank 0 only.
template <class T>
Result<std::shared_ptr<T>> share_from_rank0(Exchange& exchange, Result<std::shared_ptr<T>> made,
                                            Deadline deadline) {
  const bool first = exchange.rank() == 0;
  NL_TRY(agree(exchange, first ? made.status() : Status(), deadline));
  const std::uint64_t key = first ? Handover<T>::instance().add(*made) : 0;
  NL_TRY_ASSIGN(const std::vector<std::uint64_t> keys, gather_values(exchange, key, deadline));
  std::shared_ptr<T> object = first ? *made : Handover<T>::instance().find(keys[0]);
  Status found;
  if (object == nullptr) found = failure(Code::remote_error, "rank 0 has given its memory back");
  NL_TRY(agree(exchange, found, deadline));
  return object;
}

// Collective: the same verdict everywhere on whether all ranks ask for the same number of bytes, and for
// some.
inline Status check_same_bytes(Exchange& exchange, std::size_t bytes, Deadline deadline) {
  NL_TRY_ASSIGN(const std::vector<std::size_t> all, gather_values(exchange, bytes, deadline));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) {
      return failure(Code::invalid_argument, "bytes: rank 0 asks for %zu, rank %zu for %zu", all[0], rank,
                     all[rank]);
    }
  }
  if (bytes == 0) return failure(Code::invalid_argument, "bytes: 0");
  return {};
}

}  // namespace nearlight::memory
