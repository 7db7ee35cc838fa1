// `nearlight trace`: the file it writes is whole, and its arrows join what was sent with its arrival.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "base/collective.hpp"
#include "cli/exit_code.hpp"
#include "cli/trace_command.hpp"
#include "tests/cli/overlap_timeline.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/cli/trace_folder.hpp"
#include "tests/support/fused.hpp"
#include "tests/support/gemv.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

json read_json(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file);
}

struct Counted {
  std::size_t slices = 0, arrows = 0;
  std::map<int, double> ended;  // by process and thread: where the last outermost slice has ended
};

// Every arrow has one beginning and one end, in this order, between two processes; slices are not negative.
Counted check_events(const json& events) {
  Counted counted;
  std::map<std::string, json> begun;
  for (const json& event : events) {
    const std::string phase = event.at("ph");
    if (phase == "X") {
      ++counted.slices;
      EXPECT_GE(event.at("dur").get<double>(), 0);
      EXPECT_GT(event.at("ts").get<double>(), 0);
      const json& args = event.at("args");
      EXPECT_GT(args.contains("turn") ? args.at("turn").get<int>() : args.at("epoch").get<int>(), 0);
    } else if (phase == "s") {
      EXPECT_TRUE(begun.emplace(event.at("id"), event).second) << "two arrows are one: " << event;
    }
  }
  for (const json& event : events) {
    if (event.at("ph") != "f") continue;
    ++counted.arrows;
    const auto from = begun.find(event.at("id"));
    if (from == begun.end()) {
      ADD_FAILURE() << "an arrow from nowhere: " << event;
      continue;
    }
    EXPECT_LE(from->second.at("ts").get<double>(), event.at("ts").get<double>()) << event;
    EXPECT_NE(from->second.at("pid"), event.at("pid"));
    begun.erase(from);
  }
  // A ring may have lost what another one still has; here none is full.
  EXPECT_TRUE(begun.empty()) << begun.size() << " arrows without an end";
  return counted;
}

TEST(Trace, OfBenchBetweenProcesses) {
  const std::string path = temporary_path("trace.json"), results = temporary_path("results.json");
  const Ran ran = run_program("trace -o '" + path +
                              "' -- '" NEARLIGHT_PROGRAM
                              "' bench all_reduce --backend host --ranks 3 -b 8 -e 8K -f 32 -n 20 -c 1 "
                              "--in-place 0 --json '" +
                              results + "'");
  ASSERT_EQ(ran.exit_code, cli::kExitOk) << ran.err << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("all_reduce"));  // the program's own output
  EXPECT_THAT(ran.err, HasSubstr(path + ", for ui.perfetto.dev"));
  EXPECT_THAT(ran.err, HasSubstr("most for"));
  const json trace = read_json(path);
  unlink(path.c_str());
  unlink(results.c_str());
  const Counted counted = check_events(trace.at("traceEvents"));
  EXPECT_GT(counted.slices, 300u);
  EXPECT_GT(counted.arrows, 300u);
  std::size_t ranks = 0;
  for (const json& rank : trace.at("nearlight")) {
    ++ranks;
    EXPECT_EQ(rank.at("nranks"), 3);
    ASSERT_FALSE(rank.at("epochs").empty());
    for (const json& row : rank.at("epochs")) {
      // start, publish, published (0: of a barrier), arrived, done
      std::uint64_t before = 0;
      for (std::size_t i = 3; i < 8; ++i) {
        const auto ns = row[i].get<std::uint64_t>();
        if (i == 5 && ns == 0) continue;
        EXPECT_GE(ns, before) << row;
        before = ns;
      }
    }
  }
  EXPECT_EQ(ranks % 3, 0u);
}

