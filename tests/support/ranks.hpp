// Runs the same body on several ranks, as threads or as forked processes, and tells what each of them
// complained about.
#pragma once

#include <sys/mman.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/exchange.hpp"
#include "base/status.hpp"
#include "runtime/communicator.hpp"
#include "tests/support/problems.hpp"

namespace nearlight::test {

// ThreadSanitizer does not follow memory shared by processes, and every sanitizer makes everything slower: by
// how much a test does less, and by how much a limit is longer that a test waits out.
#if defined(__SANITIZE_THREAD__)
inline constexpr int kSlowDown = 20, kPatience = 6;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlowDown = 4, kPatience = 3;
#else
inline constexpr int kSlowDown = 1, kPatience = 1;
#endif

// met: threads that met as separate processes do (bootstrap/process_group.hpp).
enum class Kind { threads, processes, met };
inline const char* name_of(Kind kind) {
  return kind == Kind::threads ? "threads" : kind == Kind::processes ? "processes" : "met";
}

struct RunOptions {
  // A safety net: processes still running after it are killed. Never what a test measures.
  std::chrono::milliseconds time_limit{240'000};
  // Processes only, see bootstrap::ForkOptions.
  std::function<void(std::span<const pid_t>)> on_started = {};
};

// Runs body(exchange) on every rank. Returns "" when no rank had a problem, else one paragraph a rank. A
// process that ends in another way than by returning from its body is a problem, unless its bit is set in
// `may_die`.
std::string run_ranks(Kind kind, int nranks, const std::function<void(Exchange&, Problems&)>& body,
                      const RunOptions& options = {}, std::uint32_t may_die = 0);

// A key that no other test meets under at the same time.
std::string fresh_key();

// The same on communicators created by create_host.
std::string run_communicators(Kind kind, int nranks, const runtime::Options& options,
                              const std::function<void(runtime::Communicator&, Exchange&, Problems&)>& body);

// Options for calls that are expected to succeed: time for a machine that is busy with other things.
runtime::Options patient();

// A failure of `code` whose text holds all of `words`.
void expect_failure(Problems& problems, std::string_view where, const Status& status, Code code,
                    std::initializer_list<std::string_view> words);

// The barrier of a test: fails loudly instead of hanging.
void meet(Exchange& exchange, Problems& problems);

// A T that parent and children share: made before the fork, zero-initialised.
template <class T>
class Shared {
 public:
  Shared() {
    void* const memory =
        ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    value_ = new (memory) T{};
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { ::munmap(value_, sizeof(T)); }
  T* operator->() const { return value_; }
  T& operator*() const { return *value_; }

 private:
  T* value_;
};

// Waits until `done()`; false when that takes longer than `limit`. Sleeps in between: the cores belong to the
// ranks.
bool wait_until(const std::function<bool()>& done, std::chrono::milliseconds limit);

// Nanoseconds of a clock that all processes share.
std::int64_t clock_ns();

}  // namespace nearlight::test
