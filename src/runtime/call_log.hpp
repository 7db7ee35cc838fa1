// What a communicator has been asked to do: counters, and its last calls one by one. Written by the thread
// that is in a call, read by any other at any time; there is no lock, and no locked instruction, on the
// call's path.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/collective.hpp"
#include "base/status.hpp"
#include "base/types.hpp"
#include "route/route.hpp"
#include "runtime/health.hpp"

namespace nearlight::runtime {

// Operations are calls that went through: on a CPU they are done, on a GPU enqueued or captured.
struct Counters {
  std::array<std::uint64_t, kCollectiveNumbers> operations{};  // by Collective
  std::uint64_t bytes = 0;                                     // of their inputs
  std::uint64_t captured = 0;  // how many of the operations went into a CUDA graph; replays are not seen
  std::uint64_t failures = 0;  // calls that returned an error
  struct PerRoute {
    route::Algorithm algorithm;
    route::Protocol protocol;
    std::uint64_t operations, bytes;
  };
  std::vector<PerRoute> routes;  // those that were taken, barriers aside; a single rank copies

  std::uint64_t of(Collective collective) const { return operations[static_cast<std::size_t>(collective)]; }
};

enum class CallState : std::uint8_t { running, done, captured, failed };
const char* name_of(CallState state);

// One call. What a barrier has none of is 0.
struct CallEntry {
  std::uint64_t number = 0;  // of the communicator's calls, from 1
  Collective collective = Collective::barrier;
  std::uint64_t count = 0;
  DataType type = DataType::i8;
  ReduceOp op = ReduceOp::sum;
  route::Algorithm algorithm = route::Algorithm::copy;
  route::Protocol protocol = route::Protocol::ll;
  bool routed = false;  // algorithm and protocol are known
  CallState state = CallState::running;
};

class CallLog {
 public:
  static constexpr std::size_t kLast = 64;

  // Where the number of the call, and whether it is still on, are put for the other ranks as well.
  void mirror(std::uint64_t* word) { mirror_ = word; }

  // A call begins; nothing is known of its arguments yet but these.
  void begin(Collective collective, std::size_t count, DataType type, ReduceOp op) {
    begin(collective, count, type, op, count * size_of(type));
  }
  // `bytes`: of its input.
  void begin(Collective collective, std::size_t count, DataType type, ReduceOp op, std::size_t bytes) {
    ++number_;
    bytes_ = bytes;
    now_ = {number_, collective, count, type, op, {}, {}, false, CallState::running};
    write();
    show(true);
  }
  // It will take this route; before it waits.
  void take(route::Algorithm algorithm, route::Protocol protocol) {
    now_.algorithm = algorithm;
    now_.protocol = protocol;
    now_.routed = true;
    write();
  }
  // It has ended; gives the outcome back.
  Status end(Status outcome, bool captured = false) {
    if (!outcome.ok()) {
      failures_.add(1);
      now_.state = CallState::failed;
    } else {
      now_.state = captured ? CallState::captured : CallState::done;
      if (captured) captured_.add(1);
      operations_[static_cast<std::size_t>(now_.collective) % kCollectiveNumbers].add(1);
      total_bytes_.add(bytes_);
      if (now_.routed) {
        PerRoute& route = routes_[index_of(now_.algorithm, now_.protocol)];
        route.operations.add(1);
        route.bytes.add(bytes_);
      }
    }
    write();
    show(false);
    return outcome;
  }

  // Any thread. Each number is one that was true at some moment of the call.
  Counters counters() const;
  // Any thread. Oldest first; an entry that is just being written is left out.
  std::vector<CallEntry> last_calls() const;

 private:
  // One writer at a time: an addition is a load and a store.
  class Counter {
   public:
    void add(std::uint64_t more) {
      value_.store(value_.load(std::memory_order_relaxed) + more, std::memory_order_relaxed);
    }
    std::uint64_t read() const { return value_.load(std::memory_order_relaxed); }

   private:
    std::atomic<std::uint64_t> value_{0};
  };
  struct PerRoute {
    Counter operations, bytes;
  };
  struct Entry {
    std::atomic<std::uint64_t> number{0};  // 0: being written, or never
    std::atomic<std::uint64_t> count{0};
    std::atomic<std::uint64_t> rest{0};
  };
  // More than there are of either.
  static constexpr std::size_t kAlgorithms = 8, kProtocols = 8;
  static constexpr std::size_t index_of(route::Algorithm algorithm, route::Protocol protocol) {
    return static_cast<std::size_t>(algorithm) % kAlgorithms * kProtocols +
           static_cast<std::size_t>(protocol) % kProtocols;
  }

  // [T1] The number is taken away, the fields are stored (release), the number is put back (release). A
  // reader that loads a new field (acquire) sees that the old number is gone.
  void write() {
    Entry& entry = entries_[now_.number % kLast];
    const auto byte = [](auto value, int place) {
      return static_cast<std::uint64_t>(static_cast<std::uint8_t>(value)) << 8 * place;
    };
    entry.number.store(0, std::memory_order_relaxed);
    entry.count.store(now_.count, std::memory_order_release);
    entry.rest.store(byte(now_.collective, 0) | byte(now_.type, 1) | byte(now_.op, 2) |
                         byte(now_.algorithm, 3) | byte(now_.protocol, 4) | byte(now_.state, 5) |
                         byte(now_.routed ? 1 : 0, 6),
                     std::memory_order_release);
    entry.number.store(now_.number, std::memory_order_release);
  }

  void show(bool running) const {
    if (mirror_ == nullptr) return;
    std::atomic_ref(*mirror_).store(HealthBoard::call_of(number_, now_.collective, running),
                                    std::memory_order_relaxed);
  }

  std::uint64_t* mirror_ = nullptr;
  // The caller's thread alone.
  std::uint64_t number_ = 0, bytes_ = 0;
  CallEntry now_;

  std::array<Counter, kCollectiveNumbers> operations_;
  Counter total_bytes_, captured_, failures_;
  std::array<PerRoute, kAlgorithms * kProtocols> routes_;
  std::array<Entry, kLast> entries_;
};

}  // namespace nearlight::runtime