// Whatever the path, each step of each AllReduce has its time.
TEST(Trace, OfEveryPathHasAllSteps) {
  const std::string path = temporary_path("paths.json"), results = temporary_path("paths-results.json");
  for (const std::string forced : {"ll", "simple", "sentinel", "ll128", "two_shot", "two_shot_atomic"}) {
    const Ran ran = run_program("trace -o '" + path +
                                "' -- env NEARLIGHT_DETERMINISTIC=0 NEARLIGHT_FORCE_PATH=" + forced +
                                " '" NEARLIGHT_PROGRAM
                                "' bench all_reduce --backend host --ranks 3 -b 8K -e 8K -n 20 -c 1 "
                                "--in-place 0 --json '" +
                                results + "'");
    ASSERT_EQ(ran.exit_code, cli::kExitOk) << forced << ": " << ran.err << ran.out;
    const json trace = read_json(path);
    unlink(path.c_str());
    unlink(results.c_str());
    std::size_t all_reduces = 0;
    for (const json& rank : trace.at("nearlight")) {
      for (const json& row : rank.at("epochs")) {
        if (row[2] != 1) continue;  // a barrier
        ++all_reduces;
        for (std::size_t i = 3; i < 8; ++i) EXPECT_GT(row[i].get<std::uint64_t>(), 0u) << forced << row;
      }
    }
    EXPECT_GE(all_reduces, 60u) << forced;
  }
}

// Messages of lines and of cells, both ends of each.
TEST(Trace, OfSendsAndReceives) {
  const std::string path = temporary_path("messages.json"), results = temporary_path("messages-results.json");
  const Ran ran = run_program("trace -o '" + path +
                              "' -- '" NEARLIGHT_PROGRAM
                              "' bench send_recv --backend host --ranks 3 -b 8 -e 32K -f 64 -n 20 -c 1 "
                              "--in-place 0 --json '" +
                              results + "'");
  ASSERT_EQ(ran.exit_code, cli::kExitOk) << ran.err << ran.out;
  EXPECT_THAT(ran.err, HasSubstr("messages"));
  const json trace = read_json(path);
  unlink(path.c_str());
  unlink(results.c_str());
  const Counted counted = check_events(trace.at("traceEvents"));
  EXPECT_GE(counted.arrows, 3u * 3 * 20);
  std::size_t turns = 0;
  std::map<std::string, std::size_t> names;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "M" && event.at("name") == "thread_name") ++names[event.at("args").at("name")];
  }
  EXPECT_EQ(names["to rank 1, lane 0"], 1u);  // of rank 0
  EXPECT_EQ(names["from rank 2, lane 0"], 1u);
  for (const json& rank : trace.at("nearlight")) turns += rank.at("turns").size();
  EXPECT_GE(turns, 2 * counted.arrows);
}

// The ladder's rung 8: what is computed and what flies, with the arrows between.
TEST(Trace, OfTheLaddersOverlap) {
  const std::string path = temporary_path("overlap.json");
  const Ran ran = run_program("trace -o '" + path + "' -- '" NEARLIGHT_OVERLAP "'");
  ASSERT_EQ(ran.exit_code, cli::kExitOk) << ran.err << ran.out;
  EXPECT_THAT(ran.out, HasSubstr("% hidden"));
  const json trace = read_json(path);
  unlink(path.c_str());
  std::map<std::string, int> begun, ended, slices;
  for (const json& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph");
    if (phase == "X") ++slices[event.at("name")];
    if (phase == "s") ++begun[event.at("id")];
    if (phase == "f") ++ended[event.at("id")];
  }
  EXPECT_EQ(begun, ended);
  EXPECT_EQ(begun.size(), 2u * 2 * 16);  // groups, directions, tiles
  for (const auto& [id, times] : begun) EXPECT_EQ(times, 1) << id;
  EXPECT_EQ(slices["compute 7"], 4);
  EXPECT_EQ(slices["exchange 15"], 4);
  const std::string folder = temporary_path("overlap-traces");
  ASSERT_EQ(std::system(("mkdir -p '" + folder + "'").c_str()), 0);
  std::ofstream(folder + "/all.json") << trace.dump();
  const auto traces = cli::read_traces(folder);
  ASSERT_EQ(std::system(("rm -r '" + folder + "'").c_str()), 0);
  ASSERT_TRUE(traces.ok()) << traces.status().to_string();
  expect_overlap_timeline(*traces);
}

