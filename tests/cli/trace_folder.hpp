// Traces of communicators in this process, and what must hold of the messages in them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "cli/trace_command.hpp"

namespace nearlight::test {

// A folder that NEARLIGHT_TRACE names for the life of this object.
class TraceFolder {
 public:
  TraceFolder() : path_(testing::TempDir() + "nearlight-traces-" + std::to_string(::getpid())) {
    std::filesystem::create_directory(path_);
    ::setenv("NEARLIGHT_TRACE", path_.c_str(), 1);
  }
  TraceFolder(const TraceFolder&) = delete;
  ~TraceFolder() {
    ::unsetenv("NEARLIGHT_TRACE");
    std::filesystem::remove_all(path_);
  }
  std::vector<trace::RankTrace> traces() const {
    auto traces = cli::read_traces(path_);
    EXPECT_TRUE(traces.ok()) << traces.status().to_string();
    return traces.ok() ? *traces : std::vector<trace::RankTrace>();
  }

 private:
  std::string path_;
};

// The steps of every turn are in order, both ends have it, and nobody has what is not sent yet, as far as the
// clocks agree. Returns how many turns were received.
inline std::size_t expect_whole_turns(const std::vector<trace::RankTrace>& ranks) {
  using trace::Event;
  std::map<std::tuple<std::uint64_t, int, int, std::uint32_t, std::uint32_t>,
           std::pair<const trace::RankTrace*, const trace::RankTrace::Turn*>>
      sent;  // group, from, to, lane, number
  std::size_t received = 0;
  for (const auto& rank : ranks) {
    for (const auto& turn : rank.turns) {
      const std::vector<Event> steps = turn.sends
                                           ? std::vector{Event::start, Event::publish, Event::published}
                                           : std::vector{Event::start, Event::arrived, Event::done};
      std::uint64_t before = 1;
      for (const Event step : steps) {
        EXPECT_GE(turn.at(step), before) << "step " << static_cast<int>(step) << " of turn " << turn.number;
        before = turn.at(step);
      }
      EXPECT_GT(turn.bytes, 0u);
      if (turn.sends) sent[{rank.group, rank.rank, turn.peer, turn.lane, turn.number}] = {&rank, &turn};
    }
  }
  for (const auto& rank : ranks) {
    for (const auto& turn : rank.turns) {
      if (turn.sends) continue;
      ++received;
      const auto found = sent.find({rank.group, turn.peer, rank.rank, turn.lane, turn.number});
      if (found == sent.end()) {
        ADD_FAILURE() << "turn " << turn.number << " from rank " << turn.peer << " was never sent";
        continue;
      }
      const auto& [from, other] = found->second;
      EXPECT_EQ(turn.bytes, other->bytes) << "turn " << turn.number;
      EXPECT_GE(static_cast<std::int64_t>(turn.at(Event::arrived)) + rank.offset_ns + rank.error_ns,
                static_cast<std::int64_t>(other->at(Event::publish)) + from->offset_ns - from->error_ns)
          << "turn " << turn.number;
      sent.erase(found);
    }
  }
  EXPECT_TRUE(sent.empty()) << sent.size() << " turns that nobody received";
  return received;
}

}  // namespace nearlight::test
