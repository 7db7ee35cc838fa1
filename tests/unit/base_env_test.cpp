#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <string>

#include "base/env.hpp"

namespace nearlight {
namespace {

constexpr const char* kName = "NEARLIGHT_TEST_VARIABLE";

Result<std::optional<std::int64_t>> read(const char* value, std::int64_t lowest = 1,
                                         std::int64_t highest = 1000) {
  if (value == nullptr) {
    ::unsetenv(kName);
  } else {
    ::setenv(kName, value, 1);
  }
  auto result = env_integer(kName, lowest, highest);
  ::unsetenv(kName);
  return result;
}

TEST(Env, UnsetHasNoValue) {
  const auto result = read(nullptr);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value(), std::nullopt);
}

TEST(Env, WholeNumbersWithinTheLimits) {
  EXPECT_EQ(read("1").value(), 1);
  EXPECT_EQ(read("1000").value(), 1000);
  EXPECT_EQ(read("007").value(), 7);
  EXPECT_EQ(read("-5", -10, 10).value(), -5);
  EXPECT_EQ(read("9223372036854775807", 0, std::numeric_limits<std::int64_t>::max()).value(),
            std::numeric_limits<std::int64_t>::max());
}

TEST(Env, ABadValueIsNamedWithVariableAndLimits) {
  for (const char* value :
       {"", "0", "1001", "-1", "1.0", "1e2", "ten", " 1", "1 ", "1k", "0x1", "+1", "9223372036854775808"}) {
    const auto result = read(value);
    ASSERT_FALSE(result.ok()) << value;
    EXPECT_EQ(result.status().code(), Code::invalid_argument);
    for (const std::string& word :
         {std::string(kName), "\"" + std::string(value) + "\"", std::string("1 to 1000")}) {
      EXPECT_NE(result.status().text().find(word), std::string::npos) << result.status().text();
    }
  }
}

}  // namespace
}  // namespace nearlight
