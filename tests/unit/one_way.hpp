// Calls that have one way, by CPU ranks through their communicators: what the tests of all kinds share.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/one_way.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::test {

// Those of one rank's call, with a guard behind each.
template <OneWayProblem Problem>
class HostBuffers {
 public:
  HostBuffers(const Problem& problem, int rank) : problem_(problem), rank_(rank) {
    for (const ProblemBuffer& buffer : problem.buffers_of(rank)) {
      Memory& made = memory_.emplace_back(
          static_cast<std::byte*>(::operator new(buffer.bytes + kGuard, std::align_val_t(64))));
      std::memset(made.get(), 0xa5, buffer.bytes + kGuard);
      if (!buffer.content.empty()) std::memcpy(made.get(), buffer.content.data(), buffer.bytes);
      sizes_.push_back(buffer.bytes);
    }
  }
  typename Problem::Call call(bool in_place = false) const {
    std::vector<void*> places;
    for (const Memory& one : memory_) places.push_back(one.get());
    return problem_.call_on(places, rank_, in_place);
  }
  // "" when what a call has written is right.
  std::string check(const typename Problem::Call& call) const {
    std::vector<const void*> results;
    for (const Written& one : problem_.written_by(call)) results.push_back(one.data);
    return problem_.check_results(results, rank_);
  }
  std::uint64_t digest(const typename Problem::Call& call) const {  // FNV-1a
    std::uint64_t digest = 0xcbf29ce484222325;
    for (const Written& one : problem_.written_by(call)) {
      for (std::size_t i = 0; i < one.bytes; ++i)
        digest = (digest ^ static_cast<const unsigned char*>(one.data)[i]) * 0x100000001b3;
    }
    return digest;
  }
  bool guards_are_whole() const {
    for (std::size_t buffer = 0; buffer < memory_.size(); ++buffer) {
      for (std::size_t i = 0; i < kGuard; ++i) {
        if (memory_[buffer][sizes_[buffer] + i] != std::byte{0xa5}) return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  struct Free {
    void operator()(std::byte* data) const { ::operator delete(data, std::align_val_t(64)); }
  };
  using Memory = std::unique_ptr<std::byte[], Free>;

  Problem problem_;
  int rank_;
  std::vector<Memory> memory_;
  std::vector<std::size_t> sizes_;
};

// Where all ranks must have the same bits rank 0's are looked at, and the others' compared with them.
template <OneWayProblem Problem>
void run(runtime::Communicator& comm, Exchange& exchange, const Problem& problem, Problems& trouble,
         bool in_place = false) {
  const HostBuffers<Problem> buffers(problem, comm.rank());
  const auto call = buffers.call(in_place);
  const Status status = make(comm, call);
  if (!status.ok()) return trouble.add("%s: %s", problem.in_words().c_str(), status.to_string().c_str());
  const std::string wrong = comm.rank() == 0 || !problem.same_on_all() ? buffers.check(call) : "";
  if (!wrong.empty()) trouble.add("rank %d: %s", comm.rank(), wrong.c_str());
  const std::uint64_t digest = buffers.digest(call);
  const auto digests = gather_values(exchange, digest, Deadline::after_ms(120'000));
  if (!digests.ok()) return trouble.add("%s", digests.status().to_string().c_str());
  if (problem.same_on_all() && digest != (*digests)[0])
    trouble.add("%s: other bits than rank 0's", problem.in_words().c_str());
  if (!buffers.guards_are_whole()) trouble.add("%s: wrote past the end", problem.in_words().c_str());
}

// One rank alone, whose good call is spoilt in one way after the other: each is refused by name, and nothing
// is written; then it is as good as before, and counted, as is one without tokens.
// `refusals(refused, good)`: refused(word, change) for each.
template <OneWayProblem Problem, class Refusals>
void expect_refusals(const Problem& problem, Refusals&& refusals) {
  EXPECT_EQ(
      run_communicators(
          Kind::threads, 1, patient(),
          [&](runtime::Communicator& comm, Exchange&, Problems& trouble) {
            using Call = typename Problem::Call;
            const HostBuffers<Problem> buffers(problem, 0);
            const Call good = buffers.call();
            const std::uint64_t before = buffers.digest(good);
            const auto refused = [&](const char* word, auto change) {
              Call call = good;
              change(call);
              expect_failure(trouble, word, make(comm, call), Code::invalid_argument, {word});
            };
            refusals(comm, trouble, refused, good);
            expect_failure(trouble, "stream", make(comm, good, &trouble), Code::invalid_argument, {"stream"});
            if (buffers.digest(good) != before) trouble.add("something was written");
            Call none = good;
            none.tokens = 0;
            none.input = nullptr;
            if (!make(comm, none).ok()) trouble.add("no tokens are refused");
            if (!make(comm, good).ok()) trouble.add("not as good as before");
            if (!buffers.check(good).empty()) trouble.add("%s", buffers.check(good).c_str());
            if (comm.counters().of(good.collective) != 2) trouble.add("not counted");
            if (comm.dump().find(std::string(" 2 ") + name_of(good.collective) + ", ") == std::string::npos)
              trouble.add("not counted in the dump");
          }),
      "");
}

// Two ranks in check mode, of which rank 1 makes another call than rank 0. `differences(told)`:
// told(word, change) for each; then both make the same one.
template <OneWayProblem Problem, class Differences>
void expect_check_mode_tells(const Problem& problem, Differences&& differences) {
  runtime::Options options = patient();
  options.check = true;
  EXPECT_EQ(run_communicators(Kind::threads, 2, options,
                              [&](runtime::Communicator& comm, Exchange& exchange, Problems& trouble) {
                                const HostBuffers<Problem> buffers(problem, comm.rank());
                                differences([&](const char* word, auto change) {
                                  auto call = buffers.call();
                                  if (comm.rank() == 1) change(call);
                                  expect_failure(trouble, word, make(comm, call), Code::invalid_usage,
                                                 {word});
                                });
                                run(comm, exchange, problem, trouble);
                              }),
            "");
}

template <OneWayProblem Problem>
void expect_a_missing_rank_to_be_named(const Problem& problem) {
  runtime::Options options;
  options.timeout = std::chrono::milliseconds(100);
  EXPECT_EQ(run_communicators(Kind::threads, 2, options,
                              [&](runtime::Communicator& comm, Exchange& exchange, Problems& trouble) {
                                const HostBuffers<Problem> buffers(problem, comm.rank());
                                if (comm.rank() == 0) {
                                  const auto call = buffers.call();
                                  const std::string who =
                                      std::string(name_of(call.collective)) + " on rank 0";
                                  expect_failure(trouble, "alone", make(comm, call), Code::timeout,
                                                 {who.c_str(), "nothing from rank 1"});
                                }
                                meet(exchange, trouble);
                              }),
            "");
}

// The `faulty`-th thing that rank 1 sends goes to slot `slot` of rank 0. Lost, it ends in a timeout that
// names the slot; spoilt, in a wrong result, which is told as `wrong`.
template <OneWayProblem Problem>
void expect_lost_and_spoilt(const Problem& problem, std::uint64_t faulty, const char* slot,
                            const char* wrong) {
  for (const std::uint32_t fault : {1u, 2u}) {
    runtime::Options options;
    options.timeout = std::chrono::milliseconds(fault == 1 ? 100 : 60'000);
    EXPECT_EQ(run_communicators(Kind::threads, 2, options,
                                [&](runtime::Communicator& comm, Exchange&, Problems& trouble) {
                                  const HostBuffers<Problem> buffers(problem, comm.rank());
                                  const auto call = buffers.call();
                                  runtime::CallOptions hooks;
                                  if (comm.rank() == 1) {
                                    hooks.packet_fault = fault;
                                    hooks.faulty_packet = faulty;
                                  }
                                  const Status status = make(comm, call, nullptr, hooks);
                                  if (comm.rank() == 1) return;
                                  const std::string told = fault == 2 ? buffers.check(call) : "";
                                  if (fault == 1) {
                                    expect_failure(trouble, "lost", status, Code::timeout,
                                                   {name_of(call.collective), slot, "nothing from rank 1"});
                                  } else if (told.find(wrong) == std::string::npos) {
                                    trouble.add("%s must be wrong: %s", wrong, told.c_str());
                                  }
                                }),
              "");
  }
}

}  // namespace nearlight::test
