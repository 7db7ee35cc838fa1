#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <set>

#include "base/status.hpp"

namespace nearlight {
namespace {

constexpr Code kCodes[] = {Code::ok,
                           Code::cuda_error,
                           Code::system_error,
                           Code::internal_error,
                           Code::invalid_argument,
                           Code::invalid_usage,
                           Code::remote_error,
                           Code::in_progress,
                           Code::timeout,
                           Code::unsupported,
                           Code::aborted};

TEST(Status, CodesHaveTheNumbersOfNcclAndNamesOfTheirOwn) {
  EXPECT_EQ(static_cast<int>(Code::ok), 0);
  EXPECT_EQ(static_cast<int>(Code::cuda_error), 1);
  EXPECT_EQ(static_cast<int>(Code::system_error), 2);
  EXPECT_EQ(static_cast<int>(Code::internal_error), 3);
  EXPECT_EQ(static_cast<int>(Code::invalid_argument), 4);
  EXPECT_EQ(static_cast<int>(Code::invalid_usage), 5);
  EXPECT_EQ(static_cast<int>(Code::remote_error), 6);
  EXPECT_EQ(static_cast<int>(Code::in_progress), 7);
  std::set<std::string> names;
  for (const Code code : kCodes) names.insert(code_name(code));
  EXPECT_EQ(names.size(), std::size(kCodes));
  EXPECT_EQ(names.count("unknown code"), 0u);
  EXPECT_STREQ(code_name(static_cast<Code>(77)), "unknown code");
}

TEST(Status, ShowsCodeAndText) {
  EXPECT_TRUE(Status().ok());
  EXPECT_TRUE(static_cast<bool>(Status::success()));
  EXPECT_EQ(Status().to_string(), "ok");
  const Status status = failure(Code::timeout, "rank %d did not answer in %.1f ms", 3, 2.5);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Code::timeout);
  EXPECT_EQ(status.text(), "rank 3 did not answer in 2.5 ms");
  EXPECT_EQ(status.to_string(), "timeout: rank 3 did not answer in 2.5 ms");
  EXPECT_EQ(status.with_context("creation").text(), "creation: rank 3 did not answer in 2.5 ms");
  EXPECT_EQ(status.with_context("creation").code(), Code::timeout);
  EXPECT_TRUE(Status().with_context("creation").ok());
}

TEST(Status, LongAndEmptyTexts) {
  const std::string text(10'000, 'x');
  EXPECT_EQ(failure(Code::aborted, "%s", text.c_str()).text(), text);
  EXPECT_EQ(failure(Code::aborted, "%s", "").text(), "");
}

TEST(Status, ASystemCallIsNamedWithItsReason) {
  const Status status = system_failure("open", ENOENT);
  EXPECT_EQ(status.code(), Code::system_error);
  EXPECT_EQ(status.text(), "open: No such file or directory");
}

Result<std::unique_ptr<int>> make(int value) {
  if (value < 0) return failure(Code::invalid_argument, "value: %d is negative", value);
  return std::make_unique<int>(value);
}
Result<int> twice(int value) {
  NL_TRY_ASSIGN(const std::unique_ptr<int> made, make(value));
  NL_TRY_ASSIGN(const std::unique_ptr<int> again, make(*made));
  return *made + *again;
}
Status check(int value) {
  NL_TRY(twice(value).status());
  return {};
}

TEST(Result, HoldsAValueOrTheReason) {
  auto good = make(4);
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(good.status().ok());
  EXPECT_EQ(**good, 4);
  const std::unique_ptr<int> taken = std::move(good).value();
  EXPECT_EQ(*taken, 4);
  const auto bad = make(-4);
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().text(), "value: -4 is negative");
}

TEST(Result, FailuresAreHandedUp) {
  EXPECT_EQ(twice(21).value(), 42);
  EXPECT_EQ(twice(-1).status().code(), Code::invalid_argument);
  EXPECT_TRUE(check(1).ok());
  EXPECT_EQ(check(-7).text(), "value: -7 is negative");
}

}  // namespace
}  // namespace nearlight
