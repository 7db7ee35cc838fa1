#include "dropin/async_status.hpp"

#include <gtest/gtest.h>

namespace nearlight::test {
namespace {

runtime::Fault fault_of(Code code, std::uint64_t time_ns) {
  runtime::Fault fault;
  fault.status = failure(code, "rank 1");
  fault.peer = 1;
  fault.time_ns = time_ns;
  return fault;
}

TEST(AsyncStatus, ARankThatIsDoneIsNoError) {
  EXPECT_TRUE(dropin::status_to_tell(std::nullopt).ok());
  EXPECT_TRUE(dropin::status_to_tell(fault_of(Code::remote_error, 0)).ok());
}

TEST(AsyncStatus, ARankThatIsMissedIsOne) {
  EXPECT_EQ(dropin::status_to_tell(fault_of(Code::remote_error, 5)).code(), Code::remote_error);
  EXPECT_EQ(dropin::status_to_tell(fault_of(Code::timeout, 5)).code(), Code::timeout);
  EXPECT_EQ(dropin::status_to_tell(fault_of(Code::aborted, 0)).code(), Code::aborted);
  EXPECT_EQ(dropin::status_to_tell(fault_of(Code::cuda_error, 0)).code(), Code::cuda_error);
}

}  // namespace
}  // namespace nearlight::test
