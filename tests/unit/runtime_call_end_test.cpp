// CPU ranks that somebody waits for who has no more time than one of their waits: each call ends as a whole.
#include <gmock/gmock.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "algorithm/one_shot.hpp"
#include "bootstrap/in_process.hpp"
#include "runtime/host_communicator.hpp"

namespace nearlight::runtime {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// Rank 1 is late in every round of a call, never by as much as a wait lasts, but by more in all.
TEST(CallEnd, WaitsThatAddUpToMoreThanTheLimitEnd) {
  constexpr milliseconds kLimit{1500}, kLate{400};
  constexpr std::size_t kRounds = 8, kCount = kRounds * 128;
  auto exchanges = bootstrap::make_in_process_group(2);
  std::vector<std::optional<Fault>> faults(2);
  std::vector<Status> barriers(2), calls(2);
  const auto rank_main = [&](std::size_t rank) {
    Options options;
    options.slots = 64;
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    auto made = HostCommunicator::create_within(*exchanges[rank], options, kLimit, deadline);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    Communicator& comm = **made;
    // One that ends in time leaves nothing behind for the next, which begins anew.
    barriers[rank] = comm.barrier(nullptr);
    std::vector<float> data(kCount, 1.0f);
    CallOptions late;
    late.protocol = route::Protocol::ll;
    if (rank == 1) {
      late.delay_point = static_cast<std::uint32_t>(algorithm::DelayPoint::before_publish);
      late.delay_ns = std::chrono::nanoseconds(kLate).count();
    }
    calls[rank] =
        comm.all_reduce(data.data(), data.data(), kCount, DataType::f32, ReduceOp::sum, nullptr, late);
    faults[rank] = comm.fault();
    EXPECT_TRUE(agree(*exchanges[rank], {}, deadline).ok());  // nobody's memory goes before
  };
  std::thread other(rank_main, 1);
  rank_main(0);
  other.join();
  for (const Status& barrier : barriers) EXPECT_TRUE(barrier.ok()) << barrier.to_string();
  EXPECT_EQ(calls[0].code(), Code::timeout);
  EXPECT_THAT(calls[0].text(), HasSubstr("nothing from rank 1 within the call's 1500 ms"));
  ASSERT_TRUE(faults[0].has_value());
  EXPECT_EQ(faults[0]->peer, 1);
  EXPECT_GT(faults[0]->epoch, 2u) << "its first wait, which is no longer than a wait may be, ended it";
}

}  // namespace
}  // namespace nearlight::runtime
