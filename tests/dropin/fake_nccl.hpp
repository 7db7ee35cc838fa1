// What the stand-in for NCCL offers beyond NCCL's functions.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>

extern "C" {
// A function that no version of NCCL has.
int ncclOfTomorrow(int value);

// What happened, a line each, in order: "nccl AllReduce r0 s1 4" (rank, stream, count), "nearlight ...".
void fakeNcclLog(const char* line);
const char* fakeNcclLogText();
void fakeNcclLogClear();
// Collectives do nothing and log nothing any more.
void fakeNcclQuiet(int quiet);
// The next collective, end of a group or ncclCommDestroy returns this.
void fakeNcclFailNext(ncclResult_t result);
// 0: companions are well; else a nearlight::Code that they have failed with.
void fakeNcclSetCompanionFailure(int code);
int fakeNcclCompanionFailure();
// 1: what companions have enqueued does not come to its end.
void fakeNcclHold(int held);
int fakeNcclHeld();
// Where a thread can be held: in a companion that is asked how it is, in NCCL's ncclCommGetAsyncError, at the
// beginning of its ncclCommFinalize, and where a companion is made (FAKE_ATTACH=stuck).
typedef enum {
  fakeNcclCompanionIsAsked,
  fakeNcclStateIsAsked,
  fakeNcclFinalizes,
  fakeNcclAttaches,
  fakeNcclPlaces
} fakeNcclPlace;
// 1: the next thread stays there before this is 0 again, or ten seconds are over.
void fakeNcclHoldAt(fakeNcclPlace place, int held);
// How many are held there.
int fakeNcclHeldAt(fakeNcclPlace place);
// A thread comes there.
void fakeNcclPass(fakeNcclPlace place);

// All ranks give a value and get those of all; 0 when they do not come within ten seconds. For whoever stands
// beside a communicator.
int fakeNcclMeet(ncclComm_t comm, std::uint64_t mine, std::uint64_t* all);
// An all-reduce of the companion's, by the same memory and in an order of its own.
ncclResult_t fakeNcclTaken(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, void* stream);
int fakeNcclRank(ncclComm_t comm);
// Communicators that were made and have not been destroyed.
int fakeNcclLive();
}
