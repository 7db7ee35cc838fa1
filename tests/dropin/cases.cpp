// The cases. Streams are numbers here: 1 is s1 in the log.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/dropin/fake_nccl.hpp"
#include "tests/dropin/program.hpp"

namespace nearlight::test {

namespace {

cudaStream_t stream(std::uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); }

// Two ranks of one thread, as ncclCommInitAll makes them.
struct Pair {
  Pair() { CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess); }
  ~Pair() {
    for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
  }
  ncclComm_t& operator[](int rank) { return comms[rank]; }
  ncclComm_t comms[2] = {};
};

// What each rank sends: rank + 1 everywhere.
struct Buffers {
  explicit Buffers(std::size_t count) {
    for (int rank = 0; rank < 2; ++rank) {
      send[rank].assign(count, static_cast<float>(rank + 1));
      recv[rank].assign(count, -1.0F);
    }
  }
  bool all_are(float value) const {
    for (const auto& part : recv) {
      for (const float element : part) {
        if (element != value) return false;
      }
    }
    return true;
  }
  std::vector<float> send[2], recv[2];
};

ncclResult_t reduce(Pair& pair, Buffers& buffers, int rank, std::uintptr_t on, ncclRedOp_t op = ncclSum,
                    ncclDataType_t type = ncclFloat32) {
  return ncclAllReduce(buffers.send[rank].data(), buffers.recv[rank].data(), buffers.send[rank].size(), type,
                       op, pair[rank], stream(on));
}

void taken() {
  Pair pair;
  fakeNcclLogClear();
  Buffers buffers(4);
  for (int rank = 0; rank < 2; ++rank) CHECK(reduce(pair, buffers, rank, 1) == ncclSuccess);
  CHECK(buffers.all_are(3));
  CHECK_LOG("nearlight AllReduce r0 s1 4\nnearlight AllReduce r1 s1 4\n");
  // The profiler's name of it is the same function.
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(pncclAllReduce(buffers.send[rank].data(), buffers.recv[rank].data(), 4, ncclFloat32, ncclMax,
                         pair[rank], stream(1)) == ncclSuccess);
  }
  CHECK(buffers.all_are(2));
  CHECK_LOG("nearlight AllReduce r0 s1 4\nnearlight AllReduce r1 s1 4\n");
}

// Each for its own reason, and each is NCCL's then, with NCCL's result.
void forwarded() {
  Pair pair;
  fakeNcclLogClear();
  Buffers large(16 << 10 | 1), none(0), buffers(4);
  ncclRedOp_t own;
  float scalar = 2;
  CHECK(ncclRedOpCreatePreMulSum(&own, &scalar, ncclFloat32, ncclScalarHostImmediate, pair[0]) ==
        ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) CHECK(reduce(pair, large, rank, 1) == ncclSuccess);
  CHECK(large.all_are(3));
  for (int rank = 0; rank < 2; ++rank) CHECK(reduce(pair, none, rank, 1) == ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) CHECK(reduce(pair, buffers, rank, 1, own) == ncclSuccess);
  for (int rank = 0; rank < 2; ++rank)
    CHECK(reduce(pair, buffers, rank, 1, ncclSum, ncclInt32) == ncclSuccess);
  const auto unknown = static_cast<ncclDataType_t>(99);
  for (int rank = 0; rank < 2; ++rank) CHECK(reduce(pair, buffers, rank, 1, ncclSum, unknown) == ncclSuccess);
  CHECK_LOG(
      "nccl AllReduce r0 s1 16385\nnccl AllReduce r1 s1 16385\nnccl AllReduce r0 s1 0\nnccl AllReduce r1 s1 "
      "0\n"
      "nccl AllReduce r0 s1 4\nnccl AllReduce r1 s1 4\nnccl AllReduce r0 s1 4\nnccl AllReduce r1 s1 4\n"
      "nccl AllReduce r0 s1 4\nnccl AllReduce r1 s1 4\n");
  // NCCL's own function for it calls another one of NCCL's by its name.
  for (int rank = 0; rank < 2; ++rank)
    CHECK(ncclBcast(buffers.send[rank].data(), 4, ncclFloat32, 1, pair[rank], stream(2)) == ncclSuccess);
  CHECK(buffers.send[0][0] == 2.0F);
  CHECK_LOG("wait r0 s2 for s1\nnccl Broadcast r0 s2 4\nwait r1 s2 for s1\nnccl Broadcast r1 s2 4\n");
  // What the drop-in knows nothing of, and a handle that is none.
  CHECK(ncclAllReduce(large.send[0].data(), large.recv[0].data(), 4, ncclFloat32, ncclSum, nullptr,
                      nullptr) == ncclInvalidArgument);
  CHECK(std::strcmp(ncclGetLastError(nullptr), "the fake's last words") == 0);
}

