// CPU ranks whose buffers overlap, as CallOptions::may_overlap lets them: no error, and nothing is written
// that is no part of the output. That copies are made for it is for AddressSanitizer to say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "runtime/create.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::runtime {
namespace {

using test::Kind;
using test::Problems;

constexpr std::size_t kCount = 1000;
constexpr float kOutside = -1;

CallOptions overlapping(std::optional<route::Protocol> protocol = {}) {
  CallOptions options;
  options.may_overlap = true;
  options.protocol = protocol;
  return options;
}

// Input and output of one call, the second `shift` elements behind the first (in front of it: negative).
struct Shifted {
  Shifted(std::size_t sent, std::size_t received, int shift)
      : memory(std::max(sent, received) + 4, kOutside), received_(received) {
    send = memory.data() + 2;
    recv = send + shift;
    for (std::size_t i = 0; i < sent; ++i) send[i] = static_cast<float>(i);
    before_ = memory;
  }
  void check(Problems& problems, const char* name, const Status& status) const {
    if (!status.ok()) return problems.add("%s: %s", name, status.to_string().c_str());
    for (std::size_t i = 0; i < memory.size(); ++i) {
      const float* const at = &memory[i];
      if (at >= recv && at < recv + received_) continue;
      if (*at != before_[i]) return problems.add("%s: element %zu was written", name, i);
    }
  }

  std::vector<float> memory;
  float* send;
  float* recv;

 private:
  std::size_t received_;
  std::vector<float> before_;
};

void call_all(Communicator& comm, Problems& problems, const CallOptions& options) {
  const auto all = kCount * static_cast<std::size_t>(comm.nranks());
  for (const int shift : {1, -1}) {
    for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter,
                                        Collective::broadcast, Collective::reduce, Collective::all_to_all}) {
      if (options.protocol == route::Protocol::sentinel && !is_reduction(collective)) continue;
      const bool gives_all = collective == Collective::reduce_scatter || collective == Collective::all_to_all;
      const bool gets_all = collective == Collective::all_gather || collective == Collective::all_to_all;
      // The own part of an all-gather goes to another place in it on each rank.
      const int own = collective == Collective::all_gather ? comm.rank() * static_cast<int>(kCount) : 0;
      std::size_t received = gets_all ? all : kCount;
      if (collective == Collective::reduce && comm.rank() != 0) received = 0;
      Shifted buffers(gives_all ? all : kCount + static_cast<std::size_t>(own), received, shift);
      buffers.check(problems, name_of(collective),
                    comm.collective({collective, buffers.send + own, buffers.recv, kCount, DataType::f32},
                                    nullptr, options));
    }
    Shifted buffers(kCount, kCount, shift);
    buffers.check(
        problems, "all_reduce",
        comm.all_reduce(buffers.send, buffers.recv, kCount, DataType::f32, ReduceOp::sum, nullptr, options));
  }
}

void send_to_itself(Communicator& comm, Problems& problems) {
  for (const int shift : {1, -1}) {
    Shifted buffers(kCount, kCount, shift);
    const MessageCall both[] = {{true, buffers.send, kCount, DataType::f32, comm.rank()},
                                {false, buffers.recv, kCount, DataType::f32, comm.rank()}};
    buffers.check(problems, "to itself", comm.messages(both, nullptr, overlapping()));
  }
}

TEST(Overlap, OneRankCopies) {
  EXPECT_EQ(test::run_communicators(Kind::threads, 1, test::patient(),
                                    [](Communicator& comm, Exchange&, Problems& problems) {
                                      call_all(comm, problems, overlapping());
                                      send_to_itself(comm, problems);
                                      const float twice = 2;
                                      Shifted buffers(kCount, kCount, 1);
                                      buffers.check(
                                          problems, "pre-multiplied",
                                          comm.all_reduce(buffers.send, buffers.recv, kCount, DataType::f32,
                                                          Reduction::premul_sum(DataType::f32, &twice),
                                                          nullptr, overlapping()));
                                    }),
            "");
}

// Its own part a rank copies itself.
TEST(Overlap, EveryRankOfSeveral) {
  EXPECT_EQ(
      test::run_communicators(Kind::threads, 2, test::patient(),
                              [](Communicator& comm, Exchange&, Problems& problems) {
                                for (const auto protocol : {route::Protocol::ll, route::Protocol::simple,
                                                            route::Protocol::sentinel})
                                  call_all(comm, problems, overlapping(protocol));
                                send_to_itself(comm, problems);
                              }),
      "");
}

TEST(Overlap, CheckModeRefusesItOfOneRankToo) {
  Options options = test::patient();
  options.check = true;
  for (const int nranks : {1, 2}) {
    EXPECT_EQ(test::run_communicators(
                  Kind::threads, nranks, options,
                  [](Communicator& comm, Exchange&, Problems& problems) {
                    float memory[16] = {};
                    const auto refused = [&](const char* what, const Status& status) {
                      test::expect_failure(problems, what, status, Code::invalid_argument, {"overlap"});
                    };
                    refused("all_reduce", comm.all_reduce(memory, memory + 1, 4, DataType::f32, ReduceOp::sum,
                                                          nullptr, overlapping()));
                    refused("all_to_all",
                            comm.collective({Collective::all_to_all, memory, memory + 1, 4, DataType::f32},
                                            nullptr, overlapping()));
                    const MessageCall both[] = {{true, memory, 4, DataType::f32, comm.rank()},
                                                {false, memory + 1, 4, DataType::f32, comm.rank()}};
                    refused("to itself", comm.messages(both, nullptr, overlapping()));
                  }),
              "");
  }
}

}  // namespace
}  // namespace nearlight::runtime
