// CPU ranks: the result is there when a call returns.
//
// Ranks start a block of samples together (Meeting::align); from then on the collective itself keeps them
// together: nobody completes operation i before everybody has begun it. A sample is the time between two
// readings of the clock with `chain` operations in between, so reading it (some 25 ns) weighs 1 / chain. CPU
// time is read around the block of samples: what a rank waits for the others in it, it waits at work.
//
// A second job is a second thread of each rank, which does twice as many operations: it is at work until the
// last sample is taken.
#include <cerrno>
#include <cstring>
#include <ctime>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "cli/bench/place.hpp"

namespace nearlight::bench {

namespace {

class HostTimer final : public Timer {
 public:
  HostTimer(const Work& work, const Work* beside, int chain) : work_(work), chain_(chain) {
    if (beside != nullptr) beside_.emplace(*beside);
  }
  std::optional<double> cpu_us() const override { return cpu_us_; }

 private:
  Status take(Meeting& meeting, std::span<double> us) override {
    if (!beside_) return take_alone(meeting, us);
    Status other;
    std::thread second;
    try {
      second = std::thread([&] {
        for (std::size_t left = 2 * us.size() * static_cast<std::size_t>(chain_); left > 0 && other.ok();
             --left) {
          other = beside_->contender.run(beside_->operation, nullptr);
        }
      });
    } catch (const std::system_error& error) {
      return system_failure("starting the second job's thread", error.code().value());
    }
    Status status = take_alone(meeting, us);
    // The second job may wait for a rank that does not come any more.
    if (!status.ok()) beside_->contender.abandon();
    second.join();
    return status.ok() ? other : status;
  }

  Status take_alone(Meeting& meeting, std::span<double> us) {
    arrive();
    NL_TRY(meeting.align().status());
    const std::uint64_t cpu_before_ns = thread_cpu_ns();
    std::uint64_t before_ns = now_ns();
    for (double& sample : us) {
      for (int i = 0; i < chain_; ++i) NL_TRY(work_.contender.run(work_.operation, nullptr));
      const std::uint64_t after_ns = now_ns();
      sample = static_cast<double>(after_ns - before_ns) * 1e-3 / chain_;
      before_ns = after_ns;
    }
    cpu_us_ = static_cast<double>(thread_cpu_ns() - cpu_before_ns) * 1e-3 /
              (static_cast<double>(us.size()) * chain_);
    return {};
  }

  Work work_;
  std::optional<Work> beside_;
  int chain_;
  std::optional<double> cpu_us_;
};

class HostPlace final : public Place {
 public:
  Result<char*> allocate(std::size_t bytes) override {
    void* memory = ::operator new(bytes, kAlignment, std::nothrow);
    if (memory == nullptr) return failure(Code::system_error, "no memory for a buffer of %zu bytes", bytes);
    std::memset(memory, 0, bytes);  // so that no page is missing later
    memory_.emplace_back(static_cast<char*>(memory));
    return static_cast<char*>(memory);
  }
  Status write(char* to, std::span<const std::byte> from) override {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
    return {};
  }
  Status read(std::span<std::byte> to, const char* from) override {
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
    return {};
  }
  Status wait() override { return {}; }
  runtime::Stream stream(int) const override { return nullptr; }

  Result<std::unique_ptr<Timer>> prepare(const Work& work, const Work* beside, cli::Mode mode,
                                         int chain) override {
    if (mode != cli::Mode::eager) {
      return failure(Code::unsupported, "mode %s needs a GPU: on a CPU every call is eager",
                     cli::name_of(mode));
    }
    return std::unique_ptr<Timer>(std::make_unique<HostTimer>(work, beside, chain));
  }

 private:
  static constexpr std::align_val_t kAlignment{4096};
  struct Free {
    void operator()(char* memory) const { ::operator delete(memory, kAlignment); }
  };
  std::vector<std::unique_ptr<char, Free>> memory_;
};

}  // namespace

std::uint64_t thread_cpu_ns() {
  std::timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

std::unique_ptr<Place> make_host_place() { return std::make_unique<HostPlace>(); }

}  // namespace nearlight::bench
