// The CPU probe: two threads on two cores, the same loops as on a GPU.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <nearlight/detail/exec/host_space.hpp>
#include "probe/loops.hpp"
#include "probe/sol.hpp"
#include "probe/spread.hpp"

namespace nearlight::probe {

namespace {

using exec::HostSpace;
using exec::Order;
using exec::Scope;
using Clock = std::chrono::steady_clock;

constexpr Laps kLocalLaps{1000, 20000};  // of about a nanosecond
constexpr Laps kPingPongLaps{20, 200};
constexpr Laps kLapsOnOneCore{2, 10};                        // each needs two changes of thread
constexpr std::size_t kBlockBytes = std::size_t{256} << 10;  // fits the caches of both cores
constexpr int kBlockRounds = 201;

std::size_t lines_bytes(int lines) { return static_cast<std::size_t>(lines) * kLineStride; }

// Two CPUs that this process may use, of different cores if there are such.
struct Cores {
  int cpu[2] = {-1, -1};
  bool two = false;
};

// Whether `other` is in a list like "0,64" or "0-1" of the threads of `cpu`'s core.
bool same_core(int cpu, int other) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
  for (std::string range; std::getline(file, range, ',');) {
    const std::size_t dash = range.find('-');
    const int first = std::atoi(range.c_str());
    const int last = dash == std::string::npos ? first : std::atoi(range.c_str() + dash + 1);
    if (other >= first && other <= last) return true;
  }
  return false;
}

Cores pick_cores() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  Cores cores;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable)) continue;
    if (cores.cpu[0] < 0) {
      cores.cpu[0] = cpu;
    } else if (cores.cpu[1] < 0) {
      cores.cpu[1] = cpu;  // a thread of the same core is better than nothing
    }
    if (cores.cpu[1] >= 0 && !same_core(cores.cpu[0], cpu)) {
      cores.cpu[1] = cpu;
      break;
    }
  }
  cores.two = cores.cpu[1] >= 0;
  if (!cores.two) cores.cpu[1] = cores.cpu[0];
  return cores;
}

// What one of the two threads found.
struct Side {
  protocol::Wait outcome = protocol::Wait::ok;
  std::vector<std::uint64_t> load_ns;       // by line
  std::vector<std::uint64_t> ping_pong_ns;  // by line, as the side that stored first
  std::vector<std::uint64_t> block_ns;      // by round
};

class Probe {
 public:
  explicit Probe(const CpuProbeTarget& target)
      : target_(target), cores_(pick_cores()), laps_(cores_.two ? kPingPongLaps : kLapsOnOneCore) {
    control_.abort = &abort_;
    control_.timeout_ns = static_cast<std::uint64_t>(target.wait_limit.count()) * 1'000'000u;
  }

  Result<SolReport> run() {
    const Clock::time_point start = Clock::now();
    clear();
    std::thread other;
    try {
      other = std::thread([this] { work(1); });
    } catch (const std::system_error& error) {
      return system_failure("starting a thread", error.code().value());
    }
    // The caller's thread stays where the caller wants it.
    std::thread first;
    try {
      first = std::thread([this] { work(0); });
    } catch (const std::system_error& error) {
      HostSpace::store<Order::relaxed, Scope::system>(abort_, 1);
      other.join();
      return system_failure("starting a thread", error.code().value());
    }
    first.join();
    other.join();
    clear();
    for (int side = 0; side < 2; ++side) {
      if (sides_[static_cast<std::size_t>(side)].outcome == protocol::Wait::timeout) {
        return failure(Code::timeout, "%s did not see a store of %s within %lld ms", name(side).c_str(),
                       name(1 - side).c_str(), static_cast<long long>(target_.wait_limit.count()));
      }
    }
    SolReport report = summed_up();
    report.took_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    return report;
  }

 private:
  // One line each; the number of the meeting that the side has come to.
  struct alignas(kLineStride) Milestone {
    HostSpace::Word reached = 0;
  };

  HostSpace::Word& word(int part, int line) const {
    return *reinterpret_cast<HostSpace::Word*>(target_.part[part] + lines_bytes(line));
  }
  char* block(int part) const { return target_.part[part] + lines_bytes(target_.lines); }
  std::string name(int side) const { return "CPU " + std::to_string(cores_.cpu[side]); }
  void clear() const {
    for (char* part : target_.part) std::memset(part, 0, cpu_probe_bytes(target_.lines));
  }

