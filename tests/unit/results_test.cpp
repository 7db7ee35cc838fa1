#include "cli/results.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>

#include "cli/text_file.hpp"
#include "tests/support/sample_results.hpp"

namespace nearlight::cli {
namespace {

using test::sample_results;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kGoodName = "2026-11-30-2xh200-allreduce.json";
const double kNaN = std::numeric_limits<double>::quiet_NaN();

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), with);
}

TEST(Results, SampleHasNoFault) {
  EXPECT_THAT(find_faults(sample_results()), IsEmpty());
  EXPECT_THAT(find_committed_faults(kGoodName, sample_results()), IsEmpty());
}

TEST(Results, SurviveWritingAndReading) {
  ResultFile file = sample_results();
  file.command = "nearlight \"quoted\" \\ \n\ttab";
  file.rows[1].wrong = 7;
  const auto read = parse_results(to_json(file), "text");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(to_json(*read), to_json(file));
  EXPECT_EQ(read->command, file.command);
  EXPECT_EQ(read->env, file.env);
  EXPECT_EQ(read->machine.cpu, file.machine.cpu);
  ASSERT_EQ(read->rows.size(), 2u);
  EXPECT_EQ(read->rows[0].algorithm, "one_shot");
  EXPECT_EQ(read->rows[0].mode, Mode::graph);
  EXPECT_NEAR(*read->rows[0].p999_us, *file.rows[0].p999_us, 1e-5);
  EXPECT_EQ(read->rows[1].wrong, 7u);
  EXPECT_THAT(find_faults(*read), IsEmpty());
}

TEST(Results, MembersThatCameLaterAreOptional) {
  ResultFile file = sample_results();
  for (const char* key : {"forced", "scratch", "cpu_us", "jobs", "skew_us", "cost", "peers"}) {
    EXPECT_THAT(to_json(file), testing::Not(HasSubstr(key)));
  }
  file.rows[0].forced = "algorithm=one_shot,protocol=ll,grid=16,threads=128";
  file.rows[0].scratch = 4096;
  file.rows[0].cpu_us = 0.25;
  file.rows[1].scratch = 4096;
  file.rows[0].jobs = file.rows[1].jobs = 2;
  file.rows[1].skew_us = 1.5;
  file.rows[1].cost = {2.5, -1, 3};
  file.peers = {{"nccl", "as it is"}};
  file.env = {{"NVSHMEM_DISABLE_NVLS", "1"}, {"TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"}};
  EXPECT_THAT(find_faults(file), IsEmpty());
  const auto read = parse_results(to_json(file), "text");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->rows[0].forced, file.rows[0].forced);
  EXPECT_EQ(read->rows[0].scratch, 4096u);
  EXPECT_EQ(read->rows[0].cpu_us, 0.25);
  EXPECT_EQ(read->rows[1].forced, "");
  EXPECT_FALSE(read->rows[1].cpu_us.has_value());
  EXPECT_EQ(read->rows[0].jobs, 2);
  EXPECT_FALSE(read->rows[0].skew_us.has_value());
  EXPECT_EQ(read->rows[1].skew_us, 1.5);
  EXPECT_FALSE(read->rows[0].cost.has_value());
  ASSERT_TRUE(read->rows[1].cost.has_value());
  EXPECT_EQ(read->rows[1].cost->percent, 2.5);
  EXPECT_EQ(read->rows[1].cost->low_percent, -1);
  EXPECT_EQ(read->rows[1].cost->high_percent, 3);
  EXPECT_EQ(read->peers, file.peers);
}

TEST(Results, CpuFileHasNoLaunchFloors) {
  ResultFile file = sample_results();
  file.machine.gpu = "none";
  file.machine.gpus = 0;
  file.machine.link = "shm";
  EXPECT_THAT(find_faults(file), Contains(HasSubstr("launch_floor_us is a number")));
  file.floors.launch_floor_us.reset();
  file.floors.launch_floor_pdl_us.reset();
  file.rows = {test::sample_row(file.floors, "nearlight", 1.0)};
  EXPECT_THAT(find_faults(file), IsEmpty());
  EXPECT_THAT(to_json(file), HasSubstr("\"launch_floor_us\": null"));
}

TEST(Results, WithoutRowsIsFine) {
  ResultFile file = sample_results();
  file.rows.clear();
  const auto read = parse_results(to_json(file), "text");
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_THAT(find_faults(*read), IsEmpty());
}