TEST(TraceOfMessages, EveryTurnHasBothEndsAndItsBytes) {
  const TraceFolder folder;
  std::size_t bytes = 0;
  const std::string problems =
      run_communicators(Kind::threads, 3, patient(), [](auto& comm, Exchange&, Problems& trouble) {
        std::vector<std::uint8_t> memory(100'000);
        for (const std::size_t count : {1u, 4096u, 70'000u}) {
          // 100 small ones with a large one, from rank 0 to rank 1 alone.
          std::vector<runtime::MessageCall> calls;
          for (std::size_t i = 0; i < 100; ++i)
            calls.push_back({comm.rank() == 0, &memory[i], 1, DataType::u8, 1 - comm.rank()});
          calls.push_back({comm.rank() == 0, &memory[200], count, DataType::u8, 1 - comm.rank()});
          if (comm.rank() == 2) break;
          const Status status = comm.messages(calls, nullptr);
          if (!status.ok()) trouble.add("%s", status.to_string().c_str());
          runtime::CallOptions untraced;
          untraced.untraced = true;
          if (!comm.messages(calls, nullptr, untraced).ok()) trouble.add("untraced");
        }
      });
  ASSERT_EQ(problems, "");
  const auto traces = folder.traces();
  ASSERT_EQ(traces.size(), 3u);
  EXPECT_GE(expect_whole_turns(traces), 303u);
  EXPECT_TRUE(traces[0].turns.front().sends);
  EXPECT_TRUE(traces[2].turns.empty());
  for (const auto& turn : traces[1].turns) bytes += turn.bytes;
  EXPECT_EQ(bytes, 300u + 1 + 4096 + 70'000);
}

TEST(TraceOfMessages, WhatNeverCameIsAWaitInVain) {
  const TraceFolder folder;
  runtime::Options options = patient();
  options.timeout = std::chrono::milliseconds(100);
  const std::string problems =
      run_communicators(Kind::threads, 2, options, [](auto& comm, Exchange&, Problems& trouble) {
        std::vector<std::uint8_t> memory(64);
        if (comm.rank() == 1) return;
        const std::vector<runtime::MessageCall> calls{{true, &memory[0], 8, DataType::u8, 1},
                                                      {false, &memory[32], 8, DataType::u8, 1}};
        if (comm.messages(calls, nullptr).code() != Code::timeout) trouble.add("no timeout");
      });
  ASSERT_EQ(problems, "");
  const auto traces = folder.traces();
  ASSERT_EQ(traces.size(), 2u);
  ASSERT_EQ(traces[0].turns.size(), 2u);
  for (const auto& turn : traces[0].turns) EXPECT_EQ(turn.went_on() != 0, turn.sends);
  EXPECT_EQ(trace::waits_of(traces)[0].unfinished, 1u);
  EXPECT_THAT(trace::chrome_json(std::vector{traces[0]}), HasSubstr("wait, in vain"));
}

// Every step of every round, in order, of fused rows and of both products.
TEST(Trace, OfCallsThatHaveOneWay) {
  const TraceFolder folder;
  runtime::Options options = patient();
  options.packets = 40;  // in several rounds
  const std::string problems =
      run_communicators(Kind::threads, 3, options, [](auto& comm, Exchange&, Problems& trouble) {
        const auto call = [&](auto problem) {
          problem.nranks = comm.nranks();
          problem.tokens = 3;
          std::vector<std::vector<exec::Vec>> memory;
          std::vector<void*> places;
          for (const ProblemBuffer& buffer : problem.buffers_of(comm.rank())) {
            memory.emplace_back(buffer.bytes / sizeof(exec::Vec) + 1);
            places.push_back(memory.back().data());
            std::memcpy(places.back(), buffer.content.data(), buffer.content.size());
          }
          const Status status = make(comm, problem.call_on(places, comm.rank(), false));
          if (!status.ok()) trouble.add("%s", status.to_string().c_str());
        };
        GemvProblem gathering;
        gathering.gathers = true;
        call(FusedProblem());
        call(GemvProblem());
        call(gathering);
      });
  ASSERT_EQ(problems, "");
  const auto traces = folder.traces();
  ASSERT_EQ(traces.size(), 3u);
  for (const auto& rank : traces) {
    std::map<std::uint32_t, std::size_t> rounds;
    for (const auto& epoch : rank.epochs) {
      ++rounds[epoch.collective];
      std::uint64_t before = 1;
      for (const auto step : {trace::Event::start, trace::Event::publish, trace::Event::published,
                              trace::Event::arrived, trace::Event::done}) {
        EXPECT_GE(epoch.at(step), before)
            << name_of(static_cast<Collective>(epoch.collective)) << ", step " << static_cast<int>(step);
        before = epoch.at(step);
      }
    }
    for (const Collective collective :
         {Collective::all_reduce_rms_norm, Collective::gemv_all_reduce, Collective::all_gather_gemv})
      EXPECT_GT(rounds[static_cast<std::uint32_t>(collective)], 1u) << name_of(collective);
  }
}

TEST(Trace, TheProgramsStatusIsTheStatus) {
  EXPECT_EQ(run_program("trace -- sh -c 'exit 7'").exit_code, 7);
  const Ran nothing = run_program("trace -- true");
  EXPECT_EQ(nothing.exit_code, cli::kExitUnfit);
  EXPECT_THAT(nothing.err, HasSubstr("nothing was traced"));
  EXPECT_EQ(run_program("trace -- /no/such/program").exit_code, 127);
  EXPECT_EQ(run_program("trace").exit_code, cli::kExitUsage);
  EXPECT_EQ(run_program("trace --").exit_code, cli::kExitUsage);
  EXPECT_EQ(run_program("trace --flag -- true").exit_code, cli::kExitUsage);
}

TEST(Trace, AFolderThatIsNoneIsAnErrorThatNamesTheVariable) {
  const Ran ran =
      run_program("bench all_reduce --backend host -b 8 -e 8 -n 10", 60, "NEARLIGHT_TRACE=/no/such/folder");
  EXPECT_NE(ran.exit_code, cli::kExitOk);
  EXPECT_THAT(ran.err, HasSubstr("NEARLIGHT_TRACE is \"/no/such/folder\""));
}

// ---- what is made of the times ----------------------------------------------------------------------------

trace::RankTrace::Epoch epoch(std::uint32_t number, std::uint64_t start_ns, std::uint64_t publish_ns,
                              std::uint64_t published_ns, std::uint64_t arrived_ns, std::uint64_t done_ns) {
  return {0, number, 1, {start_ns, publish_ns, published_ns, arrived_ns, done_ns}};
}

trace::RankTrace rank_of(int rank, std::vector<trace::RankTrace::Epoch> epochs) {
  trace::RankTrace trace;
  trace.group = 42;
  trace.rank = rank;
  trace.nranks = 2;
  trace.backend = "cuda";
  trace.epochs = std::move(epochs);
  return trace;
}

TEST(TraceMath, WaitsAreBlamedOnTheLastToSend) {
  const std::vector<trace::RankTrace> ranks = {
      rank_of(0, {epoch(1, 1000, 1000, 1000, 9000, 9500), epoch(2, 10'000, 10'000, 10'000, 10'100, 10'200)}),
      rank_of(1, {epoch(1, 8000, 8500, 8600, 8700, 9000)})};
  const auto waits = trace::waits_of(ranks);
  EXPECT_NEAR(waits[0].waited_us, 8.1, 1e-9);
  EXPECT_EQ(waits[0].most_for, 1);
  EXPECT_NEAR(waits[0].most_us, 8.0, 1e-9);
  EXPECT_EQ(waits[0].epochs, 2u);
  EXPECT_NEAR(waits[1].waited_us, 0.1, 1e-9);
  EXPECT_THAT(cli::waits_table(waits), HasSubstr("rank 1 (99 %)"));
}

// Rank 1's clock is 5000 ns ahead, and its offset wrong by up to 4000 ns. Messages take 700 ns each way.
TEST(TraceMath, MessagesMakeClocksAgree) {
  std::vector<trace::RankTrace> ranks = {rank_of(0, {epoch(1, 10'000, 10'000, 10'000, 11'700, 12'000),
                                                     epoch(2, 20'000, 21'000, 21'000, 21'700, 22'000)}),
                                         rank_of(1, {epoch(1, 16'000, 16'000, 16'000, 16'000 + 50, 17'000),
                                                     epoch(2, 25'000, 26'000, 26'000, 26'700, 27'000)})};
  ranks[1].offset_ns = -3000;
  ranks[1].error_ns = 4000;
  EXPECT_GT(ranks[0].epochs[1].at(trace::Event::publish), 0u);
  trace::align(ranks);
  EXPECT_NEAR(static_cast<double>(ranks[1].offset_ns), -5000, 360);
  EXPECT_LE(ranks[1].error_ns, 710);
  EXPECT_EQ(ranks[0].offset_ns, 0);
  // A clock without an error stays.
  ranks[1].offset_ns = -3000;
  ranks[1].error_ns = 0;
  trace::align(ranks);
  EXPECT_EQ(ranks[1].offset_ns, -3000);
}

// The same by turns of messages, and who waits for whom by them: to rank 0 in 700 ns, and back.
TEST(TraceMath, TurnsMakeClocksAgree) {
  std::vector<trace::RankTrace> ranks = {rank_of(0, {}), rank_of(1, {})};
  ranks[0].turns = {{1, false, 2, 7, 64, {9000, 0, 0, 11'700, 12'000}},
                    {1, true, 2, 3, 64, {20'000, 21'000, 21'100, 0, 0}}};
  ranks[1].turns = {{0, true, 2, 7, 64, {15'000, 16'000, 16'200, 15'500, 0}},
                    {0, false, 2, 3, 64, {25'000, 0, 0, 26'700, 27'000}}};
  ranks[1].offset_ns = -3000;
  ranks[1].error_ns = 4000;
  const auto waits = trace::waits_of(ranks);
  EXPECT_EQ(waits[0].messages, 2u);
  EXPECT_NEAR(waits[0].waited_us, 2.7 + 1.0, 1e-9);
  EXPECT_EQ(waits[0].most_for, 1);
  EXPECT_NEAR(waits[1].waited_us, 0.5 + 1.7, 1e-9);
  trace::align(ranks);
  EXPECT_NEAR(static_cast<double>(ranks[1].offset_ns), -5000, 360);
  EXPECT_LE(ranks[1].error_ns, 710);
  // Another lane's turn of that number says nothing.
  ranks[1].turns[0].lane = ranks[1].turns[1].lane = 1;
  ranks[1].offset_ns = -3000;
  ranks[1].error_ns = 4000;
  trace::align(ranks);
  EXPECT_EQ(ranks[1].offset_ns, -3000);
}

// And by arrows of the program's own.
TEST(TraceMath, SpansMakeClocksAgree) {
  std::vector<trace::RankTrace> ranks = {rank_of(0, {}), rank_of(1, {})};
  ranks[0].spans = {{"out", 1, 21'000, 21'100, 2, 0, 5}, {"in", 1, 9000, 11'700, 0, 2, 4}};
  ranks[1].spans = {{"in", 1, 25'000, 26'700, 0, 1, 5}, {"out", 1, 16'000, 16'200, 1, 0, 4}};
  ranks[1].offset_ns = -3000;
  ranks[1].error_ns = 4000;
  trace::align(ranks);
  EXPECT_NEAR(static_cast<double>(ranks[1].offset_ns), -5000, 360);
  EXPECT_LE(ranks[1].error_ns, 710);
  // Other messages say nothing.
  ranks[1].spans[0].message = ranks[1].spans[1].message = 6;
  ranks[1].offset_ns = -3000;
  ranks[1].error_ns = 4000;
  trace::align(ranks);
  EXPECT_EQ(ranks[1].offset_ns, -3000);
}

TEST(TraceMath, RingsOfTurnsAreReadByLanePeerAndDirection) {
  trace::RankTrace trace = rank_of(0, {});
  std::vector<trace::TurnTimes> rings(trace::turn_rings(2, 2) * 4);
  rings[trace::turn_ring_of(1, 2, 1, true) * 4 + 2] = {6, 24, {10, 30, 40, 20, 0}, {}};
  rings[trace::turn_ring_of(0, 2, 1, false) * 4 + 1] = {5, 8, {3, 0, 0, 7, 9}, {}};
  trace::append(trace, 2, rings);
  trace::sort(trace);
  ASSERT_EQ(trace.turns.size(), 2u);
  EXPECT_FALSE(trace.turns[0].sends);
  EXPECT_EQ(trace.turns[0].lane, 0u);
  EXPECT_EQ(trace.turns[0].went_on(), 7u);
  EXPECT_TRUE(trace.turns[1].sends);
  EXPECT_EQ(trace.turns[1].lane, 1u);
  EXPECT_EQ(trace.turns[1].peer, 1);
  EXPECT_EQ(trace.turns[1].number, 6u);
  EXPECT_EQ(trace.turns[1].bytes, 24u);
  EXPECT_EQ(trace.turns[1].went_on(), 20u);
}

TEST(TraceMath, WhatAnOlderEpochLeftIsNotThisOnes) {
  std::vector<trace::EpochTimes> ring(4);
  ring[1] = {5, 1, {900, 1000, 1010, 300, 1100}, {}};  // nothing has arrived; 300 is epoch 1's
  trace::RankTrace trace = rank_of(0, {});
  trace::append(trace, 3, ring);
  ASSERT_EQ(trace.epochs.size(), 1u);
  EXPECT_EQ(trace.epochs[0].region, 3u);
  EXPECT_EQ(trace.epochs[0].at(trace::Event::start), 900u);
  EXPECT_EQ(trace.epochs[0].at(trace::Event::arrived), 0u);
  EXPECT_EQ(trace.epochs[0].at(trace::Event::done), 1100u);
  EXPECT_EQ(trace::waits_of(std::vector{trace})[0].unfinished, 1u);
  const json events = json::parse(trace::chrome_json(std::vector{trace})).at("traceEvents");
  for (const json& event : events) EXPECT_NE(event.at("ph"), "f") << event;
  EXPECT_THAT(events.dump(), HasSubstr("wait, in vain"));
}

TEST(TraceMath, EveryCollectiveHasItsNameInTheTimeline) {
  for (const auto& list :
       {std::span<const Collective>(kCollectives), std::span<const Collective>(kOneWayCollectives)}) {
    for (const Collective collective : list) {
      std::vector<trace::EpochTimes> ring(4);
      ring[1] = {5, static_cast<std::uint32_t>(collective), {900, 1000, 1010, 1050, 1100}, {}};
      trace::RankTrace trace = rank_of(0, {});
      trace::append(trace, 3, ring);
      const json events = json::parse(trace::chrome_json(std::vector{trace})).at("traceEvents");
      EXPECT_TRUE(std::any_of(events.begin(), events.end(), [&](const json& event) {
        return event.at("ph") == "X" && event.at("name") == name_of(collective);
      })) << name_of(collective);
    }
  }
}

TEST(TraceFiles, WhatIsNoTraceIsNamed) {
  const std::string folder = temporary_path("traces");
  ASSERT_EQ(std::system(("mkdir -p '" + folder + "'").c_str()), 0);
  EXPECT_TRUE(cli::read_traces(folder).value().empty());
  for (const char* text : {"", "{}", R"({"nearlight":[{"group":"x"}]})", R"({"nearlight":[1]})", "[[["}) {
    std::ofstream(folder + "/bad.json") << text;
    const auto traces = cli::read_traces(folder);
    EXPECT_EQ(traces.status().code(), Code::invalid_argument) << text;
    EXPECT_THAT(traces.status().text(), HasSubstr("bad.json"));
  }
  ASSERT_EQ(std::system(("rm -r '" + folder + "'").c_str()), 0);
  EXPECT_FALSE(cli::read_traces(folder).ok());
}

}  // namespace
}  // namespace nearlight::test