  void work(int side) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cores_.cpu[side] >= 0 ? cores_.cpu[side] : 0, &set);
    // Best effort: a thread that may not be bound measures where the system puts it.
    if (cores_.cpu[side] >= 0) (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);

    Side& found = sides_[static_cast<std::size_t>(side)];
    found.outcome = measure(side, found);
    if (found.outcome != protocol::Wait::ok) HostSpace::store<Order::relaxed, Scope::system>(abort_, 1);
  }

  protocol::Wait measure(int side, Side& found) {
    for (int line = 0; line < target_.lines; ++line) {
      found.load_ns.push_back(chase<HostSpace>(&word(side, line), kLocalLaps));
    }
    std::uint32_t base = 0;
    for (int first = 0; first < 2; ++first) {
      if (const protocol::Wait outcome = meet(side); outcome != protocol::Wait::ok) return outcome;
      for (int line = 0; line < target_.lines; ++line) {
        std::uint64_t ns = 0;
        const protocol::Wait outcome = ping_pong<HostSpace>(control_, word(side, line), word(1 - side, line),
                                                            side == first, base, laps_, ns);
        if (outcome != protocol::Wait::ok) return outcome;
        if (side == first) found.ping_pong_ns.push_back(ns);
      }
      base += laps_.warmup + laps_.timed;
    }
    return copy_blocks(side, found);
  }

  // Each side first writes its own block, so that its lines are in its own cache, then copies into the
  // other's.
  protocol::Wait copy_blocks(int side, Side& found) {
    std::vector<char> source(kBlockBytes, static_cast<char>(side + 1));
    for (int round = 0; round < (cores_.two ? kBlockRounds : kBlockRounds / 10); ++round) {
      std::memset(block(side), round, kBlockBytes);
      if (const protocol::Wait outcome = meet(side); outcome != protocol::Wait::ok) return outcome;
      const std::uint64_t start_ns = HostSpace::now_ns();
      std::memcpy(block(1 - side), source.data(), kBlockBytes);
      if (round > 0) found.block_ns.push_back(HostSpace::now_ns() - start_ns);
      if (const protocol::Wait outcome = meet(side); outcome != protocol::Wait::ok) return outcome;
    }
    return protocol::Wait::ok;
  }

  // Returns when both sides have come here. The release store and the acquire load of the milestones order
  // the plain accesses of the sides to each other's blocks.
  protocol::Wait meet(int side) {
    HostSpace::Word& mine = milestones_[static_cast<std::size_t>(side)].reached;
    const HostSpace::Word& others = milestones_[static_cast<std::size_t>(1 - side)].reached;
    const std::uint32_t next = HostSpace::load<Order::relaxed, Scope::system>(mine) + 1;
    HostSpace::store<Order::release, Scope::system>(mine, next);
    return protocol::poll<HostSpace>(
        control_, [&] { return HostSpace::load<Order::acquire, Scope::system>(others) >= next; });
  }

  SolReport summed_up() const {
    SolReport report;
    report.backend = "cpu";
    report.lines = target_.lines;
    std::vector<Direction> directions;
    std::vector<double> gbs;
    for (int side = 0; side < 2; ++side) {
      const Side& found = sides_[static_cast<std::size_t>(side)];
      Direction& direction = directions.emplace_back();
      direction.from = name(side);
      direction.to = name(1 - side);
      for (const std::uint64_t ns : found.load_ns) {
        direction.l2rtt_us.push_back(static_cast<double>(ns) * 1e-3 / kLocalLaps.timed);
      }
      for (const std::uint64_t ns : found.ping_pong_ns) {
        direction.one_way_us.push_back(static_cast<double>(ns) * 1e-3 / (2 * laps_.timed));
      }
      for (const std::uint64_t ns : found.block_ns) {
        gbs.push_back(static_cast<double>(kBlockBytes) / static_cast<double>(std::max<std::uint64_t>(ns, 1)));
      }
    }
    fill_report(report, directions);
    report.store_gbs = median_of(gbs);
    return report;
  }

  const CpuProbeTarget& target_;
  const Cores cores_;
  const Laps laps_;
  std::array<Side, 2> sides_;
  std::array<Milestone, 2> milestones_;
  HostSpace::Word abort_ = 0;
  protocol::Control<HostSpace> control_;
};

Status check(const CpuProbeTarget& target) {
  if (target.lines < 1 || target.lines > kMaxLines) {
    return failure(Code::invalid_argument, "lines: %d, not from 1 to %d", target.lines, kMaxLines);
  }
  if (target.wait_limit.count() < 1) return failure(Code::invalid_argument, "wait_limit: below 1 ms");
  for (const char* part : target.part) {
    if (part == nullptr) return failure(Code::invalid_argument, "part: null");
    if (reinterpret_cast<std::uintptr_t>(part) % kLineStride != 0) {
      return failure(Code::invalid_argument, "part: not aligned to %zu", kLineStride);
    }
  }
  const std::size_t needed = cpu_probe_bytes(target.lines);
  if (target.bytes < needed) {
    return failure(Code::invalid_argument, "bytes: %zu, but the probe needs %zu", target.bytes, needed);
  }
  return {};
}

}  // namespace

std::size_t cpu_probe_bytes(int lines) { return lines_bytes(lines) + kBlockBytes; }

Result<SolReport> measure_cpu(const CpuProbeTarget& target) {
  NL_TRY(check(target));
  return std::make_unique<Probe>(target)->run();
}

}  // namespace nearlight::probe