TEST(Results, ManyRowsOfOneJobAreFine) {  // one for each place in the heap, say
  ResultFile file = sample_results();
  file.rows.push_back(test::sample_row(file.floors, "nearlight", 1.7));
  EXPECT_THAT(find_faults(file), IsEmpty());
}

struct Planted {
  const char* expected;
  std::function<void(ResultFile&)> plant;
};

TEST(FindFaults, FindsEachPlantedFault) {
  const Planted kPlanted[] = {
      {"date is", [](ResultFile& f) { f.date = "30.11.2026"; }},
      {"date is", [](ResultFile& f) { f.date = "2026-13-01"; }},
      {"date is", [](ResultFile& f) { f.date = "2026-11-30T25:00:00Z"; }},
      {"date is", [](ResultFile& f) { f.date = ""; }},
      {"commit is", [](ResultFile& f) { f.commit = "main"; }},
      {"commit is", [](ResultFile& f) { f.commit = "0123"; }},
      {"command is empty", [](ResultFile& f) { f.command = ""; }},
      {"env holds HOME", [](ResultFile& f) { f.env["HOME"] = "x"; }},
      {"env holds MY_NCCL_DEBUG", [](ResultFile& f) { f.env["MY_NCCL_DEBUG"] = "x"; }},
      {"machine.gpu is empty", [](ResultFile& f) { f.machine.gpu = ""; }},
      {"machine.gpus is 0", [](ResultFile& f) { f.machine.gpus = 0; }},
      {"machine.gpus is 2 with machine.gpu 'none'", [](ResultFile& f) { f.machine.gpu = "none"; }},
      {"machine.link is empty", [](ResultFile& f) { f.machine.link = ""; }},
      {"machine.driver is empty", [](ResultFile& f) { f.machine.driver = ""; }},
      {"machine.cuda is empty", [](ResultFile& f) { f.machine.cuda = ""; }},
      {"machine.nccl is empty", [](ResultFile& f) { f.machine.nccl = ""; }},
      {"machine.cpu is empty", [](ResultFile& f) { f.machine.cpu = ""; }},
      {"l2rtt_us is 0", [](ResultFile& f) { f.floors.l2rtt_us = 0; }},
      {"one_way_us is -1", [](ResultFile& f) { f.floors.one_way_us = -1; }},
      {"sol_us is nan", [](ResultFile& f) { f.floors.sol_us = kNaN; }},
      {"below one_way_us", [](ResultFile& f) { f.floors.sol_us = 0.5; }},
      {"store_gbs is inf",
       [](ResultFile& f) { f.floors.store_gbs = std::numeric_limits<double>::infinity(); }},
      {"launch_floor_us is null", [](ResultFile& f) { f.floors.launch_floor_us.reset(); }},
      {"launch_floor_pdl_us is 0", [](ResultFile& f) { f.floors.launch_floor_pdl_us = 0; }},
      {"collective 'allreduce'", [](ResultFile& f) { f.rows[0].collective = "allreduce"; }},
      {"dtype 'bfloat16'", [](ResultFile& f) { f.rows[0].dtype = "bfloat16"; }},
      {"op 'plus'", [](ResultFile& f) { f.rows[0].op = "plus"; }},
      {"op is 'none'", [](ResultFile& f) { f.rows[0].op = "none"; }},
      {"op is 'sum' with collective all_gather", [](ResultFile& f) { f.rows[0].collective = "all_gather"; }},
      {"ranks is 0", [](ResultFile& f) { f.rows[0].ranks = 0; }},
      {"chain is 0", [](ResultFile& f) { f.rows[0].chain = 0; }},
      {"grid is -1", [](ResultFile& f) { f.rows[0].grid = -1; }},
      {"forced is 'fast'", [](ResultFile& f) { f.rows[0].forced = "fast"; }},
      {"forced is 'protocol=ll;grid=16'", [](ResultFile& f) { f.rows[0].forced = "protocol=ll;grid=16"; }},
      {"forced has protocol=simple, but the row says ll",
       [](ResultFile& f) { f.rows[0].forced = "protocol=simple"; }},
      {"forced has algorithm=two_shot, but", [](ResultFile& f) { f.rows[0].forced = "algorithm=two_shot"; }},
      {"forced has grid=8, but the row says 16", [](ResultFile& f) { f.rows[0].forced = "grid=8"; }},
      {"cpu_us is -1", [](ResultFile& f) { f.rows[0].cpu_us = -1; }},
      {"cpu_us is nan", [](ResultFile& f) { f.rows[0].cpu_us = kNaN; }},
      {"no row of nearlight", [](ResultFile& f) { f.rows[1].scratch = 512; }},
      {"no row of nearlight", [](ResultFile& f) { f.rows[1].jobs = 2; }},
      {"jobs is 0", [](ResultFile& f) { f.rows[0].jobs = 0; }},
      {"skew_us is -1", [](ResultFile& f) { f.rows[0].skew_us = -1; }},
      {"skew_us is nan", [](ResultFile& f) { f.rows[0].skew_us = kNaN; }},
      {"cost_percent is 1, not between the quartiles 2 and 3",
       [](ResultFile& f) {
         f.rows[1].cost = {1, 2, 3};
       }},
      {"cost_percent is nan",
       [](ResultFile& f) {
         f.rows[1].cost = {kNaN, 2, 3};
       }},
      {"cost_percent is -100",
       [](ResultFile& f) {
         f.rows[1].cost = {-100, -100, 3};
       }},
      {"cost_percent stands in the row of what it is compared with",
       [](ResultFile& f) {
         f.rows[0].cost = {2, 1, 3};
       }},
      {"peers.nccl is empty", [](ResultFile& f) { f.peers["nccl"] = ""; }},
      {"peers has nvshmem, but no row", [](ResultFile& f) { f.peers["nvshmem"] = "3.4.5"; }},
      {"impl is empty", [](ResultFile& f) { f.rows[1].impl = ""; }},
      {"algorithm is empty", [](ResultFile& f) { f.rows[0].algorithm = ""; }},
      {"protocol is empty", [](ResultFile& f) { f.rows[0].protocol = ""; }},
      {"p50_us 1.6 is below min_us 9", [](ResultFile& f) { f.rows[0].min_us = 9; }},
      {"p95_us 0.5 is below p50_us", [](ResultFile& f) { f.rows[0].p95_us = 0.5; }},
      {"p99_us 0.5 is below p95_us", [](ResultFile& f) { f.rows[0].p99_us = 0.5; }},
      {"p999_us 0.5 is below p99_us", [](ResultFile& f) { f.rows[0].p999_us = 0.5; }},
      {"max_us 0.5 is below p999_us", [](ResultFile& f) { f.rows[0].max_us = 0.5; }},
      {"p50_us is 0", [](ResultFile& f) { f.rows[0].p50_us = 0; }},
      {"max_us is nan", [](ResultFile& f) { f.rows[0].max_us = kNaN; }},
      {"samples is 0", [](ResultFile& f) { f.rows[0].samples = 0; }},
      {"p999_us is null with 20000 samples", [](ResultFile& f) { f.rows[0].p999_us.reset(); }},
      {"p999_us is a number with 9999 samples", [](ResultFile& f) { f.rows[0].samples = 9'999; }},
      {"ratio_sol is", [](ResultFile& f) { f.rows[0].ratio_sol *= 1.1; }},
      {"ratio_limit is", [](ResultFile& f) { f.rows[0].ratio_limit *= 0.9; }},
      {"ratio_limit is", [](ResultFile& f) { f.rows[0].ratio_limit = kNaN; }},
      {"ratio_limit is", [](ResultFile& f) { f.floors.store_gbs = 1; }},
      {"no row of nearlight", [](ResultFile& f) { f.rows.erase(f.rows.begin()); }},
      {"no row of nearlight", [](ResultFile& f) { f.rows[1].bytes *= 2; }},
      {"no row of nearlight", [](ResultFile& f) { f.rows[1].dtype = "f32"; }},
      {"no row of nearlight", [](ResultFile& f) { f.rows[1].op = "max"; }},
      {"no row of nearlight", [](ResultFile& f) { f.rows[1].ranks = 4; }},
      {"no row of nearlight", [](ResultFile& f) { f.rows[1].mode = Mode::eager; }},
  };
  for (const Planted& planted : kPlanted) {
    ResultFile file = sample_results();
    planted.plant(file);
    EXPECT_THAT(find_faults(file), Contains(HasSubstr(planted.expected)));
  }
}

TEST(FindFaults, NamesTheRow) {
  ResultFile file = sample_results();
  file.rows[1].p99_us = 0.5;
  EXPECT_THAT(find_faults(file),
              Contains(testing::StartsWith("row 1 (nccl all_reduce 4096 B graph): p99_us")));
}

TEST(FindFaults, EagerRatioLimitIsBoundedOnly) {
  ResultFile file = sample_results();
  file.floors.eager_floor_us = 6;
  file.rows.clear();
  ResultRow row = test::sample_row(file.floors, "nearlight", 9.0);
  row.mode = Mode::eager;
  trace::Summary summary{1000, 8, 9, 10, 11, {}, 12, 9};
  set_times(row, summary, file.floors);
  file.rows = {row};
  EXPECT_THAT(find_faults(file), IsEmpty());
  file.rows[0].ratio_limit = 11;  // p50 / sol
  EXPECT_THAT(find_faults(file), Contains(HasSubstr("ratio_limit")));
}

TEST(FindCommittedFaults, FindsBadNames) {
  for (const char* name : {"results.json", "2026-11-30-2xh200.json", "2026-11-30-2xh200-allreduce.txt",
                           "26-11-30-2xh200-allreduce.json", "2026-11-30-2xh200-all reduce.json",
                           "2026-11-30--x.json", "x2026-11-30-2xh200-allreduce.json"}) {
    EXPECT_THAT(find_committed_faults(name, sample_results()), Contains(HasSubstr("file name"))) << name;
  }
  EXPECT_THAT(find_committed_faults("2026-11-29-2xh200-allreduce.json", sample_results()),
              Contains(HasSubstr("another day")));
}

TEST(FindCommittedFaults, FindsWhatMayBeMeasuredButNotKept) {
  ResultFile file = sample_results();
  file.commit += "-dirty";
  EXPECT_THAT(find_faults(file), IsEmpty());
  EXPECT_THAT(find_committed_faults(kGoodName, file), Contains(HasSubstr("commit")));
  file.commit = "unknown";
  EXPECT_THAT(find_faults(file), IsEmpty());
  EXPECT_THAT(find_committed_faults(kGoodName, file), Contains(HasSubstr("commit")));

  file = sample_results();
  file.rows[1].wrong = 3;  // a peer's
  EXPECT_THAT(find_committed_faults(kGoodName, file), IsEmpty());
  file.rows[0].wrong = 3;
  EXPECT_THAT(find_committed_faults(kGoodName, file), Contains(HasSubstr("wrong is 3")));
}

TEST(ParseResults, RefusesEachWrongType) {
  const std::string good = to_json(sample_results());
  struct Bad {
    const char *what, *with, *expected;
  };
  const Bad kBad[] = {
      {"\"schema\": 1", "\"schema\": 2", "text: schema is 2, not 1"},
      {"\"schema\": 1", "\"schema\": \"1\"", "text: schema is no whole number"},
      {"\"schema\": 1,", "", "text: schema is missing"},
      {"\"date\": ", "\"day\": ", "text: date is missing"},
      {"\"schema\": 1", "\"schema\": 1, \"more\": 1", "text: more is not known here"},
      {"\"schema\": 1", "\"schema\": 1, \"schema\": 1", "text: schema is given twice"},
      {"\"store_gbs\": 340.0", "\"store_gbs\": \"340\"", "text: store_gbs is no number"},
      {"\"launch_floor_us\": 0.53", "\"launch_floor_us\": true", "text: launch_floor_us is neither"},
      {"\"NCCL_NVLS_ENABLE\":\"0\"", "\"NCCL_NVLS_ENABLE\":0", "text: env holds 'NCCL_NVLS_ENABLE'"},
      {"\"gpus\":2", "\"gpus\":2.5", "text: machine.gpus is no whole number"},
      {"\"gpus\":2", "\"gpus\":\"2\"", "text: machine.gpus is no whole number"},
      {"\"gpus\":2", "\"gpus\":99999999999", "text: machine.gpus is no whole number"},
      {"\"link\":", "\"wire\":", "text: machine.link is missing"},
      {"\"bytes\":4096", "\"bytes\":-1", "text: rows[0].bytes is no whole number"},
      {"\"mode\":\"graph\"", "\"mode\":\"fast\"", "text: rows[0].mode is 'fast'"},
      {"\"wrong\":0", "\"wrong\":null", "text: rows[0].wrong is no whole number"},
      {"\"p50_us\":1.6", "\"p50_us\":null", "text: rows[0].p50_us is no number"},
      {"\"grid\":16", "\"grid\":16,\"speed\":1", "text: rows[0].speed is not known here"},
      {"\"grid\":16", "\"grid\":16,\"forced\":1", "text: rows[0].forced is no text"},
      {"\"grid\":16", "\"grid\":16,\"forced\":\"\"", "text: rows[0].forced is empty"},
      {"\"grid\":16", "\"grid\":16,\"scratch\":0", "text: rows[0].scratch is 0"},
      {"\"grid\":16", "\"grid\":16,\"scratch\":-1", "text: rows[0].scratch is no whole number"},
      {"\"grid\":16", "\"grid\":16,\"cpu_us\":null", "text: rows[0].cpu_us is no number"},
      {"\"grid\":16", "\"grid\":16,\"jobs\":1", "text: rows[0].jobs is below 2"},
      {"\"grid\":16", "\"grid\":16,\"skew_us\":\"1\"", "text: rows[0].skew_us is no number"},
      {"\"rows\": [", "\"rows\": [1,", "text: rows[0] is no object"},
  };
  for (const Bad& bad : kBad) {
    const auto read = parse_results(replaced(good, bad.what, bad.with), "text");
    ASSERT_FALSE(read.ok()) << bad.with;
    EXPECT_EQ(read.status().code(), Code::invalid_argument);
    EXPECT_THAT(read.status().text(), testing::StartsWith(bad.expected));
  }
}

TEST(ParseResults, RefusesWhatIsNoJson) {
  const std::string good = to_json(sample_results());
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("1"), good.substr(0, good.size() / 2), good + "x"}) {
    EXPECT_FALSE(parse_results(text, "text").ok());
  }
}

class InFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "nearlight-results-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()));
  }
  std::filesystem::path folder_;
};

TEST_F(InFolder, WriteThenRead) {
  const std::string path = folder_ / kGoodName;
  ASSERT_TRUE(write_results(sample_results(), path).ok());
  EXPECT_EQ(entries(), 1u);  // nothing beside it
  const auto read = read_results(path);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(to_json(*read), to_json(sample_results()));
}

TEST_F(InFolder, NothingIsWrittenWithAFault) {
  ResultFile file = sample_results();
  file.command.clear();
  file.date.clear();
  const Status status = write_results(file, folder_ / kGoodName);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.text(), HasSubstr("date is"));
  EXPECT_EQ(entries(), 0u);
}

TEST_F(InFolder, AnOldFileStaysWholeWhenWritingFails) {
  const std::string path = folder_ / kGoodName;
  std::filesystem::create_directory(path);  // cannot be replaced by a file
  EXPECT_EQ(write_results(sample_results(), path).code(), Code::system_error);
  EXPECT_EQ(entries(), 1u);
}

TEST_F(InFolder, AMissingFileIsNamed) {
  const Status status = read_results(folder_ / "none.json").status();
  EXPECT_EQ(status.code(), Code::system_error);
  EXPECT_THAT(status.text(), HasSubstr("none.json"));
  EXPECT_EQ(read_results(folder_).status().code(), Code::system_error);  // a folder
}

