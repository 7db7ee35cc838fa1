#include "trace/rank_trace.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <iterator>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/collective.hpp"

namespace nearlight::trace {

namespace {

using Key = std::pair<std::uint32_t, std::uint32_t>;  // region, epoch
using ByKey = std::map<Key, const RankTrace::Epoch*>;

[[gnu::format(printf, 2, 3)]] void add(std::string& text, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  text += line;
}

ByKey by_key(const RankTrace& trace) {
  ByKey all;
  for (const auto& epoch : trace.epochs) all[{epoch.region, epoch.epoch}] = &epoch;
  return all;
}

using TurnKey = std::tuple<std::uint32_t, int, bool, std::uint32_t>;  // lane, peer, sends, number
using TurnsByKey = std::map<TurnKey, const RankTrace::Turn*>;
TurnsByKey turns_by_key(const RankTrace& trace) {
  TurnsByKey all;
  for (const auto& turn : trace.turns) all[{turn.lane, turn.peer, turn.sends, turn.number}] = &turn;
  return all;
}

std::int64_t host_ns(const RankTrace& trace, std::uint64_t time_ns) {
  return static_cast<std::int64_t>(time_ns) + trace.offset_ns;
}

// ---- JSON -------------------------------------------------------------------------------------------------

// Threads of a rank: its regions, and from here on its ends of pipes and the program's tracks.
constexpr std::uint32_t kFirstPipe = 100'000, kFirstTrack = 200'000;
std::uint32_t thread_of(const RankTrace& trace, const RankTrace::Turn& turn) {
  return kFirstPipe +
         static_cast<std::uint32_t>(turn_ring_of(turn.lane, trace.nranks, turn.peer, turn.sends));
}

class Writer {
 public:
  explicit Writer(std::string& text) : text_(text) {}

  // The begin of an event; what follows are its own members, then end().
  void begin(const char* phase, const char* name, const RankTrace& trace, std::uint32_t region,
             std::int64_t ns) {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
    add(text_, R"({"ph":"%s","name":"%s","cat":"nearlight","pid":%d,"tid":%u,"ts":%)" PRId64 ".%03d", phase,
        name, process_of(trace), region, ns / 1000, static_cast<int>(ns % 1000));
  }
  void end() { text_ += "}"; }

  void slice(const char* name, const RankTrace& trace, const RankTrace::Epoch& epoch, std::uint64_t from_ns,
             std::uint64_t to_ns) {
    begin("X", name, trace, epoch.region, host_ns(trace, from_ns));
    lasts(from_ns, to_ns);
    add(text_, R"(,"args":{"epoch":%u,"region":%u})", epoch.epoch, epoch.region);
    end();
  }
  void slice(const char* name, const RankTrace& trace, const RankTrace::Turn& turn, std::uint64_t from_ns,
             std::uint64_t to_ns) {
    begin("X", name, trace, thread_of(trace, turn), host_ns(trace, from_ns));
    lasts(from_ns, to_ns);
    add(text_, R"(,"args":{"turn":%u,"peer":%d,"bytes":%u})", turn.number, turn.peer, turn.bytes);
    end();
  }
  // One end of an arrow: "s" where it begins, "f" where it ends.
  void arrow(const char* phase, const RankTrace& trace, const RankTrace::Epoch& epoch, int from, int to,
             std::int64_t ns) {
    begin(phase, "message", trace, epoch.region, ns);
    add(text_, R"(,"id":"%)" PRIx64 R"(.%u.%u.%d.%d")", trace.group, epoch.region, epoch.epoch, from, to);
    if (*phase == 'f') text_ += R"(,"bp":"e")";
    end();
  }
  void arrow(const char* phase, const RankTrace& trace, const RankTrace::Turn& turn, std::int64_t ns) {
    begin(phase, "message", trace, thread_of(trace, turn), ns);
    add(text_, R"(,"id":"%)" PRIx64 R"(.lane%u.%u.%d.%d")", trace.group, turn.lane, turn.number,
        turn.sends ? trace.rank : turn.peer, turn.sends ? turn.peer : trace.rank);
    if (*phase == 'f') text_ += R"(,"bp":"e")";
    end();
  }
  void slice(const RankTrace::Span& span, const RankTrace& trace, std::uint32_t thread) {
    begin("X", span.name.c_str(), trace, thread, host_ns(trace, span.begin_ns));
    lasts(span.begin_ns, span.end_ns);
    add(text_, R"(,"args":{"track":%u})", span.track);
    end();
  }
  void arrow(const char* phase, const RankTrace& trace, const RankTrace::Span& span, std::uint32_t thread,
             int other) {
    const bool ends = *phase == 'f';
    begin(phase, "message", trace, thread, host_ns(trace, ends ? span.end_ns : span.begin_ns));
    add(text_, R"(,"id":"%)" PRIx64 R"(.own%)" PRIu64 R"(.%d.%d")", trace.group, span.message,
        ends ? other : trace.rank, ends ? trace.rank : other);
    if (ends) text_ += R"(,"bp":"e")";
    end();
  }
  void name(const char* what, const RankTrace& trace, std::uint32_t region, const std::string& is) {
    begin("M", what, trace, region, 0);
    text_ += R"(,"args":{"name":")" + is + "\"}";
    end();
  }

