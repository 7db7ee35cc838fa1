#include "cli/workload.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "cli/text_file.hpp"

namespace nearlight::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kGood = R"({
  "name": "some-model", "source": "made up", "hidden_size": 100, "layers": 3, "dtype": "bf16",
  "all_reduces_per_step": 7, "tp": [2, 4], "batch": [1, 8]
})";

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), with);
}

TEST(Workload, BuiltInNumbersAreThePublishedOnes) {
  struct Model {
    int hidden_size, layers;
  };
  const std::map<std::string, Model> models = {
      {"llama-3.1-8b", {4096, 32}}, {"llama-3.1-70b", {8192, 80}},   {"llama-3.1-405b", {16384, 126}},
      {"qwen2.5-72b", {8192, 80}},  {"qwen3-235b-a22b", {4096, 94}}, {"deepseek-v3", {7168, 61}},
      {"mixtral-8x7b", {4096, 32}}, {"mixtral-8x22b", {6144, 56}},
  };
  EXPECT_EQ(built_in_workloads().size(), models.size());
  for (const std::string& name : built_in_workloads()) {
    ASSERT_TRUE(models.contains(name)) << name;
    const auto workload = load_workload(name);
    ASSERT_TRUE(workload.ok()) << workload.status().to_string();
    EXPECT_EQ(workload->name, name);
    EXPECT_EQ(workload->hidden_size, models.at(name).hidden_size) << name;
    EXPECT_EQ(workload->layers, models.at(name).layers) << name;
    // Attention and feed-forward output of each layer, and the embedding.
    EXPECT_EQ(workload->all_reduces_per_step, 2 * workload->layers + 1) << name;
    EXPECT_EQ(workload->dtype, DataType::bf16) << name;
    EXPECT_THAT(workload->tp, ElementsAre(2, 4, 8)) << name;
    EXPECT_THAT(workload->batch, ElementsAre(1, 8, 32, 64)) << name;
    EXPECT_FALSE(workload->source.empty()) << name;
  }
}

TEST(Workload, BuiltInNamesAreSorted) {
  const auto names = built_in_workloads();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
}

TEST(Workload, SizesAreOneABatch) {
  const auto workload = parse_workload(kGood, "text");
  ASSERT_TRUE(workload.ok()) << workload.status().to_string();
  const auto sizes = sizes_of(*workload);
  ASSERT_EQ(sizes.size(), 2u);
  EXPECT_EQ(sizes[0].batch, 1);
  EXPECT_EQ(sizes[0].count, 100u);
  EXPECT_EQ(sizes[0].bytes, 200u);
  EXPECT_EQ(sizes[0].per_step, 7);
  EXPECT_EQ(sizes[1].batch, 8);
  EXPECT_EQ(sizes[1].count, 800u);
  EXPECT_EQ(sizes[1].bytes, 1600u);
}

TEST(Workload, SizesFollowTheType) {
  const auto workload = parse_workload(replaced(kGood, "bf16", "f32"), "text");
  ASSERT_TRUE(workload.ok());
  EXPECT_EQ(sizes_of(*workload)[0].bytes, 400u);
}

TEST(Workload, TheLargestDoesNotOverflow) {
  auto workload = parse_workload(
      replaced(replaced(kGood, "\"hidden_size\": 100", "\"hidden_size\": 1048576"), "[1, 8]", "[1048576]"),
      "text");
  ASSERT_TRUE(workload.ok()) << workload.status().to_string();
  EXPECT_EQ(sizes_of(*workload)[0].bytes, std::size_t{1} << 41);
}

TEST(Workload, AFileIsReadByItsPath) {
  std::string pattern = (std::filesystem::temp_directory_path() / "nearlight-workload-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const std::string path = pattern + "/mine.json";
  ASSERT_TRUE(write_text_file(path, kGood).ok());
  const auto workload = load_workload(path);
  EXPECT_TRUE(workload.ok()) << workload.status().to_string();
  ASSERT_TRUE(write_text_file(path, replaced(kGood, "\"layers\": 3", "\"layers\": 0")).ok());
  EXPECT_THAT(load_workload(path).status().text(), HasSubstr(path + ": layers is 0"));
  std::filesystem::remove_all(pattern);
}

TEST(Workload, AnUnknownNameListsTheKnownOnes) {
  const Status status = load_workload("gpt-17").status();
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.text(), HasSubstr("'gpt-17'"));
  for (const std::string& name : built_in_workloads()) EXPECT_THAT(status.text(), HasSubstr(name));
}

TEST(Workload, EachBadFieldIsNamed) {
  struct Bad {
    const char *what, *with, *expected;
  };
  const Bad kBad[] = {
      {"\"some-model\"", "\"\"", "text: name is ''"},
      {"\"some-model\"", "\"a b\"", "text: name is 'a b'"},
      {"\"some-model\"", "3", "text: name is no text"},
      {"\"name\": \"some-model\",", "", "text: name is missing"},
      {"\"made up\"", "\"\"", "text: source is empty"},
      {"\"hidden_size\": 100", "\"hidden_size\": 0", "text: hidden_size is 0"},
      {"\"hidden_size\": 100", "\"hidden_size\": -1", "text: hidden_size is no whole number"},
      {"\"hidden_size\": 100", "\"hidden_size\": 1e2", "text: hidden_size is no whole number"},
      {"\"hidden_size\": 100", "\"hidden_size\": 1048577", "text: hidden_size is 1048577"},
      {"\"layers\": 3", "\"layers\": 0", "text: layers is 0"},
      {"\"bf16\"", "\"fp4\"", "text: dtype is 'fp4'"},
      {"\"all_reduces_per_step\": 7", "\"all_reduces_per_step\": 0", "text: all_reduces_per_step is 0"},
      {"[2, 4]", "[]", "text: tp is empty"},
      {"[2, 4]", "[4, 2]", "text: tp is not ascending"},
      {"[2, 4]", "[2, 2]", "text: tp is not ascending"},
      {"[2, 4]", "[0, 2]", "text: tp is 0"},
      {"[2, 4]", "2", "text: tp is no list"},
      {"[1, 8]", "[1, \"8\"]", "text: batch holds what is no whole number"},
      {"[1, 8]", "[1, 9999999]", "text: batch is 9999999"},
      {"\"layers\": 3", "\"layers\": 3, \"heads\": 4", "text: heads is not known here"},
      {"\"layers\": 3", "\"layers\": 3, \"layers\": 4", "text: layers is given twice"},
  };
  for (const Bad& bad : kBad) {
    const auto workload = parse_workload(replaced(kGood, bad.what, bad.with), "text");
    ASSERT_FALSE(workload.ok()) << bad.with;
    EXPECT_EQ(workload.status().code(), Code::invalid_argument);
    EXPECT_THAT(workload.status().text(), StartsWith(bad.expected));
  }
  EXPECT_THAT(parse_workload("{", "text").status().text(), StartsWith("text: no JSON"));
}

}  // namespace
}  // namespace nearlight::cli