TEST(Environment, PathsOfTheMachineStayOut) {
  EXPECT_EQ(without_folder("/somewhere/out/run.json"), "run.json");
  EXPECT_EQ(without_folder("/somewhere/workloads/"), "workloads");
  EXPECT_EQ(without_folder("out/run.json"), "out/run.json");
  EXPECT_EQ(without_folder("--json"), "--json");
  EXPECT_EQ(without_folder("/"), "");
  EXPECT_EQ(without_folder(""), "");
}

TEST(RecordedEnvironment, HoldsOnlyTheThreeFamilies) {
  ASSERT_EQ(::setenv("NCCL_NEARLIGHT_TEST", "a=b", 1), 0);
  ASSERT_EQ(::setenv("NEARLIGHT_TEST_EMPTY", "", 1), 0);
  const auto env = recorded_environment();
  EXPECT_EQ(env.at("NCCL_NEARLIGHT_TEST"), "a=b");
  EXPECT_EQ(env.at("NEARLIGHT_TEST_EMPTY"), "");
  for (const auto& [name, value] : env) EXPECT_TRUE(is_recorded(name)) << name;
  EXPECT_FALSE(env.contains("PATH"));
}

TEST(NowUtc, IsADateThatAFileMayHave) {
  ResultFile file = sample_results();
  file.date = now_utc();
  EXPECT_THAT(find_faults(file), IsEmpty());
}

}  // namespace
}  // namespace nearlight::cli
