// Cases of how communicators are made and end.
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>

#include "tests/dropin/fake_nccl.hpp"
#include "tests/dropin/pair.hpp"
#include "tests/dropin/program.hpp"

namespace nearlight::test {

namespace {

const auto kAPause = std::chrono::milliseconds(100);  // a chance to do it wrong

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

// Ten seconds at most.
template <class Holds>
bool soon(const Holds& holds) {
  for (int i = 0; i < 10'000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return holds();
}

bool log_has(const char* line) { return std::strstr(fakeNcclLogText(), line) != nullptr; }

// A thread that only asks for errors, as PyTorch's does all the time, is inside the companion when another
// one ends the communicator: whoever ends it frees the companion, and before NCCL's part where that goes
// last.
void asked_while_it_ends() {
  const auto ends = [](ncclResult_t (*end)(ncclComm_t), const char* expected) {
    ncclComm_t comms[2];
    CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
    fakeNcclLogClear();
    fakeNcclHoldAt(fakeNcclCompanionIsAsked, 1);
    std::thread asking([&] {
      ncclResult_t state = ncclSuccess;
      CHECK(ncclCommGetAsyncError(comms[0], &state) == ncclSuccess && state == ncclSuccess);
    });
    CHECK(soon([] { return fakeNcclHeldAt(fakeNcclCompanionIsAsked) == 1; }));
    std::thread ending([&] { CHECK(end(comms[0]) == ncclSuccess); });
    std::this_thread::sleep_for(kAPause);
    CHECK(!log_has("destroy r0") && !log_has("abort r0") && !log_has("free r0"));
    fakeNcclHoldAt(fakeNcclCompanionIsAsked, 0);
    asking.join();
    ending.join();
    CHECK_LOG(expected);
    CHECK(ncclCommDestroy(comms[1]) == ncclSuccess);
  };
  ends(ncclCommDestroy, "drain r0\nfree r0\ndestroy r0\n");
  ends(ncclCommAbort, "stop r0\ngone r0\nabort r0\nfree r0\n");
}

// Another thread aborts it while `end` waits for its operations to end, which they do not: it is aborted, and
// not ended otherwise.
void aborted_while_it_waits(ncclResult_t (*end)(ncclComm_t)) {
  ncclComm_t comms[2];
  CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
  fakeNcclLogClear();
  fakeNcclHold(1);
  std::thread ending([&] {
    CHECK(end(comms[0]) != ncclSuccess);
    CHECK(std::strstr(ncclGetLastError(nullptr), "another thread ends it") != nullptr);
  });
  float value = 1, sum = 0;
  // It is being ended when calls are passed on.
  CHECK(soon([&] {
    return ncclAllReduce(&value, &sum, 1, ncclFloat32, ncclSum, comms[0], stream(1)) == ncclSuccess &&
           log_has("nccl AllReduce r0");
  }));
  fakeNcclLogClear();
  CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
  ending.join();
  CHECK_LOG("stop r0\ngone r0\nabort r0\nfree r0\n");
  fakeNcclHold(0);
  CHECK(ncclCommAbort(comms[1]) == ncclSuccess);
  CHECK(fakeNcclLive() == 0);
}
void aborted_while_it_is_finalized() { aborted_while_it_waits(ncclCommFinalize); }
void aborted_while_it_is_destroyed() { aborted_while_it_waits(ncclCommDestroy); }

// Another thread aborts it while a call asks NCCL how it is, before it has looked at the companion: the abort
// waits for that call, which leaves the communicator and all that come after it alone.
void aborted_while_a_call_begins(ncclResult_t (*end)(ncclComm_t)) {
  ncclComm_t comms[2], others[2];
  CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
  fakeNcclLogClear();
  fakeNcclHoldAt(fakeNcclStateIsAsked, 1);
  std::thread ending([&] {
    CHECK(end(comms[0]) != ncclSuccess);
    CHECK(std::strstr(ncclGetLastError(nullptr), "another thread ends it") != nullptr);
  });
  CHECK(soon([] { return fakeNcclHeldAt(fakeNcclStateIsAsked) == 1; }));
  std::thread aborting([&] { CHECK(ncclCommAbort(comms[0]) == ncclSuccess); });
  CHECK(soon([] { return log_has("stop r0"); }));
  std::this_thread::sleep_for(kAPause);
  CHECK(!log_has("abort r0"));
  // What is made now has an entry of its own.
  CHECK(ncclCommInitAll(others, 2, nullptr) == ncclSuccess);
  fakeNcclHoldAt(fakeNcclStateIsAsked, 0);
  ending.join();
  aborting.join();
  CHECK_LOG("stop r0\ngone r0\nabort r0\nfree r0\n");
  float values[2] = {1, 2}, sums[2] = {};
  for (int rank = 0; rank < 2; ++rank)
    CHECK(ncclAllReduce(&values[rank], &sums[rank], 1, ncclFloat32, ncclSum, others[rank], stream(1)) ==
          ncclSuccess);
  CHECK(sums[0] == 3);
  CHECK_LOG("nearlight AllReduce r0 s1 1\nnearlight AllReduce r1 s1 1\n");
  for (ncclComm_t comm : {comms[1], others[0], others[1]}) CHECK(ncclCommDestroy(comm) == ncclSuccess);
  CHECK(fakeNcclLive() == 0);
}
void aborted_as_finalizing_begins() { aborted_while_a_call_begins(ncclCommFinalize); }
void aborted_as_destroying_begins() { aborted_while_a_call_begins(ncclCommDestroy); }

// Another thread destroys it: what the other call asks of NCCL, it asks of a communicator that is there.
void destroyed_as_finalizing_begins() {
  ncclComm_t comms[2];
  CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
  fakeNcclLogClear();
  fakeNcclHoldAt(fakeNcclStateIsAsked, 1);
  std::thread finalizing([&] {
    CHECK(ncclCommFinalize(comms[0]) != ncclSuccess);
    CHECK(std::strstr(ncclGetLastError(nullptr), "another thread ends it") != nullptr);
  });
  CHECK(soon([] { return fakeNcclHeldAt(fakeNcclStateIsAsked) == 1; }));
  std::thread destroying([&] { CHECK(ncclCommDestroy(comms[0]) == ncclSuccess); });
  CHECK(soon([] { return log_has("free r0"); }));
  std::this_thread::sleep_for(kAPause);
  CHECK(!log_has("destroy r0"));
  fakeNcclHoldAt(fakeNcclStateIsAsked, 0);
  finalizing.join();
  destroying.join();
  CHECK_LOG("drain r0\nfree r0\ndestroy r0\n");
  CHECK(ncclCommDestroy(comms[1]) == ncclSuccess);
  CHECK(fakeNcclLive() == 0);
}

// ... aborts or destroys it while a call is on its way into NCCL's ncclCommFinalize: it finds the
// communicator there.
void ended_while_nccl_finalizes(ncclResult_t (*end)(ncclComm_t), const char* expected) {
  ncclComm_t comms[2];
  CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
  fakeNcclLogClear();
  fakeNcclHoldAt(fakeNcclFinalizes, 1);
  std::thread ending([&] { CHECK(ncclCommFinalize(comms[0]) == ncclSuccess); });
  CHECK(soon([] { return fakeNcclHeldAt(fakeNcclFinalizes) == 1; }));
  std::thread other([&] { CHECK(end(comms[0]) == ncclSuccess); });
  std::this_thread::sleep_for(kAPause);
  fakeNcclHoldAt(fakeNcclFinalizes, 0);
  ending.join();
  other.join();
  CHECK_LOG(expected);
  CHECK(ncclCommDestroy(comms[1]) == ncclSuccess);
  CHECK(fakeNcclLive() == 0);
}
void aborted_while_nccl_finalizes() {
  ended_while_nccl_finalizes(ncclCommAbort, "drain r0\nfree r0\nfinalize r0\nabort r0\n");
}
void destroyed_while_nccl_finalizes() {
  ended_while_nccl_finalizes(ncclCommDestroy, "drain r0\nfree r0\nfinalize r0\ndestroy r0\n");
}

// The abort does not wait for ever for a thread that makes the companion: what that brings afterwards is
// freed there, and nothing of it is the next communicator's.
void aborted_before_the_companion_is_made() {
  ncclComm_t comms[2], next = nullptr;
  fakeNcclHoldAt(fakeNcclAttaches, 1);
  CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclInProgress);
  CHECK(soon([] { return fakeNcclHeldAt(fakeNcclAttaches) == 1; }));
  // Whose thread is held is the one that stays in progress.
  const auto is_ready = [](ncclComm_t comm) {
    ncclResult_t state = ncclInProgress;
    return ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclSuccess;
  };
  CHECK(soon([&] { return is_ready(comms[0]) || is_ready(comms[1]); }));
  const int late = is_ready(comms[0]) ? 1 : 0;
  const std::string rank = " r" + std::to_string(late) + "\n";
  CHECK(ncclCommAbort(comms[late]) == ncclSuccess);
  check_log(__FILE__, __LINE__, "revoke" + rank + "abort" + rank);
  fakeNcclHoldAt(fakeNcclAttaches, 0);
  CHECK(soon([&] { return log_has("free r"); }));
  check_log(__FILE__, __LINE__, "gone" + rank + "free" + rank);
  std::this_thread::sleep_for(kAPause);  // the thread lets the entry go
  CHECK(ncclCommInitAll(&next, 1, nullptr) == ncclInProgress);
  CHECK(soon([&] { return is_ready(next); }));
  fakeNcclLogClear();
  CHECK(ncclCommAbort(next) == ncclSuccess);
  CHECK_LOG("abort r0\n");
  CHECK(ncclCommAbort(comms[1 - late]) == ncclSuccess);
  CHECK(fakeNcclLive() == 0);
}

// What a group has kept of a communicator that another thread has ended goes to none that came after it.
void ended_within_a_group() {
  ncclComm_t comms[2], others[2] = {};
  CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
  float value = 1, sum = 0;
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclAllReduce(&value, &sum, 1, ncclFloat32, ncclSum, comms[0], stream(1)) == ncclSuccess);
  std::thread([&] {
    CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
    CHECK(ncclCommInitAll(others, 2, nullptr) == ncclSuccess);
  }).join();
  fakeNcclLogClear();
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  CHECK(std::strstr(ncclGetLastError(nullptr), "ended meanwhile") != nullptr);
  CHECK_LOG("end of group\n");
  for (ncclComm_t comm : {comms[1], others[0], others[1]}) CHECK(ncclCommDestroy(comm) == ncclSuccess);
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

// The ranks may disagree about it: the program must not go on with it.
void broken_creation() {
  ncclComm_t comms[2] = {};
  CHECK(ncclCommInitAll(comms, 2, nullptr) == ncclRemoteError);
  CHECK(comms[0] == nullptr && comms[1] == nullptr);
  CHECK(std::strstr(ncclGetLastError(nullptr), "rank 1 did not come in time") != nullptr);
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

constexpr Case kCases[] = {{"life", life},
                           {"order_of_ending", order_of_ending},
                           {"asked_while_it_ends", asked_while_it_ends},
                           {"aborted_while_it_is_finalized", aborted_while_it_is_finalized},
                           {"aborted_as_finalizing_begins", aborted_as_finalizing_begins},
                           {"aborted_as_destroying_begins", aborted_as_destroying_begins},
                           {"aborted_while_it_is_destroyed", aborted_while_it_is_destroyed},
                           {"aborted_while_nccl_finalizes", aborted_while_nccl_finalizes},
                           {"destroyed_as_finalizing_begins", destroyed_as_finalizing_begins},
                           {"destroyed_while_nccl_finalizes", destroyed_while_nccl_finalizes},
                           {"aborted_before_the_companion_is_made", aborted_before_the_companion_is_made},
                           {"ended_within_a_group", ended_within_a_group},
                           {"made_in_a_group", made_in_a_group},
                           {"refused_by_configuration", refused_by_configuration},
                           {"broken_creation", broken_creation},
                           {"never_destroyed", never_destroyed}};

}  // namespace

std::span<const Case> life_cases() { return kCases; }

}  // namespace nearlight::test
