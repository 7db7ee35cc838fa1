#include "runtime/dump.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <vector>

#include <nearlight/detail/exec/host_space.hpp>
#include <nearlight/detail/protocol/channel_memory.hpp>
#include <nearlight/detail/protocol/session.hpp>
#include "base/log.hpp"
#include "base/unique_fd.hpp"
#include "base/variables.hpp"

namespace nearlight::runtime {

namespace {

using exec::HostSpace;
using State = protocol::RegionState<HostSpace>;
using Region = protocol::FlatRegion<HostSpace>;

[[gnu::format(printf, 2, 3)]] void add(std::string& text, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  text += line;
}

void add_call(std::string& text, const CallEntry& call) {
  add(text, "#%" PRIu64 " %s", call.number, name_of(call.collective));
  if (call.collective != Collective::barrier) add(text, " of %" PRIu64 " %s", call.count, name_of(call.type));
  if (is_reduction(call.collective)) add(text, ", %s", name_of(call.op));
  if (call.routed)
    add(text, ", %s %s", algorithm::name_of(call.algorithm),
        route::protocol_name(call.algorithm, call.protocol));
  add(text, ": %s", name_of(call.state));
}

void add_counters(std::string& text, const Counters& counters) {
  add(text, "counters: %" PRIu64 " all_reduces, %" PRIu64 " barriers, ", counters.of(Collective::all_reduce),
      counters.of(Collective::barrier));
  const auto add_if_any = [&](Collective collective) {
    if (counters.of(collective) != 0)
      add(text, "%" PRIu64 " %s, ", counters.of(collective), name_of(collective));
  };
  for (const Collective collective : kCollectives) {
    if (collective != Collective::all_reduce && collective != Collective::barrier) add_if_any(collective);
  }
  for (const Collective collective : kOneWayCollectives) add_if_any(collective);
  add(text, "%" PRIu64 " bytes, %" PRIu64 " captured, %" PRIu64 " failures\n", counters.bytes,
      counters.captured, counters.failures);
  for (const auto& route : counters.routes) {
    add(text, "  %s %s: %" PRIu64 " (%" PRIu64 " bytes)\n", algorithm::name_of(route.algorithm),
        route::protocol_name(route.algorithm, route.protocol), route.operations, route.bytes);
  }
}

void add_fault(std::string& text, const protocol::FaultRecord& record) {
  add(text,
      "fault record: %s of rank %d that waited for rank %d in %s: epoch %u, region %u, slot %u, expected %u, "
      "seen %u, at %" PRIu64 " ns of its clock\n",
      record.kind == static_cast<std::uint32_t>(protocol::Wait::timeout) ? "time-out"
      : record.kind == static_cast<std::uint32_t>(protocol::kMisuse)     ? "misuse"
                                                                         : "abort",
      record.rank, record.peer, name_of(static_cast<Collective>(record.collective)), record.epoch,
      record.region, record.slot, record.expected, record.seen, record.time_ns);
}

// Runs of regions that are alike.
void add_states(std::string& text, const std::vector<State>& states) {
  text += "regions (last epoch closed):";
  for (std::size_t first = 0; first < states.size();) {
    std::size_t end = first + 1;
    while (end < states.size() && states[end].epoch == states[first].epoch &&
           states[end].failed == states[first].failed) {
      ++end;
    }
    add(text, first == 0 ? " " : ", ");
    add(text, end == first + 1 ? "%zu" : "%zu to %zu", first, end - 1);
    add(text, ": %u%s", states[first].epoch, states[first].failed != 0 ? " FAILED" : "");
    first = end;
  }
  text += "\n";
}

// What lies in one slot of the rank's own part, from one source in one bank.
struct Look {
  int bank = 0, source = 0;
  HostSpace::Word flag = 0;
  HostSpace::Line line{};
  HostSpace::Packet packet{};
};

void add_look(std::string& text, const Look& look, bool has_line, bool has_packet) {
  add(text, "  from rank %d, bank %d: flag %u", look.source, look.bank, look.flag);
  if (has_line) {
    add(text, "; line of epoch %u and %u, data %08x %08x", exec::high_half(look.line.half[0]),
        exec::high_half(look.line.half[1]), exec::low_half(look.line.half[0]),
        exec::low_half(look.line.half[1]));
  }
  if (has_packet) {
    const bool empty = ~look.packet.half[0] == 0 && ~look.packet.half[1] == 0;
    if (empty) {
      add(text, "; packet empty");
    } else {
      add(text, "; packet %016" PRIx64 " %016" PRIx64, look.packet.half[0], look.packet.half[1]);
    }
  }
  text += "\n";
}

// The region that calls use most: small messages take it first.
std::uint32_t busiest(const std::vector<State>& states) {
  const auto most = std::max_element(states.begin(), states.end(),
                                     [](const State& a, const State& b) { return a.epoch < b.epoch; });
  return static_cast<std::uint32_t>(most - states.begin());
}

Status add_memory(std::string& text, const DumpSource& source) {
  std::vector<State> states(source.regions);
  std::vector<Piece> pieces;
  const std::size_t most = kMostPieceBytes / sizeof(State);
  for (std::size_t first = 0; first < states.size(); first += most) {
    pieces.push_back({static_cast<const State*>(source.states) + first, &states[first],
                      std::min(most, states.size() - first) * sizeof(State)});
  }
  NL_TRY(source.fetch(pieces));
  add_states(text, states);
  if (source.nranks < 2) return {};

  const std::uint32_t index =
      source.record ? std::min(source.record->region, source.regions - 1) : busiest(states);
  const std::uint32_t slot = source.record ? source.record->slot : 0;
  const Region region(source.first_region + index * source.region_bytes, source.stride, source.rank,
                      source.layout);
  const bool has_line = slot < source.layout.slots, has_packet = slot < source.layout.packets;
  std::vector<Look> looks;
  for (int bank = 0; bank < protocol::kBanks; ++bank) {
    for (int from = 0; from < source.nranks; ++from) {
      if (from != source.rank) looks.push_back({bank, from});
    }
  }
  pieces.clear();
  for (Look& look : looks) {
    pieces.push_back({&region.flag(source.rank, look.bank, look.source), &look.flag, sizeof look.flag});
    if (has_line) {
      pieces.push_back(
          {&region.line(source.rank, look.bank, look.source, slot), &look.line, sizeof look.line});
    }
    if (has_packet) {
      pieces.push_back(
          {&region.packet(source.rank, look.bank, look.source, slot), &look.packet, sizeof look.packet});
    }
  }
  NL_TRY(source.fetch(pieces));
  add(text,
      "what has come to region %u, slot %u (bank: the epoch's parity; flags are simple's, lines LL's, "
      "packets the sentinel's):\n",
      index, slot);
  for (const Look& look : looks) add_look(text, look, has_line, has_packet);
  return {};
}

}  // namespace

std::string dump_text(const DumpSource& source, const CallLog& calls) {
  std::string text;
  add(text, "rank %d of %d, process %d, %s, memory %s, limit of a wait %lld ms\n", source.rank, source.nranks,
      static_cast<int>(::getpid()), source.backend, source.memory,
      static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(source.timeout).count()));
  text += "status: " + source.status.to_string() + "\n";
  for (int peer = 0; peer < source.nranks; ++peer) {
    if (const std::string words = source.health->of(peer); !words.empty())
      add(text, "rank %d %s\n", peer, words.c_str());
  }
  add_counters(text, calls.counters());
  if (source.record) add_fault(text, *source.record);
  if (const Status read = add_memory(text, source); !read.ok()) {
    text += "its memory was not read: " + read.to_string() + "\n";
  }
  text += "last calls:\n";
  for (const CallEntry& call : calls.last_calls()) {
    text += "  ";
    add_call(text, call);
    text += "\n";
  }
  return text;
}

