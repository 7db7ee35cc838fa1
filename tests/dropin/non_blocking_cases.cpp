// Cases of communicators that do not block. Streams are numbers, as in cases.cpp.
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/dropin/fake_nccl.hpp"
#include "tests/dropin/program.hpp"

namespace nearlight::test {

namespace {

using Clock = std::chrono::steady_clock;

cudaStream_t stream(std::uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); }

ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
  return state;
}

void expect_ready(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  for (int i = 0; i < 10'000 && state == ncclInProgress; ++i) {
    state = state_of(comm);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(state == ncclSuccess);
}

// A rank's communicator, in progress.
ncclComm_t begin(const ncclUniqueId& id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRankConfig(&comm, 2, id, rank, &config) == ncclInProgress);
  return comm;
}

ncclUniqueId new_id() {
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  return id;
}

// The rank that comes last writes the results of all: they outlive the ranks' threads.
struct Sums {
  float values[2] = {1, 2}, sums[2] = {-1, -1};
  ncclResult_t reduce(int rank, ncclComm_t comm) {
    return ncclAllReduce(&values[rank], &sums[rank], 1, ncclFloat32, ncclSum, comm, stream(1));
  }
};

// In progress until the companion is there; no call before that, and no wait in any call.
void non_blocking() {
  const ncclUniqueId id = new_id();
  Sums sums;
  on_ranks(2, [&](int rank) {
    const ncclComm_t comm = begin(id, rank);
    CHECK(sums.reduce(rank, comm) == ncclInvalidArgument);
    CHECK(std::strstr(ncclGetLastError(comm), "in progress") != nullptr);
    CHECK(ncclCommDestroy(comm) == ncclInvalidArgument);
    CHECK(ncclCommFinalize(comm) == ncclInvalidArgument);
    expect_ready(comm);
    CHECK(sums.reduce(rank, comm) == ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
  });
  check_log(__FILE__, __LINE__,
            "nearlight AllReduce r0 s1 1\nnearlight AllReduce r1 s1 1\ndrain r0\ndrain r1\nfree r0\nfree r1\n"
            "destroy r0\ndestroy r1\n",
            true);
}

// NCCL_COMM_BLOCKING=0 makes ncclCommInitAll one of those calls that only begin.
void all_at_once_non_blocking() {
  ncclComm_t comms[2] = {};
  Sums sums;
  CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclInProgress);
  CHECK(comms[0] != nullptr && comms[1] != nullptr);
  for (int rank = 0; rank < 2; ++rank) CHECK(sums.reduce(rank, comms[rank]) == ncclInvalidArgument);
  for (ncclComm_t comm : comms) expect_ready(comm);
  for (int rank = 0; rank < 2; ++rank) CHECK(sums.reduce(rank, comms[rank]) == ncclSuccess);
  CHECK(sums.sums[0] == 3 && sums.sums[1] == 3);
  CHECK_LOG("nearlight AllReduce r0 s1 1\nnearlight AllReduce r1 s1 1\n");
  for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
  CHECK(fakeNcclLive() == 0);
}

// Nothing is put behind what NCCL has not enqueued yet.
void non_blocking_group() {
  const ncclUniqueId id = new_id();
  Sums sums;
  std::vector<float> large[2], out[2];
  for (int rank = 0; rank < 2; ++rank) {
    large[rank].assign(1 << 15, 1);
    out[rank].assign(1 << 15, -1);
  }
  on_ranks(2, [&](int rank) {
    const ncclComm_t comm = begin(id, rank);
    expect_ready(comm);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(sums.reduce(rank, comm) == ncclSuccess);
    CHECK(ncclAllReduce(large[rank].data(), out[rank].data(), large[rank].size(), ncclFloat32, ncclSum, comm,
                        stream(2)) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclInProgress);
    // The other rank's lines may stand between.
    const std::string log = fakeNcclLogText(), own = " r" + std::to_string(rank);
    const auto enqueued = log.find("enqueued" + own);
    CHECK(enqueued != std::string::npos);
    CHECK(enqueued < log.rfind("join" + own + " s1 s2"));
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
  });
}

// The other rank never comes: what NCCL refuses at once is refused at once, and what it ends is ended.
void non_blocking_that_is_aborted() {
  const ncclComm_t comm = begin(new_id(), 0);
  CHECK(state_of(comm) == ncclInProgress);
  const auto start = Clock::now();
  CHECK(ncclCommFinalize(comm) == ncclInvalidArgument);
  CHECK(ncclCommDestroy(comm) == ncclInvalidArgument);
  CHECK(std::strstr(ncclGetLastError(comm), "in progress") != nullptr);
  CHECK(state_of(comm) == ncclInProgress);
  CHECK_LOG("");
  CHECK(ncclCommAbort(comm) == ncclSuccess);
  CHECK(Clock::now() - start < std::chrono::seconds(5));
  CHECK_LOG("revoke r0\nabort r0\n");
  CHECK(fakeNcclLive() == 0);
}

