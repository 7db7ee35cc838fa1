// Cases of calls: what is taken, passed on, and in which order.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/dropin/fake_nccl.hpp"
#include "tests/dropin/pair.hpp"
#include "tests/dropin/program.hpp"

namespace nearlight::test {

namespace {

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
                           {"all_forwarded", all_forwarded},
                           {"threads", threads},
                           {"newer_function", newer_function},
                           {"missing_function", missing_function},
                           {"cost", cost}};

}  // namespace

std::span<const Case> cases() { return kCases; }

}  // namespace nearlight::test
