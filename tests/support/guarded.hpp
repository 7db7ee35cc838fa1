// Buffers that end at a page nobody may touch, with a pattern around the part that is in use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nearlight::test {

// Room for `bytes`, followed by an unreadable page: what goes past the end dies there. All of it can be
// placed anywhere in front of the end; what lies around it is filled with a pattern that check() looks for.
class Guarded {
 public:
  explicit Guarded(std::size_t bytes);
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded();

  // Takes `bytes` that end `from_end` bytes in front of the unreadable page, and fills up to kBefore bytes
  // before and all after them with the pattern.
  std::byte* place(std::size_t bytes, std::size_t from_end);
  // True when the pattern around the last place() is whole.
  bool whole() const;

  static constexpr std::size_t kBefore = 256;
  static constexpr std::size_t kAfter = 512;  // the largest from_end: 63 elements of 8 bytes

 private:
  std::byte* mapping_ = nullptr;
  std::size_t mapped_ = 0;
  std::byte* end_ = nullptr;  // where the unreadable page begins
  std::byte* used_ = nullptr;
  std::size_t used_bytes_ = 0;
};

}  // namespace nearlight::test