// Two communicators of this thread, with an operation that does not come to its end.
struct Unfinished {
  Unfinished() {
    CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclInProgress);
    for (ncclComm_t comm : comms) expect_ready(comm);
    for (int rank = 0; rank < 2; ++rank) CHECK(sums.reduce(rank, comms[rank]) == ncclSuccess);
    fakeNcclLogClear();
    fakeNcclHold(1);
  }
  ncclComm_t comms[2] = {};
  Sums sums;
};

// Finalizing does not wait for it: the communicator is in progress, and what needs one that is not is
// refused.
void finalized_behind() {
  Unfinished unfinished;
  const ncclComm_t comm = unfinished.comms[0];
  CHECK(ncclCommFinalize(comm) == ncclInProgress);
  CHECK(state_of(comm) == ncclInProgress);
  CHECK(unfinished.sums.reduce(0, comm) == ncclInvalidArgument);
  CHECK(ncclCommFinalize(comm) == ncclInvalidArgument);
  CHECK(ncclCommDestroy(comm) == ncclInvalidArgument);
  CHECK_LOG("");
  fakeNcclHold(0);
  expect_ready(comm);
  CHECK_LOG("drain r0\nfree r0\nfinalize r0\n");
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  CHECK(ncclCommDestroy(unfinished.comms[1]) == ncclSuccess);
  CHECK(fakeNcclLive() == 0);
}

void finalized_and_aborted() {
  Unfinished unfinished;
  for (ncclComm_t comm : unfinished.comms) CHECK(ncclCommFinalize(comm) == ncclInProgress);
  const auto start = Clock::now();
  CHECK(ncclCommAbort(unfinished.comms[0]) == ncclSuccess);
  CHECK_LOG("stop r0\ngone r0\nabort r0\nfree r0\n");
  // Revoked first, and then destroyed, it is no longer finalized either.
  CHECK(ncclCommRevoke(unfinished.comms[1], NCCL_REVOKE_DEFAULT) == ncclSuccess);
  expect_ready(unfinished.comms[1]);
  fakeNcclHold(0);
  CHECK(ncclCommDestroy(unfinished.comms[1]) == ncclSuccess);
  CHECK(Clock::now() - start < std::chrono::seconds(5));
  CHECK_LOG("stop r1\nrevoke r1\ndrain r1\nfree r1\ndestroy r1\n");
  CHECK(fakeNcclLive() == 0);
}

// When there is one is NCCL's to tell: no rank gives it a companion.
void split_by(ncclConfig_t* config) {
  ncclComm_t comms[2] = {}, splits[2] = {};
  Sums sums;
  CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclInProgress);
  for (ncclComm_t comm : comms) expect_ready(comm);
  on_ranks(2, [&](int rank) {
    CHECK(ncclCommSplit(comms[rank], 0, rank, &splits[rank], config) == ncclInProgress);
    expect_ready(splits[rank]);
    CHECK(sums.reduce(rank, splits[rank]) == ncclInProgress);
  });
  CHECK(sums.sums[0] == 3 && sums.sums[1] == 3);
  check_log(__FILE__, __LINE__, "nccl AllReduce r0 s1 1\nnccl AllReduce r1 s1 1\n", true);
  for (ncclComm_t comm : {splits[0], splits[1], comms[0], comms[1]})
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
  CHECK(fakeNcclLive() == 0);
}
void split_from_a_non_blocking() { split_by(nullptr); }
// The configuration does not say so, the variable does.
void split_with_a_configuration() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  split_by(&config);
}

constexpr Case kCases[] = {{"non_blocking", non_blocking},
                           {"split_from_a_non_blocking", split_from_a_non_blocking},
                           {"split_with_a_configuration", split_with_a_configuration},
                           {"all_at_once_non_blocking", all_at_once_non_blocking},
                           {"non_blocking_group", non_blocking_group},
                           {"non_blocking_that_is_aborted", non_blocking_that_is_aborted},
                           {"finalized_behind", finalized_behind},
                           {"finalized_and_aborted", finalized_and_aborted}};

}  // namespace

std::span<const Case> non_blocking_cases() { return kCases; }

}  // namespace nearlight::test