std::string dump_summary(int rank, const CallLog& calls) {
  const Counters counters = calls.counters();
  std::string text;
  add(text, "time-out on rank %d after %" PRIu64 " all_reduces and %" PRIu64 " barriers", rank,
      counters.of(Collective::all_reduce), counters.of(Collective::barrier));
  if (const auto last = calls.last_calls(); !last.empty()) {
    text += "; last call ";
    add_call(text, last.back());
  }
  return text;
}

Status fetch_from_host(std::span<const Piece> pieces) {
  for (const Piece& piece : pieces) {
    auto* const from = static_cast<std::uint32_t*>(const_cast<void*>(piece.from));
    auto* const to = static_cast<char*>(piece.to);
    for (std::size_t word = 0; word < piece.bytes / sizeof *from; ++word) {
      const std::uint32_t value = std::atomic_ref(from[word]).load(std::memory_order_relaxed);
      std::memcpy(to + word * sizeof value, &value, sizeof value);
    }
  }
  return {};
}

Result<std::string> write_dump(const std::string& folder, int rank, const std::string& text) {
  static std::atomic<int> written{0};
  const std::string path = folder + "/nearlight-dump-" + std::to_string(::getpid()) + "-rank" +
                           std::to_string(rank) + "-" + std::to_string(++written) + ".txt";
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return system_failure("open " + path, errno);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t now = ::write(file.get(), text.data() + done, text.size() - done);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return system_failure("write " + path, errno);
    done += static_cast<std::size_t>(now);
  }
  return path;
}

void tell_of_timeout(int rank, const CallLog& calls, const std::function<std::string()>& text) {
  const std::string summary = dump_summary(rank, calls);
  const auto folder = variables::read(variables::kDumpDir);
  if (!folder) return log::warn(summary + "; NEARLIGHT_DUMP_DIR=FOLDER writes the whole state down");
  const auto path = write_dump(*folder, rank, text());
  log::warn(summary + (path.ok() ? "; state in " + *path : "; its state: " + path.status().to_string()));
}

}  // namespace nearlight::runtime
