// Where one rank's buffers live and how time is taken there: CPU memory, or a GPU with a stream.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/status.hpp"
#include "cli/bench/contender.hpp"
#include "cli/bench/meeting.hpp"
#include "cli/results.hpp"

namespace nearlight::bench {

// One contender and what it is to do.
struct Work {
  Contender& contender;
  Operation operation;
  bool in_place = false;  // input and output share a buffer
};

// One operation of one contender, ready to be timed in one mode.
class Timer {
 public:
  virtual ~Timer() = default;
  // Takes one sample per entry of `us`: this rank's microseconds per operation. Collective; ranks start
  // together (each timer says how).
  Status run(Meeting& meeting, std::span<double> us) {
    arrivals_ns_.clear();
    return take(meeting, us);
  }
  // This rank comes so much later to every start: what is not in the samples is seen in arrivals_ns().
  void set_lateness(std::chrono::nanoseconds late) { late_ = late; }
  // When this rank came to each start of the last run(), by now_ns(): the same number on all ranks, at most
  // one a sample.
  std::span<const std::uint64_t> arrivals_ns() const { return arrivals_ns_; }
  // CPU time that an operation of the last run() took of this thread, microseconds; absent where the mode has
  // no call to an operation.
  virtual std::optional<double> cpu_us() const { return std::nullopt; }

 protected:
  virtual Status take(Meeting& meeting, std::span<double> us) = 0;
  // Before each meeting that lets the ranks start together.
  void arrive() {
    const std::uint64_t due_ns = now_ns() + static_cast<std::uint64_t>(late_.count());
    // Others may need this processor in order to come before it.
    while (now_ns() < due_ns) std::this_thread::yield();
    arrivals_ns_.push_back(now_ns());
  }

 private:
  std::chrono::nanoseconds late_{0};
  std::vector<std::uint64_t> arrivals_ns_;
};

// Nanoseconds this thread has run so far. A reading is a system call: not for inside a sample.
std::uint64_t thread_cpu_ns();

class Place {
 public:
  virtual ~Place() = default;

  // Freed with the place; at least 256-byte aligned.
  virtual Result<char*> allocate(std::size_t bytes) = 0;
  virtual Status write(char* to, std::span<const std::byte> from) = 0;
  virtual Status read(std::span<std::byte> to, const char* from) = 0;
  // All that was enqueued has ended; says what failed meanwhile. Bounded by the communicators' own time
  // limits.
  virtual Status wait() = 0;
  // Of job 0, which is measured, or job 1, which runs at the same time.
  virtual runtime::Stream stream(int job) const = 0;

  // `chain`: operations per sample. `beside`: done again and again on the stream of job 1 while samples are
  // taken, as often on every rank; null for nothing. Code::unsupported when the place or the contender does
  // not know the mode. Collective.
  virtual Result<std::unique_ptr<Timer>> prepare(const Work& work, const Work* beside, cli::Mode mode,
                                                 int chain) = 0;
};

// The memory of this process. Knows Mode::eager only.
std::unique_ptr<Place> make_host_place();

}  // namespace nearlight::bench
