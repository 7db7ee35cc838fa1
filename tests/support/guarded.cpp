#include "tests/support/guarded.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cassert>
#include <cstring>
#include <new>

namespace nearlight::test {

namespace {
constexpr std::byte kPattern{0xc3};
}

Guarded::Guarded(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t room = (bytes + kBefore + kAfter + page - 1) / page * page;
  mapped_ = room + page;
  void* const memory = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mapping_ = static_cast<std::byte*>(memory);
  end_ = mapping_ + room;
  if (::mprotect(end_, page, PROT_NONE) != 0) throw std::bad_alloc();
}

Guarded::~Guarded() { ::munmap(mapping_, mapped_); }

std::byte* Guarded::place(std::size_t bytes, std::size_t from_end) {
  assert(from_end <= kAfter);
  used_ = end_ - from_end - bytes;
  used_bytes_ = bytes;
  assert(used_ - kBefore >= mapping_);
  std::memset(used_ - kBefore, static_cast<int>(kPattern), kBefore);
  std::memset(used_ + bytes, static_cast<int>(kPattern), from_end);
  return used_;
}

bool Guarded::whole() const {
  for (const std::byte* at = used_ - kBefore; at != used_; ++at) {
    if (*at != kPattern) return false;
  }
  for (const std::byte* at = used_ + used_bytes_; at != end_; ++at) {
    if (*at != kPattern) return false;
  }
  return true;
}

}  // namespace nearlight::test