  void lasts(std::uint64_t from_ns, std::uint64_t to_ns) {
    add(text_, R"(,"dur":%)" PRIu64 ".%03d", (to_ns - from_ns) / 1000,
        static_cast<int>((to_ns - from_ns) % 1000));
  }

  // Several groups in one view keep apart.
  static int process_of(const RankTrace& trace) {
    return static_cast<int>(trace.group % 100'000) * 100 + trace.rank;
  }

 private:
  std::string& text_;
  bool first_ = true;
};

void add_epoch(Writer& writer, const RankTrace& trace, const RankTrace::Epoch& epoch) {
  const std::uint64_t start = epoch.at(Event::start), publish = epoch.at(Event::publish),
                      published = std::max(publish, epoch.at(Event::published)),
                      arrived = epoch.at(Event::arrived), done = epoch.at(Event::done);
  const std::uint64_t last = std::max({published, arrived, done});
  writer.slice(name_of(static_cast<Collective>(epoch.collective)), trace, epoch, start, last);
  writer.slice("send", trace, epoch, start, published);
  writer.slice(arrived != 0 ? "wait" : "wait, in vain", trace, epoch, published,
               arrived != 0 ? arrived : last);
  if (arrived != 0) writer.slice("reduce", trace, epoch, arrived, last);
  for (int other = 0; other < trace.nranks; ++other) {
    if (other == trace.rank) continue;
    writer.arrow("s", trace, epoch, trace.rank, other, host_ns(trace, publish));
    if (arrived != 0) writer.arrow("f", trace, epoch, other, trace.rank, host_ns(trace, arrived));
  }
}

void add_turn(Writer& writer, const RankTrace& trace, const RankTrace::Turn& turn) {
  const std::uint64_t start = turn.at(Event::start), went_on = turn.went_on();
  const std::uint64_t last = *std::max_element(turn.at_ns, turn.at_ns + kEvents);
  writer.slice(turn.sends ? "send" : "receive", trace, turn, start, last);
  if (went_on == 0) return writer.slice("wait, in vain", trace, turn, start, last);
  writer.slice("wait", trace, turn, start, went_on);
  writer.slice(turn.sends ? "store" : "read", trace, turn, went_on, last);
  const std::uint64_t end = turn.sends ? turn.at(Event::publish) : went_on;
  if (end != 0) writer.arrow(turn.sends ? "s" : "f", trace, turn, host_ns(trace, end));
}

void add_span(Writer& writer, const RankTrace& trace, const RankTrace::Span& span) {
  writer.slice(span, trace, kFirstTrack + span.track);
  for (int other = 0; other < trace.nranks; ++other) {
    if ((span.to >> other & 1u) != 0) writer.arrow("s", trace, span, kFirstTrack + span.track, other);
    if ((span.from >> other & 1u) != 0) writer.arrow("f", trace, span, kFirstTrack + span.track, other);
  }
}

void add_raw(std::string& text, const RankTrace& trace) {
  add(text,
      R"({"group":"%)" PRIx64 R"(","rank":%d,"nranks":%d,"process":%d,"backend":"%s","offset_ns":%)" PRId64
      R"(,"error_ns":%)" PRId64 R"(,"realtime_ns":%)" PRId64 R"(,"epochs":[)",
      trace.group, trace.rank, trace.nranks, trace.process, trace.backend.c_str(), trace.offset_ns,
      trace.error_ns, trace.realtime_ns);
  for (std::size_t i = 0; i < trace.epochs.size(); ++i) {
    const auto& epoch = trace.epochs[i];
    add(text, "%s[%u,%u,%u", i == 0 ? "\n" : ",\n", epoch.region, epoch.epoch, epoch.collective);
    for (const std::uint64_t ns : epoch.at_ns) add(text, ",%" PRIu64, ns);
    text += "]";
  }
  text += R"(],"turns":[)";
  for (std::size_t i = 0; i < trace.turns.size(); ++i) {
    const auto& turn = trace.turns[i];
    add(text, "%s[%d,%s,%u,%u,%u", i == 0 ? "\n" : ",\n", turn.peer, turn.sends ? "true" : "false", turn.lane,
        turn.number, turn.bytes);
    for (const std::uint64_t ns : turn.at_ns) add(text, ",%" PRIu64, ns);
    text += "]";
  }
  text += R"(],"spans":[)";
  for (std::size_t i = 0; i < trace.spans.size(); ++i) {
    const auto& span = trace.spans[i];
    add(text, R"(%s["%s",%u,%)" PRIu64 ",%" PRIu64 ",%u,%u,%" PRIu64 "]", i == 0 ? "\n" : ",\n",
        span.name.c_str(), span.track, span.begin_ns, span.end_ns, span.to, span.from, span.message);
  }
  text += "]}";
}

}  // namespace

bool is_name(std::string_view name) {
  if (name.empty() || name.size() > 63) return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
}

void append(RankTrace& trace, std::uint32_t region, std::span<const EpochTimes> ring) {
  for (const EpochTimes& line : ring) {
    const std::uint64_t publish = line.at(Event::publish);
    if (line.epoch == 0 || publish == 0) continue;
    RankTrace::Epoch epoch{region, line.epoch, line.collective, {}};
    for (int i = 0; i < kEvents; ++i) {
      const bool before = i < static_cast<int>(Event::publish);
      // What is older than the publishing is an older epoch's; a start is never younger.
      const bool own = before ? line.at_ns[i] <= publish : line.at_ns[i] >= publish;
      epoch.at_ns[i] = own ? line.at_ns[i] : 0;
    }
    trace.epochs.push_back(epoch);
  }
}

void append(RankTrace& trace, std::uint32_t lanes, std::span<const TurnTimes> rings) {
  const std::size_t lines = rings.size() / turn_rings(lanes, trace.nranks);
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    for (int peer = 0; peer < trace.nranks; ++peer) {
      for (const bool sends : {false, true}) {
        for (const TurnTimes& line :
             rings.subspan(turn_ring_of(lane, trace.nranks, peer, sends) * lines, lines)) {
          if (line.number == 0) continue;
          trace.turns.push_back({peer, sends, lane, line.number, line.bytes, {}});
          std::copy(std::begin(line.at_ns), std::end(line.at_ns), trace.turns.back().at_ns);
        }
      }
    }
  }
}

