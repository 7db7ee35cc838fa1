// Replaces the C library's allocator, and its way to start threads, by ones that count and then ask it.
#include "tests/api/allocations.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <new>

// glibc's own names for its allocator.
extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* old, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
void __libc_free(void* memory);
}

namespace {

constexpr std::int64_t kNone = -1;
thread_local std::uint64_t allocations = 0;
std::atomic<std::int64_t> until_failure{kNone};
std::atomic<bool> failed{false};
std::atomic<int> until_thread_failure{-1};

// Whether this allocation may be made.
bool count() {
  ++allocations;
  if (until_failure.load(std::memory_order_relaxed) == kNone) return true;
  if (until_failure.fetch_sub(1) != 0) return true;
  until_failure = kNone;
  failed = true;
  errno = ENOMEM;
  return false;
}

}  // namespace

extern "C" {
void* malloc(std::size_t bytes) { return count() ? __libc_malloc(bytes) : nullptr; }
void* calloc(std::size_t n, std::size_t bytes) { return count() ? __libc_calloc(n, bytes) : nullptr; }
void* realloc(void* old, std::size_t bytes) { return count() ? __libc_realloc(old, bytes) : nullptr; }
void free(void* memory) { __libc_free(memory); }
void* memalign(std::size_t alignment, std::size_t bytes) {
  return count() ? __libc_memalign(alignment, bytes) : nullptr;
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) { return memalign(alignment, bytes); }
[[gnu::visibility("default")]] int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                                  void* (*body)(void*), void* argument) {
  static const auto next = reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (until_thread_failure.load() >= 0 && until_thread_failure.fetch_sub(1) == 0) return EAGAIN;
  return next(thread, attributes, body, argument);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t bytes) {
  void* const memory = memalign(alignment, bytes);
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}
}

namespace nearlight::test {

std::uint64_t allocations_of_this_thread() { return allocations; }

FailingAllocation::FailingAllocation(std::int64_t n) {
  failed = false;
  until_failure = n;
}
FailingAllocation::~FailingAllocation() { until_failure = kNone; }
bool FailingAllocation::happened() const { return failed; }

FailingThread::FailingThread(int n) { until_thread_failure = n; }
FailingThread::~FailingThread() { until_thread_failure = -1; }

}  // namespace nearlight::test
