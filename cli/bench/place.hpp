// Where one rank's buffers live and how time is taken there: CPU memory, or a GPU with a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/status.hpp"
#include "cli/bench/contender.hpp"
#include "cli/bench/meeting.hpp"
#include "cli/results.hpp"

namespace nearlight::bench {

// One operation of one contender, ready to be timed in one mode.
class Timer {
 public:
  virtual ~Timer() = default;
  // Takes one sample per entry of `us`: this rank's microseconds per operation. Collective; ranks start
  // together (each timer says how).
  virtual Status run(Meeting& meeting, std::span<double> us) = 0;
  // CPU time that an operation of the last run() took of this thread, microseconds; absent where the mode has
  // no call to an operation.
  virtual std::optional<double> cpu_us() const { return std::nullopt; }
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
  virtual runtime::Stream stream() const = 0;

  // `chain`: operations per sample. Code::unsupported when the place or the contender does not know the mode.
  // Collective.
  virtual Result<std::unique_ptr<Timer>> prepare(Contender& contender, const Operation& operation,
                                                 cli::Mode mode, int chain) = 0;
};

// The memory of this process. Knows Mode::eager only.
std::unique_ptr<Place> make_host_place();

}  // namespace nearlight::bench
