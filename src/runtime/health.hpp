// What a rank lets the others know about itself: how far its calls are, and whether it has failed. Read only
// when something has gone wrong, so that a failure's text can say what became of the rank that was missed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "base/collective.hpp"
#include "base/status.hpp"
#include "memory/heap.hpp"

namespace nearlight::runtime {

enum class Health : std::uint32_t { unknown = 0, well, failed, resetting, left };

// In memory that all ranks map; a rank writes its own, with atomic stores that are not ordered: the words are
// for a person, and nothing depends on them.
struct alignas(128) HealthWords {
  std::uint64_t call;  // of its last call: number * 256 + collective * 2 + whether it is still in it
  std::uint32_t state, cause;
  std::int32_t peer;    // whom it missed, or -1
  std::uint32_t epoch;  // the last one, as far as its host knows
};

class HealthBoard {
 public:
  // Nobody's is known.
  HealthBoard() = default;
  // The words of rank r lie `offset` bytes into r's part of `view`, zeroed at first.
  HealthBoard(const memory::HeapView& view, std::size_t offset);
  HealthBoard(const HealthBoard& other) : view_(other.view_), offset_(other.offset_) {}
  HealthBoard& operator=(const HealthBoard& other) {
    view_ = other.view_;
    offset_ = other.offset_;
    return *this;
  }

  // For CallLog, which writes it; null: there is none.
  std::uint64_t* call_word() const;
  static std::uint64_t call_of(std::uint64_t number, Collective collective, bool running) {
    return number << 8 | static_cast<std::uint64_t>(collective) << 1 | (running ? 1 : 0);
  }

  void set(Health state) const;
  void set_epoch(std::uint32_t epoch) const;
  void fail(Code cause, int peer) const;

  // As in "has failed (timeout: it missed rank 2), its last call was 17 (all_reduce)"; "" where it is not
  // known.
  std::string of(int peer) const;
  // What `of` said first since the last forget(): a failure's text stays the same.
  std::string first_of(int peer) const;
  void forget() const;

 private:
  HealthWords* words_of(int rank) const;

  memory::HeapView view_{};
  std::size_t offset_ = 0;
  mutable std::mutex mutex_;
  mutable bool told_ = false;  // under it
  mutable std::string first_;
};

// `status` with what the rank that was missed says of itself, where it is a time-out and that is known.
Status with_health(Status status, int peer, const HealthBoard& health);

}  // namespace nearlight::runtime
