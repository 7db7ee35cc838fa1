#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <utility>

#include "base/unique_fd.hpp"

namespace nearlight {
namespace {

int open_one() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1 || errno != EBADF; }

TEST(UniqueFd, ClosesItself) {
  int number;
  {
    const UniqueFd fd(open_one());
    ASSERT_TRUE(static_cast<bool>(fd));
    number = fd.get();
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(UniqueFd, MovesAndReleases) {
  UniqueFd first(open_one());
  const int number = first.get();
  UniqueFd second(std::move(first));
  EXPECT_FALSE(static_cast<bool>(first));  // NOLINT: what is left after a move is part of the type's promise
  EXPECT_EQ(second.get(), number);
  UniqueFd third(open_one());
  const int replaced = third.get();
  third = std::move(second);
  EXPECT_FALSE(is_open(replaced));
  EXPECT_TRUE(is_open(number));
  const int released = third.release();
  EXPECT_EQ(released, number);
  EXPECT_FALSE(static_cast<bool>(third));
  EXPECT_TRUE(is_open(number));
  UniqueFd last(released);
  last.reset();
  EXPECT_FALSE(is_open(number));
  last.reset();
  EXPECT_EQ(last.get(), -1);
}

TEST(UniqueFd, NoneIsNone) {
  const UniqueFd none;
  EXPECT_FALSE(static_cast<bool>(none));
  EXPECT_EQ(none.get(), -1);
}

}  // namespace
}  // namespace nearlight