void groups() {
  Pair pair;
  fakeNcclLogClear();
  Buffers small(4), large(1 << 15), other(2);
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclGroupStart() == ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(reduce(pair, large, rank, 1) == ncclSuccess);
    CHECK(reduce(pair, small, rank, 1) == ncclSuccess);
    CHECK(reduce(pair, other, rank, 1) == ncclSuccess);
  }
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK_LOG("");  // the inner end starts nothing
  CHECK(small.all_are(-1));
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK_LOG(
      "nearlight AllReduce r0 s1 4\nnearlight AllReduce r0 s1 2\nnearlight AllReduce r1 s1 4\n"
      "nearlight AllReduce r1 s1 2\nfull stop s1\nend of group\nnccl AllReduce r0 s1 32768\n"
      "nccl AllReduce r1 s1 32768\n");
  CHECK(small.all_are(3) && large.all_are(3) && other.all_are(3));
  // An end too many is NCCL's to refuse.
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
}

// Sends and receives of a communicator go together, behind the collectives.
void grouped_messages() {
  Pair pair;
  fakeNcclLogClear();
  Buffers buffers(4), small(2);
  CHECK(ncclGroupStart() == ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(ncclRecv(buffers.recv[rank].data(), 4, ncclFloat32, 1 - rank, pair[rank], stream(1)) ==
          ncclSuccess);
    CHECK(reduce(pair, small, rank, 1) == ncclSuccess);
    CHECK(ncclSend(buffers.send[rank].data(), 4, ncclFloat32, 1 - rank, pair[rank], stream(1)) ==
          ncclSuccess);
  }
  CHECK_LOG("");
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK_LOG(
      "nearlight AllReduce r0 s1 2\nnearlight AllReduce r1 s1 2\nnearlight messages r0 from 1 to 1\n"
      "nearlight messages r1 from 0 to 0\nend of group\n");
  // Alone; and on two streams, each of which waits for the other one.
  CHECK(ncclSend(buffers.send[0].data(), 4, ncclFloat32, 1, pair[0], stream(1)) == ncclSuccess);
  CHECK_LOG("nearlight messages r0 to 1\n");
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclSend(buffers.send[0].data(), 4, ncclFloat32, 1, pair[0], stream(1)) == ncclSuccess);
  CHECK(ncclRecv(buffers.recv[0].data(), 4, ncclFloat32, 1, pair[0], stream(2)) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK_LOG("join r0 s1 s2\nnearlight messages r0 to 1 from 1\nend of group\njoin r0 s1 s2\n");
}