void sort(RankTrace& trace) {
  std::sort(trace.turns.begin(), trace.turns.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.at(Event::start), a.number, a.lane) <
           std::tuple(b.at(Event::start), b.number, b.lane);
  });
  std::sort(trace.epochs.begin(), trace.epochs.end(), [](const auto& a, const auto& b) {
    return std::pair(a.at(Event::publish), a.region) < std::pair(b.at(Event::publish), b.region);
  });
}

void align(std::span<RankTrace> ranks) {
  for (RankTrace& trace : ranks) {
    const auto zero = std::find_if(ranks.begin(), ranks.end(), [&](const RankTrace& other) {
      return other.group == trace.group && other.rank == 0;
    });
    if (zero == ranks.end() || &*zero == &trace || trace.error_ns == 0) continue;
    // What must be added to this rank's times lies in [least, most].
    std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                 most = std::numeric_limits<std::int64_t>::max();
    const ByKey theirs = by_key(*zero);
    const TurnsByKey their_turns = turns_by_key(*zero);
    // By message: when rank 0 began to send what is for this rank, or was to have it.
    std::map<std::uint64_t, std::uint64_t> sent_ns, got_ns;
    for (const auto& span : zero->spans) {
      if ((span.to >> trace.rank & 1u) != 0) sent_ns[span.message] = span.begin_ns;
      if ((span.from >> trace.rank & 1u) != 0) got_ns[span.message] = span.end_ns;
    }
    for (const auto& own : trace.spans) {
      const auto sent = sent_ns.find(own.message), got = got_ns.find(own.message);
      if ((own.from & 1u) != 0 && sent != sent_ns.end())
        least = std::max(least, host_ns(*zero, sent->second) - host_ns(trace, own.end_ns));
      if ((own.to & 1u) != 0 && got != got_ns.end())
        most = std::min(most, host_ns(*zero, got->second) - host_ns(trace, own.begin_ns));
    }
    for (const auto& own : trace.turns) {
      if (own.peer != 0) continue;
      const auto found = their_turns.find({own.lane, trace.rank, !own.sends, own.number});
      if (found == their_turns.end()) continue;
      const auto& other = *found->second;
      const std::uint64_t sent = own.sends ? own.at(Event::publish) : other.at(Event::publish);
      const std::uint64_t arrived = own.sends ? other.at(Event::arrived) : own.at(Event::arrived);
      if (sent == 0 || arrived == 0) continue;
      if (own.sends)
        most = std::min(most, host_ns(*zero, arrived) - host_ns(trace, sent));
      else
        least = std::max(least, host_ns(*zero, sent) - host_ns(trace, arrived));
    }
    for (const auto& own : trace.epochs) {
      const auto found = theirs.find({own.region, own.epoch});
      if (found == theirs.end()) continue;
      const auto& other = *found->second;
      if (own.at(Event::arrived) != 0) {
        least = std::max(least,
                         host_ns(*zero, other.at(Event::publish)) - host_ns(trace, own.at(Event::arrived)));
      }
      if (other.at(Event::arrived) != 0) {
        most =
            std::min(most, host_ns(*zero, other.at(Event::arrived)) - host_ns(trace, own.at(Event::publish)));
      }
    }
    const std::int64_t error = trace.error_ns + zero->error_ns;
    least = std::max(least, -error);
    most = std::min(most, error);
    if (least > most) continue;  // the clocks run at different speeds, or went astray: the offset stays
    trace.offset_ns += least + (most - least) / 2;
    trace.error_ns = (most - least + 1) / 2;
  }
}

