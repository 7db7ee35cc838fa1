#include "base/variables.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <set>
#include <string>

namespace nearlight::variables {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kName = "NEARLIGHT_TEST_VARIABLE";

// Set for the life of this object.
class Set {
 public:
  explicit Set(const char* value) { ::setenv(kName, value, 1); }
  ~Set() { ::unsetenv(kName); }
};

Result<std::int64_t> read_integer(const char* value, std::int64_t lowest = 1, std::int64_t highest = 1000) {
  const Set set(value);
  return read(Integer{kName, lowest, highest, 77, "ms", ""});
}

TEST(Variables, AnIntegerThatIsNotSetHasItsDefault) {
  ::unsetenv(kName);
  EXPECT_EQ(read(Integer{kName, 1, 1000, 77, "", ""}).value(), 77);
}

TEST(Variables, WholeNumbersWithinTheLimits) {
  EXPECT_EQ(read_integer("1").value(), 1);
  EXPECT_EQ(read_integer("1000").value(), 1000);
  EXPECT_EQ(read_integer("007").value(), 7);
  EXPECT_EQ(read_integer("-5", -10, 10).value(), -5);
  EXPECT_EQ(read_integer("9223372036854775807", 0, std::numeric_limits<std::int64_t>::max()).value(),
            std::numeric_limits<std::int64_t>::max());
}

TEST(Variables, ABadNumberIsNamedWithVariableAndLimits) {
  for (const char* value :
       {"", "0", "1001", "-1", "1.0", "1e2", "ten", " 1", "1 ", "1k", "0x1", "+1", "9223372036854775808"}) {
    const auto result = read_integer(value);
    ASSERT_FALSE(result.ok()) << value;
    EXPECT_EQ(result.status().code(), Code::invalid_argument);
    for (const std::string& word :
         {std::string(kName), "\"" + std::string(value) + "\"", std::string("1 to 1000 ms")}) {
      EXPECT_THAT(result.status().text(), HasSubstr(word));
    }
  }
}

// What reads other programs' variables uses it, too.
TEST(Variables, WholeNumberOfAText) {
  EXPECT_EQ(whole_number("RANK", "3", 0, 3).value(), 3);
  EXPECT_EQ(whole_number("RANK", "4", 0, 3).status().text(),
            "RANK is \"4\"; it takes a whole number from 0 to 3");
  EXPECT_EQ(whole_number("LIMIT", "", 1, 9, "ms").status().text(),
            "LIMIT is \"\"; it takes a whole number from 1 to 9 ms");
}

TEST(Variables, Switches) {
  ::unsetenv(kName);
  EXPECT_FALSE(read(Switch{kName, false, ""}).value());
  EXPECT_TRUE(read(Switch{kName, true, ""}).value());
  {
    const Set set("0");
    EXPECT_FALSE(read(Switch{kName, true, ""}).value());
  }
  {
    const Set set("1");
    EXPECT_TRUE(read(Switch{kName, false, ""}).value());
  }
  for (const char* value : {"", "2", "yes", "on", "true", "-1", "01", " 1"}) {
    const Set set(value);
    const auto result = read(Switch{kName, false, ""});
    ASSERT_FALSE(result.ok()) << value;
    EXPECT_EQ(result.status().code(), Code::invalid_argument);
    EXPECT_THAT(result.status().text(), testing::AllOf(HasSubstr(kName), HasSubstr("0 or 1")));
  }
}

TEST(Variables, TextsThatAreEmptyAreNotSet) {
  ::unsetenv(kName);
  EXPECT_EQ(read(Text{kName, "", "", ""}), std::nullopt);
  {
    const Set set("");
    EXPECT_EQ(read(Text{kName, "", "", ""}), std::nullopt);
  }
  const Set set("/a b");
  EXPECT_EQ(read(Text{kName, "", "", ""}), "/a b");
}

TEST(Variables, TheTableIsSortedCompleteAndHasNoNameTwice) {
  const auto rows = all();
  std::set<std::string> names;
  for (const Row& row : rows) {
    EXPECT_TRUE(row.name.starts_with("NEARLIGHT_")) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    for (const std::string& text : {row.takes, row.unset, row.meaning})
      EXPECT_FALSE(text.empty()) << row.name;
  }
  EXPECT_TRUE(
      std::is_sorted(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.name < b.name; }));
  for (const char* name : {"NEARLIGHT_CHECK", "NEARLIGHT_DEBUG", "NEARLIGHT_FORCE_PATH", "NEARLIGHT_KEY",
                           "NEARLIGHT_NCCL_LIB", "NEARLIGHT_NRANKS", "NEARLIGHT_RANK",
                           "NEARLIGHT_ROUTE_TABLE", "NEARLIGHT_TIMEOUT_MS", "NEARLIGHT_JOBS"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

std::vector<std::string> complaints(std::vector<std::string> names) { return complaints_about(names); }

TEST(Variables, UnknownNamesGetTheNearestOne) {
  EXPECT_THAT(complaints({"NEARLIGHT_TIMOUT_MS"}),
              ElementsAre(testing::AllOf(HasSubstr("NEARLIGHT_TIMOUT_MS is no variable"),
                                         HasSubstr("nearest is NEARLIGHT_TIMEOUT_MS"))));
  EXPECT_THAT(complaints({"NEARLIGHT_TIMEOUT"}), ElementsAre(HasSubstr("nearest is NEARLIGHT_TIMEOUT_MS")));
  EXPECT_THAT(complaints({"NEARLIGHT_CHEKC"}), ElementsAre(HasSubstr("nearest is NEARLIGHT_CHECK")));
  EXPECT_THAT(
      complaints({"NEARLIGHT_NCCL_LIBRARY", "HOME", "NEARLIGHT_JOB"}),
      ElementsAre(HasSubstr("nearest is NEARLIGHT_NCCL_LIB"), HasSubstr("nearest is NEARLIGHT_JOBS")));
}

TEST(Variables, KnownNamesAndOthersGetNone) {
  std::vector<std::string> names = {"PATH", "NCCL_DEBUG", "NEARLIGH_CHECK", "nearlight_check", ""};
  for (const Row& row : all()) names.push_back(row.name);
  EXPECT_THAT(complaints(names), IsEmpty());
}

TEST(Variables, TheReferencePageHasEveryVariable) {
  const std::string page = reference_page();
  for (const Row& row : all()) {
    EXPECT_THAT(page, HasSubstr("| `" + row.name + "` | " + row.takes + " | " + row.unset + " | "));
  }
}

}  // namespace
}  // namespace nearlight::variables
