// Every file under bench/results/ must be one that the rules allow.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "cli/against_peer.hpp"
#include "cli/results.hpp"
#include "cli/text_file.hpp"
#include "tests/support/sample_results.hpp"

namespace nearlight::cli {
namespace {

namespace fs = std::filesystem;

// One line a fault, led by the file's name; README.md may lie there, too.
std::vector<std::string> faults_in(const fs::path& folder) {
  std::vector<std::string> lines;
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    const std::string name = path.filename();
    if (name == "README.md") continue;
    const auto file = read_results(path);
    if (!file.ok()) {
      lines.push_back(file.status().text());
      continue;
    }
    for (const std::string& fault : find_committed_faults(name, *file)) lines.push_back(name + ": " + fault);
  }
  return lines;
}

TEST(CommittedResults, HaveNoFault) {
  const fs::path folder = fs::path(NEARLIGHT_SOURCE_DIR) / "bench" / "results";
  ASSERT_TRUE(fs::is_directory(folder)) << folder;
  for (const std::string& line : faults_in(folder)) ADD_FAILURE() << line;
}

// The route takes nothing that NCCL, measured in the same run, does faster: there it should hand over.
TEST(CommittedResults, TheChosenPathIsNowhereSlowerThanNccl) {
  std::size_t compared = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(NEARLIGHT_SOURCE_DIR) / "bench" / "results")) {
    if (entry.path().extension() != ".json") continue;
    const auto file = read_results(entry.path());
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    compared += against_peer(*file, "nccl").size();
    for (const std::string& line : slower_than_peer(*file, "nccl", kSlowerThanNccl)) {
      ADD_FAILURE() << entry.path().filename() << ": " << line;
    }
  }
  EXPECT_GE(compared, 8u) << "nothing to compare with";
}

TEST(CommittedResults, AFaultyFileWouldBeFound) {
  std::string pattern = (fs::temp_directory_path() / "nearlight-committed-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const fs::path folder = pattern;
  const std::string good = to_json(test::sample_results());
  ASSERT_TRUE(write_text_file(folder / "README.md", "text").ok());
  ASSERT_TRUE(write_text_file(folder / "2026-11-30-a-b.json", good).ok());
  EXPECT_EQ(faults_in(folder).size(), 0u);
  ASSERT_TRUE(write_text_file(folder / "2026-11-29-a-b.json", good).ok());        // another day
  ASSERT_TRUE(write_text_file(folder / "2026-11-30-a-c.json", good + ",").ok());  // no JSON
  ASSERT_TRUE(write_text_file(folder / "notes.txt", "text").ok());
  EXPECT_EQ(faults_in(folder).size(), 3u);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace nearlight::cli