std::string chrome_json(std::span<const RankTrace> ranks) {
  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[";
  Writer writer(text);
  for (const RankTrace& trace : ranks) {
    writer.name("process_name", trace, 0,
                "rank " + std::to_string(trace.rank) + " of " + std::to_string(trace.nranks) + ", " +
                    trace.backend + ", process " + std::to_string(trace.process));
    std::map<std::uint32_t, bool> regions;  // and so on: those that have their name
    for (const auto& epoch : trace.epochs) {
      if (!std::exchange(regions[epoch.region], true)) {
        writer.name("thread_name", trace, epoch.region, "region " + std::to_string(epoch.region));
      }
      add_epoch(writer, trace, epoch);
    }
    for (const auto& turn : trace.turns) {
      const std::uint32_t thread = thread_of(trace, turn);
      if (!std::exchange(regions[thread], true)) {
        writer.name("thread_name", trace, thread,
                    (turn.sends ? "to rank " : "from rank ") + std::to_string(turn.peer) + ", lane " +
                        std::to_string(turn.lane));
      }
      add_turn(writer, trace, turn);
    }
    for (const auto& span : trace.spans) {
      if (!std::exchange(regions[kFirstTrack + span.track], true)) {
        writer.name("thread_name", trace, kFirstTrack + span.track,
                    "the program's own, track " + std::to_string(span.track));
      }
      add_span(writer, trace, span);
    }
  }
  text += "\n],\"nearlight\":[";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += ",";
    text += "\n";
    add_raw(text, ranks[i]);
  }
  text += "\n]}\n";
  return text;
}

std::vector<Waits> waits_of(std::span<const RankTrace> ranks) {
  std::vector<ByKey> keys;
  for (const RankTrace& trace : ranks) keys.push_back(by_key(trace));
  std::vector<Waits> all;
  for (const RankTrace& trace : ranks) {
    Waits waits{trace.group, trace.rank};
    std::map<int, double> us_for;
    for (const auto& epoch : trace.epochs) {
      ++waits.epochs;
      const std::uint64_t published = std::max(epoch.at(Event::publish), epoch.at(Event::published));
      if (epoch.at(Event::arrived) == 0) {
        ++waits.unfinished;
        continue;
      }
      const double us = static_cast<double>(std::max(epoch.at(Event::arrived), published) - published) / 1e3;
      waits.waited_us += us;
      std::int64_t latest = std::numeric_limits<std::int64_t>::min();
      int whom = -1;
      for (std::size_t other = 0; other < ranks.size(); ++other) {
        if (ranks[other].group != trace.group || ranks[other].rank == trace.rank) continue;
        const auto found = keys[other].find({epoch.region, epoch.epoch});
        if (found == keys[other].end()) continue;
        const std::int64_t sent = host_ns(ranks[other], found->second->at(Event::publish));
        if (sent > latest) {
          latest = sent;
          whom = ranks[other].rank;
        }
      }
      if (whom >= 0) us_for[whom] += us;
    }
    for (const auto& turn : trace.turns) {
      ++waits.messages;
      if (turn.went_on() == 0) {
        ++waits.unfinished;
        continue;
      }
      const double us = static_cast<double>(turn.went_on() - turn.at(Event::start)) / 1e3;
      waits.waited_us += us;
      us_for[turn.peer] += us;
    }
    for (const auto& [whom, us] : us_for) {
      if (us > waits.most_us) {
        waits.most_us = us;
        waits.most_for = whom;
      }
    }
    all.push_back(waits);
  }
  return all;
}

}  // namespace nearlight::trace