// One thread, two communicators of two ranks each, all in one group.
void several_communicators() {
  Pair first, second;
  fakeNcclLogClear();
  Buffers one(4), two(8);
  CHECK(ncclGroupStart() == ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) CHECK(reduce(first, one, rank, 1) == ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) CHECK(reduce(second, two, rank, 2) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(one.all_are(3) && two.all_are(3));
  CHECK_LOG(
      "nearlight AllReduce r0 s1 4\nnearlight AllReduce r1 s1 4\nnearlight AllReduce r0 s2 8\n"
      "nearlight AllReduce r1 s2 8\nend of group\n");
}

// NCCL makes a group with several streams of a communicator wait for all of them, on both sides.
void group_with_streams() {
  Pair pair;
  fakeNcclLogClear();
  Buffers small(4), large(1 << 15);
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(reduce(pair, small, 0, 1) == ncclSuccess);
  CHECK(reduce(pair, large, 0, 2) == ncclSuccess);
  CHECK(reduce(pair, small, 1, 3) == ncclSuccess);
  CHECK(reduce(pair, large, 1, 3) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK_LOG(
      "join r0 s1 s2\nnearlight AllReduce r0 s1 4\nnearlight AllReduce r1 s3 4\nfull stop s3\nend of group\n"
      "nccl AllReduce r0 s2 32768\nnccl AllReduce r1 s3 32768\njoin r0 s1 s2\n");
}

// Operations of a communicator on several streams follow each other, whoever does them.
void taken_and_forwarded_on_two_streams() {
  Pair pair;
  fakeNcclLogClear();
  Buffers small(4), large(1 << 15);
  for (int rank = 0; rank < 2; ++rank) CHECK(reduce(pair, small, rank, 1) == ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) CHECK(reduce(pair, large, rank, 2) == ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) CHECK(reduce(pair, small, rank, 3) == ncclSuccess);
  CHECK_LOG(
      "nearlight AllReduce r0 s1 4\nnearlight AllReduce r1 s1 4\nwait r0 s2 for s1\n"
      "nccl AllReduce r0 s2 32768\nwait r1 s2 for s1\nnccl AllReduce r1 s2 32768\nwait r0 s3 for s2\n"
      "nearlight AllReduce r0 s3 4\nwait r1 s3 for s2\nnearlight AllReduce r1 s3 4\n");
  // A group of NCCL's alone is one more operation.
  CHECK(ncclGroupStart() == ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) CHECK(reduce(pair, large, rank, 4) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) CHECK(reduce(pair, small, rank, 5) == ncclSuccess);
  CHECK_LOG(
      "wait r0 s4 for s3\nwait r1 s4 for s3\nend of group\nnccl AllReduce r0 s4 32768\n"
      "nccl AllReduce r1 s4 32768\nwait r0 s5 for s4\nnearlight AllReduce r0 s5 4\nwait r1 s5 for s4\n"
      "nearlight AllReduce r1 s5 4\n");
  // What NCCL refuses is none.
  fakeNcclFailNext(ncclSystemError);
  CHECK(reduce(pair, large, 0, 6) == ncclSystemError);
  CHECK_LOG("wait r0 s6 for s5\n");
  CHECK(reduce(pair, small, 0, 5) == ncclSuccess);
  CHECK_LOG("nearlight AllReduce r0 s5 4\n");
}

void simulated_group() {
  Pair pair;
  fakeNcclLogClear();
  Buffers small(4);
  CHECK(ncclGroupStart() == ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) CHECK(reduce(pair, small, rank, 1) == ncclSuccess);
  CHECK(ncclGroupSimulateEnd(nullptr) == ncclSuccess);
  CHECK(small.all_are(-1));
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK_LOG("end of group\n");
}

// An operation by NCCL behind one of ours, and only the first.
void stops_before_nccl() {
  Pair pair;
  fakeNcclLogClear();
  Buffers small(4), large(1 << 15);
  for (int rank = 0; rank < 2; ++rank) CHECK(reduce(pair, small, rank, 1) == ncclSuccess);
  CHECK(reduce(pair, large, 0, 2) == ncclSuccess);
  CHECK(reduce(pair, large, 1, 1) == ncclSuccess);
  CHECK(reduce(pair, large, 0, 1) == ncclSuccess);
  CHECK_LOG(
      "nearlight AllReduce r0 s1 4\nnearlight AllReduce r1 s1 4\nwait r0 s2 for s1\nnccl AllReduce r0 s2 "
      "32768\n"
      "full stop s1\nnccl AllReduce r1 s1 32768\nwait r0 s1 for s2\nnccl AllReduce r0 s1 32768\n");
}

void failures() {
  Pair pair;
  Buffers small(4), large(1 << 15);
  // NCCL's own come through, with NCCL's text.
  fakeNcclFailNext(ncclUnhandledCudaError);
  CHECK(reduce(pair, large, 0, 1) == ncclUnhandledCudaError);
  CHECK(std::strcmp(ncclGetLastError(nullptr), "the fake's last words") == 0);
  // A group that NCCL does not start: the ranks that have begun its other half are let go.
  fakeNcclLogClear();
  fakeNcclFailNext(ncclSystemError);
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(reduce(pair, small, 0, 1) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSystemError);
  CHECK_LOG("nearlight AllReduce r0 s1 4\nstop r0\n");
  // A companion's: a time-out is what NCCL calls a remote error.
  ncclResult_t state = ncclSuccess;
  CHECK(ncclCommGetAsyncError(pair[0], &state) == ncclSuccess && state == ncclSuccess);
  fakeNcclSetCompanionFailure(8);
  CHECK(ncclCommGetAsyncError(pair[0], &state) == ncclSuccess && state == ncclRemoteError);
  CHECK(reduce(pair, small, 0, 1) == ncclRemoteError);
  CHECK(std::strstr(ncclGetLastError(pair[0]), "the test let the companion fail") != nullptr);
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(reduce(pair, small, 0, 1) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclRemoteError);
  fakeNcclSetCompanionFailure(0);
}

// Ranks that are threads; made, split, shrunk, finalized, revoked, aborted, destroyed.
void life() {
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  // The rank that comes last writes for all: the values outlive the threads.
  float values[4] = {0, 1, 2, 3}, sums[4] = {};
  on_ranks(4, [&](int rank) {
    ncclComm_t world = nullptr, half = nullptr, none = nullptr, smaller = nullptr;
    CHECK(ncclCommInitRank(&world, 4, id, rank) == ncclSuccess);
    CHECK(ncclCommSplit(world, rank % 2, -rank, &half, nullptr) == ncclSuccess);
    CHECK(ncclCommSplit(world, rank == 3 ? NCCL_SPLIT_NOCOLOR : 0, rank, &none, nullptr) == ncclSuccess);
    CHECK((none == nullptr) == (rank == 3));
    int excluded[] = {3};
    if (rank != 3)
      CHECK(ncclCommShrink(world, excluded, 1, &smaller, nullptr, NCCL_SHRINK_ABORT) == ncclSuccess);
    float &value = values[rank], &sum = sums[rank];
    CHECK(ncclAllReduce(&value, &sum, 1, ncclFloat32, ncclSum, half, stream(1)) == ncclSuccess);
    if (rank != 3) {
      CHECK(ncclAllReduce(&value, &sum, 1, ncclFloat32, ncclSum, smaller, stream(1)) == ncclSuccess);
      CHECK(ncclCommFinalize(smaller) == ncclSuccess);
      CHECK(ncclCommDestroy(smaller) == ncclSuccess);
      CHECK(ncclCommDestroy(none) == ncclSuccess);
    }
    CHECK(ncclCommRevoke(half, NCCL_REVOKE_DEFAULT) == ncclSuccess);
    CHECK(ncclAllReduce(&value, &sum, 1, ncclFloat32, ncclSum, half, stream(9)) == ncclInvalidUsage);
    CHECK(ncclCommDestroy(half) == ncclSuccess);
    CHECK(ncclCommAbort(world) == ncclSuccess);
  });
  CHECK(fakeNcclLive() == 0);
  // Of each communicator of more than one rank there was a companion, which went before its communicator but
  // where it was aborted. Three worlds' worth of stops: those of the shrunk world's three ranks come twice.
  std::string expected;
  for (const char* rank : {"0", "1", "2"})
    expected += std::string("stop r") + rank + "\nstop r" + rank + "\n";
  expected += "stop r3\n";
  for (const char* rank : {"0", "1", "2", "3"})
    expected += std::string("gone r") + rank + "\nabort r" + rank + "\nfree r" + rank + "\n";
  for (const char* rank : {"0", "0", "1", "1"})
    expected += std::string("revoke r") + rank + "\nstop r" + rank + "\ndrain r" + rank + "\nfree r" + rank +
                "\ndestroy r" + rank + "\nnearlight AllReduce r" + rank + " s1 1\n";
  for (const char* rank : {"0", "1", "2"})
    expected += std::string("nearlight AllReduce r") + rank + " s1 1\ndrain r" + rank + "\nfree r" + rank +
                "\nfinalize r" + rank + "\ndestroy r" + rank + "\ndrain r" + rank + "\nfree r" + rank +
                "\ndestroy r" + rank + "\n";
  check_log(__FILE__, __LINE__, expected, true);
}

// The companion goes before what it holds.
void order_of_ending() {
  {
    Pair pair;
    Buffers small(4);
    for (int rank = 0; rank < 2; ++rank) CHECK(reduce(pair, small, rank, 1) == ncclSuccess);
    fakeNcclLogClear();
    CHECK(ncclCommFinalize(pair[0]) == ncclSuccess);
    CHECK_LOG("drain r0\nfree r0\nfinalize r0\n");
  }
  CHECK_LOG("destroy r0\ndrain r1\nfree r1\ndestroy r1\n");
  ncclComm_t comms[2];
  CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
  CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
  CHECK_LOG("stop r0\ngone r0\nabort r0\nfree r0\n");
  // What NCCL does not destroy is still there, without its companion.
  fakeNcclFailNext(ncclInvalidArgument);
  CHECK(ncclCommDestroy(comms[1]) == ncclInvalidArgument);
  CHECK_LOG("drain r1\nfree r1\ndestroy r1\n");
  float value = 1, sum = 0;
  CHECK(ncclAllReduce(&value, &sum, 1, ncclFloat32, ncclSum, comms[1], stream(4)) == ncclSuccess);
  CHECK_LOG("nccl AllReduce r1 s4 1\n");
  CHECK(ncclCommAbort(comms[1]) == ncclSuccess);
  CHECK_LOG("abort r1\n");
  CHECK(ncclCommDestroy(nullptr) == ncclSuccess);
}

// Two communicators from one thread inside a group, as programs of one process make them.
void made_in_a_group() {
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  Pair pair;
  ncclComm_t comms[2] = {};
  CHECK(ncclGroupStart() == ncclSuccess);
  for (int rank = 0; rank < 2; ++rank) CHECK(ncclCommInitRank(&comms[rank], 2, id, rank) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  fakeNcclLogClear();
  float values[2] = {1, 2}, sums[2] = {};
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(ncclAllReduce(&values[rank], &sums[rank], 1, ncclFloat32, ncclSum, comms[rank], stream(1)) ==
          ncclSuccess);
  }
  CHECK(sums[0] == 3 && sums[1] == 3);
  CHECK_LOG("nearlight AllReduce r0 s1 1\nnearlight AllReduce r1 s1 1\n");
  for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

// Two ranks, each with its configuration: calls that are taken, and whether those of a communicator that is
// split from it are.
void made_with(const ncclConfig_t (&configs)[2], bool taken, ncclConfig_t* of_the_split, bool split_taken) {
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  float value = 1, sums[2] = {}, sums_of_split[2] = {};
  on_ranks(2, [&](int rank) {
    ncclConfig_t config = configs[rank];
    ncclComm_t comm = nullptr, split = nullptr;
    CHECK(ncclCommInitRankConfig(&comm, 2, id, rank, &config) == ncclSuccess);
    CHECK(ncclAllReduce(&value, &sums[rank], 1, ncclFloat32, ncclSum, comm, stream(1)) == ncclSuccess);
    CHECK(ncclCommSplit(comm, 0, rank, &split, of_the_split) == ncclSuccess);
    CHECK(ncclAllReduce(&value, &sums_of_split[rank], 1, ncclFloat32, ncclSum, split, stream(2)) ==
          ncclSuccess);
  });
  const std::string log = fakeNcclLogText();
  fakeNcclLogClear();
  const auto has = [&log](const char* who, const char* stream) {
    return log.find(std::string(who) + " AllReduce r1 " + stream + " 1") != std::string::npos;
  };
  CHECK(has(taken ? "nearlight" : "nccl", "s1"));
  CHECK(has(split_taken ? "nearlight" : "nccl", "s2"));
}

// What limits the CTAs is respected by all ranks, and by what is split without a configuration of its own.
void refused_by_configuration() {
  ncclConfig_t plain = NCCL_CONFIG_INITIALIZER, limited = plain, careful = plain;
  limited.maxCTAs = 4;
  careful.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
  made_with({plain, plain}, true, nullptr, true);
  made_with({plain, limited}, false, nullptr, false);
  made_with({limited, plain}, false, &plain, true);
  made_with({plain, plain}, true, &limited, false);
  made_with({careful, careful}, false, nullptr, false);
  // Programs of an older NCCL give a shorter structure: what it lacks is whatever stands behind it.
  ncclConfig_t older = limited, oldest = limited;
  older.size = offsetof(ncclConfig_t, splitShare);
  older.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
  made_with({older, older}, false, nullptr, false);
  oldest.size = offsetof(ncclConfig_t, maxCTAs);
  made_with({oldest, oldest}, true, nullptr, true);
}

// No companion, no difference but the reason; a world of one rank is silent.
void all_forwarded() {
  Pair pair;
  fakeNcclLogClear();
  Buffers small(4);
  for (int rank = 0; rank < 2; ++rank) CHECK(reduce(pair, small, rank, 1) == ncclSuccess);
  CHECK(small.all_are(3));
  CHECK_LOG("nccl AllReduce r0 s1 4\nnccl AllReduce r1 s1 4\n");
  ncclComm_t alone = nullptr;
  CHECK(ncclCommInitAll(&alone, 1, nullptr) == ncclSuccess);
  float value = 7, sum = -1;
  CHECK(ncclAllReduce(&value, &sum, 1, ncclFloat32, ncclSum, alone, stream(1)) == ncclSuccess && sum == 7);
  CHECK(ncclCommDestroy(alone) == ncclSuccess);
  CHECK_LOG("nccl AllReduce r0 s1 1\ndestroy r0\n");
}

// The ranks may disagree about it: the program must not go on with it.
void broken_creation() {
  ncclComm_t comms[2] = {};
  CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclRemoteError);
  CHECK(comms[0] == nullptr && comms[1] == nullptr);
  CHECK(std::strstr(ncclGetLastError(nullptr), "rank 1 did not come in time") != nullptr);
  CHECK(fakeNcclLive() == 0);
}

// Threads with a communicator of their own each, and queries from another thread meanwhile.
void threads() {
  constexpr int kThreads = 4, kRounds = 300;
  std::vector<std::thread> all;
  for (int t = 0; t < kThreads; ++t) {
    all.emplace_back([t] {
      for (int round = 0; round < 3; ++round) {
        Pair pair;
        std::thread watch([&pair] {
          for (int i = 0; i < kRounds; ++i) {
            ncclResult_t state = ncclSuccess;
            CHECK(ncclCommGetAsyncError(pair[1], &state) == ncclSuccess && state == ncclSuccess);
          }
        });
        for (int i = 0; i < kRounds; ++i) {
          Buffers buffers(static_cast<std::size_t>(1 + (i + t) % 3 * 20'000));
          if (i % 2 == 0) CHECK(ncclGroupStart() == ncclSuccess);
          for (int rank = 0; rank < 2; ++rank) CHECK(reduce(pair, buffers, rank, 1) == ncclSuccess);
          if (i % 2 == 0) CHECK(ncclGroupEnd() == ncclSuccess);
          CHECK(buffers.all_are(3));
        }
        watch.join();
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  CHECK(fakeNcclLive() == 0);
}

// Ends without destroying its communicators.
void never_destroyed() {
  static ncclComm_t comms[2];
  CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
  Buffers small(4);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(ncclAllReduce(small.send[rank].data(), small.recv[rank].data(), 4, ncclFloat32, ncclSum,
                        comms[rank], stream(1)) == ncclSuccess);
  }
}

void newer_function() {
  Pair pair;
  CHECK(ncclOfTomorrow(1) == 1 + NCCL_VERSION_CODE);
}

// What the NCCL behind the drop-in lacks is an error with a text where it is called, and nothing before.
void missing_function() {
  ncclWindow_t window = nullptr;
  ncclComm_t comm = nullptr;
  char memory[8];
  CHECK(ncclCommWindowRegister(nullptr, memory, sizeof memory, &window, 0) == ncclInvalidUsage);
  CHECK(std::strstr(ncclGetLastError(nullptr), "has no function ncclCommWindowRegister") != nullptr);
  CHECK(ncclCommShrink(nullptr, nullptr, 0, &comm, nullptr, 0) == ncclInvalidUsage);
  CHECK(std::strstr(ncclGetLastError(nullptr), "has no function ncclCommShrink") != nullptr);
  int version = 0;
  CHECK(ncclGetVersion(&version) == ncclSuccess && version == NCCL_VERSION_CODE);
}

void cost() {
  Pair pair;
  fakeNcclQuiet(1);
  float value = 1, sum = 0;
  constexpr int kCalls = 2'000'000;
  const auto time = [&](auto call) {
    double best = 1e9;
    for (int turn = 0; turn < 5; ++turn) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kCalls / 5; ++i) call();
      const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
      best = std::min(best, spent.count() / (kCalls / 5));
    }
    return best;
  };
  const double gather =
      time([&] { static_cast<void>(ncclAllGather(&value, &sum, 1, ncclFloat32, pair[0], stream(1))); });
  const double reduce = time(
      [&] { static_cast<void>(ncclAllReduce(&value, &sum, 1, ncclInt32, ncclSum, pair[0], stream(1))); });
  const double version = time([&] {
    int number = 0;
    static_cast<void>(ncclGetVersion(&number));
  });
  std::printf("ns a call: AllGather %.1f AllReduce %.1f GetVersion %.1f\n", gather, reduce, version);
  fakeNcclQuiet(0);
}

constexpr Case kCases[] = {{"taken", taken},
                           {"forwarded", forwarded},
                           {"groups", groups},
                           {"grouped_messages", grouped_messages},
                           {"several_communicators", several_communicators},
                           {"group_with_streams", group_with_streams},
                           {"taken_and_forwarded_on_two_streams", taken_and_forwarded_on_two_streams},
                           {"simulated_group", simulated_group},
                           {"stops_before_nccl", stops_before_nccl},
                           {"failures", failures},
                           {"life", life},
                           {"order_of_ending", order_of_ending},
                           {"made_in_a_group", made_in_a_group},
                           {"refused_by_configuration", refused_by_configuration},
                           {"all_forwarded", all_forwarded},
                           {"broken_creation", broken_creation},
                           {"threads", threads},
                           {"never_destroyed", never_destroyed},
                           {"newer_function", newer_function},
                           {"missing_function", missing_function},
                           {"cost", cost}};

}  // namespace

std::span<const Case> cases() { return kCases; }

}  // namespace nearlight::test
