#include "runtime/call_log.hpp"

namespace nearlight::runtime {

const char* name_of(CallState state) {
  switch (state) {
    case CallState::running:
      return "running";
    case CallState::done:
      return "done";
    case CallState::captured:
      return "captured";
    case CallState::failed:
      return "failed";
  }
  return "invalid";
}

Counters CallLog::counters() const {
  Counters counters;
  for (std::size_t i = 0; i < operations_.size(); ++i) counters.operations[i] = operations_[i].read();
  counters.bytes = total_bytes_.read();
  counters.captured = captured_.read();
  counters.failures = failures_.read();
  for (std::size_t index = 0; index < routes_.size(); ++index) {
    const std::uint64_t operations = routes_[index].operations.read();
    if (operations == 0) continue;
    counters.routes.push_back({static_cast<route::Algorithm>(index / kProtocols),
                               static_cast<route::Protocol>(index % kProtocols), operations,
                               routes_[index].bytes.read()});
  }
  return counters;
}

std::vector<CallEntry> CallLog::last_calls() const {
  std::uint64_t newest = 0;
  for (const Entry& entry : entries_) {
    const std::uint64_t number = entry.number.load(std::memory_order_relaxed);
    newest = number > newest ? number : newest;
  }
  std::vector<CallEntry> calls;
  for (std::uint64_t number = newest > kLast ? newest - kLast + 1 : 1; number <= newest; ++number) {
    const Entry& entry = entries_[number % kLast];
    // [T1]
    const std::uint64_t before = entry.number.load(std::memory_order_acquire);
    const std::uint64_t count = entry.count.load(std::memory_order_acquire);
    const std::uint64_t rest = entry.rest.load(std::memory_order_acquire);
    if (before != number || entry.number.load(std::memory_order_relaxed) != number) continue;
    const auto byte = [rest](int place) { return static_cast<std::uint8_t>(rest >> 8 * place); };
    calls.push_back({number, static_cast<Collective>(byte(0)), count, static_cast<DataType>(byte(1)),
                     static_cast<ReduceOp>(byte(2)), static_cast<route::Algorithm>(byte(3)),
                     static_cast<route::Protocol>(byte(4)), byte(6) != 0, static_cast<CallState>(byte(5))});
  }
  return calls;
}

}  // namespace nearlight::runtime
