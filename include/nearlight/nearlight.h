/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nearlight for C: low-latency collectives of GPUs and CPUs of one host.
 *
 * A communicator (nearlightComm_t) is one rank's end of a group. Every rank of a group makes the same
 * collective calls in the same order. Of one communicator, one thread at a time may be in a collective call;
 * different communicators are independent. The calls that look at a communicator (rank, info, status,
 * explain) and nearlightCommAbort may be made by any thread at any time, also while another one is in a
 * collective call.
 *
 * Every function that can fail returns a nearlightResult_t. nearlightGetLastError() then gives the text: the
 * call, the rank where there is one, the argument, and what is wrong with it. After an error for an argument
 * nothing was written and the communicator can be used as before. The library never ends the process, and no
 * call waits without a limit.
 *
 * A communicator belongs to the process that made it. In a child made by fork() it is no live communicator;
 * the parent's goes on as before.
 *
 * Structs that callers make begin with their own size in bytes, so that they can grow: fill them with the
 * initializers below. docs/reference/c-api.md has the same by function, docs/guide shows a first program.
 */
#ifndef NEARLIGHT_NEARLIGHT_H
#define NEARLIGHT_NEARLIGHT_H

#include <nearlight/version.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define NEARLIGHT_API __attribute__((visibility("default")))
#else
#define NEARLIGHT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- results ---------------------------------------------------------------------------------------- */

/* Values 0 to 7 are NCCL's (ncclResult_t) for NCCL's meanings; nearlight's own begin at 100. */
typedef enum {
  nearlightSuccess = 0,
  nearlightCudaError = 1,       /* a CUDA call failed; the text names the call and gives CUDA's own text */
  nearlightSystemError = 2,     /* a system call failed, or memory is short; the text names what */
  nearlightInternalError = 3,   /* something that nearlight relies on does not hold: please report it */
  nearlightInvalidArgument = 4, /* the text names the argument */
  nearlightInvalidUsage = 5,    /* the arguments are fine, the moment or the other ranks' are not */
  nearlightRemoteError = 6,     /* another rank failed or left; the text names it */
  nearlightInProgress = 7,
  nearlightTimeout = 8,       /* a rank did not come within the limit; the text names it */
  nearlightUnsupported = 100, /* this version, build or machine cannot do it; the text says why */
  nearlightAborted = 101,     /* the communicator was told to stop */
  nearlightResultMin_ = -1,   /* these two make the type as wide as an int */
  nearlightResultMax_ = 0x7fffffff
} nearlightResult_t;

/* A code in words, as in "invalid argument"; "unknown code" for any other number. Static text. Any thread. */
NEARLIGHT_API const char* nearlightGetErrorString(nearlightResult_t result);

/* The text of the last call of this thread that failed, "" when none has. It stays as it is until the next
 * failure on this thread; copy it to keep it longer. Any thread; never NULL. */
NEARLIGHT_API const char* nearlightGetLastError(void);

/* ---- version ---------------------------------------------------------------------------------------- */

/* The library's NEARLIGHT_VERSION_CODE (major * 10000 + minor * 100 + patch), which may differ from the
 * header's. Any thread. Errors: nearlightInvalidArgument when version is NULL. */
NEARLIGHT_API nearlightResult_t nearlightGetVersion(int* version);

/* Whether a program that was compiled with the header of `header_version` (a NEARLIGHT_VERSION_CODE) may use
 * this library: it may when both have the same major number (below 1.0: also the same minor number) and the
 * library is not older. Any thread. Errors: nearlightUnsupported, with both versions in the text. */
NEARLIGHT_API nearlightResult_t nearlightCheckVersion(int header_version);

/* nearlightSuccess when the library fits the header that this is compiled with. */
#define NEARLIGHT_CHECK_VERSION() nearlightCheckVersion(NEARLIGHT_VERSION_CODE)

/* ---- types ------------------------------------------------------------------------------------------ */

/* Element types; the numbers are NCCL's (ncclDataType_t). Every collective takes all of them. */
typedef enum {
  nearlightInt8 = 0,
  nearlightUint8 = 1,
  nearlightInt32 = 2,
  nearlightUint32 = 3,
  nearlightInt64 = 4,
  nearlightUint64 = 5,
  nearlightFloat16 = 6,
  nearlightFloat32 = 7,
  nearlightFloat64 = 8,
  nearlightBfloat16 = 9,
  nearlightFloat8e4m3 = 10,
  nearlightFloat8e5m2 = 11,
  nearlightDataTypeMin_ = -1,
  nearlightDataTypeMax_ = 0x7fffffff
} nearlightDataType_t;

/* Reductions; the numbers are NCCL's (ncclRedOp_t). Others come from nearlightRedOpCreatePreMulSum. */
typedef enum {
  nearlightSum = 0,
  nearlightProd = 1,
  nearlightMax = 2,
  nearlightMin = 3,
  nearlightAvg = 4,
  nearlightRedOpMin_ = -1,
  nearlightRedOpMax_ = 0x7fffffff
} nearlightRedOp_t;

/* Where the scalar of nearlightRedOpCreatePreMulSum is read. */
typedef enum {
  nearlightScalarDevice = 0,        /* on the GPU, by each operation; not in this version */
  nearlightScalarHostImmediate = 1, /* on the host, before the call returns */
  nearlightScalarResidenceMin_ = -1,
  nearlightScalarResidenceMax_ = 0x7fffffff
} nearlightScalarResidence_t;

/* What nearlightExplain can be asked about. */
typedef enum {
  nearlightCollectiveAllReduce = 1,
  nearlightCollectiveAllGather = 3,
  nearlightCollectiveReduceScatter = 4,
  nearlightCollectiveBroadcast = 5,
  nearlightCollectiveReduce = 6,
  nearlightCollectiveAllToAll = 7,
  nearlightCollectiveAllGatherV = 8,
  nearlightCollectiveReduceScatterV = 9,
  nearlightCollectiveAllToAllV = 10,
  nearlightCollectiveSendRecv = 11,         /* one message */
  nearlightCollectiveAllReduceRmsNorm = 16, /* fused: for nearlightExplainFused */
  nearlightCollectiveAllReduceBias = 17,
  nearlightCollectiveGemvAllReduce = 18, /* products: for nearlightExplainGemv */
  nearlightCollectiveAllGatherGemv = 19,
  nearlightCollectiveMin_ = -1,
  nearlightCollectiveMax_ = 0x7fffffff
} nearlightCollective_t;

/* One rank's end of a group. An opaque handle: it is looked up, never followed, so that a handle that was
 * destroyed, or never was one, is an error and nothing worse. */
typedef struct nearlightComm* nearlightComm_t;

struct ncclComm;    /* NCCL's communicator: ncclComm_t is a pointer to it */
struct CUstream_st; /* CUDA's stream: cudaStream_t and CUstream are pointers to it */

/* ---- making and ending communicators ---------------------------------------------------------------- */

/* What a communicator is to be like. All ranks of a group must give the same. 0 in a field: the default. */
typedef struct {
  size_t size;               /* sizeof(nearlightConfig_t) */
  int64_t timeout_ms;        /* how long one wait lasts before the communicator fails, in ms, 1 ms to a year
                                [NEARLIGHT_TIMEOUT_MS, else 600000] */
  int64_t create_timeout_ms; /* how long creation may take, in ms, 1 ms to a year [60000] */
  int32_t check;             /* 1: check mode, -1: none [NEARLIGHT_CHECK, else none]. In check mode every call
                                looks at its pointers and its stream, and is compared with all other ranks'
                                (collective, count, type, operator, path), which waits for them but for GPU
                                ranks of one process: slower, for finding mistakes */
  uint32_t regions;          /* parallel regions of the scratch, so the most CTAs, at most 1024 */
  uint32_t slots;            /* LL slots (8 bytes of payload) a region, a multiple of 32, at most 2^20 */
  uint32_t chunk_bytes;      /* bytes of a chunk of the simple protocol, a multiple of 16, at most 64 MiB */
  uint32_t packets;          /* packets (16 bytes of payload) of the sentinel a region, at most 2^20 */
  uint32_t max_ctas;     /* the most CTAs that a call takes of a GPU, at most `regions` where both are given
                            [NEARLIGHT_MAX_CTAS, else as many as regions] */
  int32_t deterministic; /* 1: results are the same from run to run, -1: sums and averages may be added in
                            the order of arrival: by who asks for two_shot_atomic, and by three or more
                            GPUs with NVLink (all ranks still have the same bits)
                            [NEARLIGHT_DETERMINISTIC, else 1] */
  uint32_t lines;        /* 128-byte lines (120 bytes of payload) of LL128 a region, a multiple of 4, at
                            most 2^17 [what the route table asks for; GPUs test them, 0.1 s] */
  int32_t early_launch;  /* 1: the kernel after a call's may become resident while the call still waits for
                            the others (programmatic dependent launch), -1: not before the call's end. If it
                            fills the GPU, nothing else finds room there until the wait is over, not even
                            what the others wait for: docs/concepts/hand-over.md
                            [NEARLIGHT_EARLY_LAUNCH, else 1 where on every GPU it is the process's first
                            communicator and no other rank's, else -1; nearlightCommGetInfo tells] */
  uint32_t reserved;     /* 0 */
} nearlightConfig_t;

#define NEARLIGHT_CONFIG_INITIALIZER \
  { sizeof(nearlightConfig_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* All CPU ranks of a group in this process: comms[i] becomes rank i of `nranks` (1 to 8). Each is then used
 * by a thread of its own. Any thread; waits at most config->create_timeout_ms. `config` may be NULL.
 * Errors: nearlightInvalidArgument (comms is NULL, nranks or a field of config is out of range),
 * nearlightSystemError. On failure nothing is left behind and comms[] is not written. */
NEARLIGHT_API nearlightResult_t nearlightCommCreateHostGroup(nearlightComm_t* comms, int nranks,
                                                             const nearlightConfig_t* config);

/* All GPU ranks of a group in this process: comms[i] becomes rank i of `nranks` (1 to 8), on the CUDA device
 * devices[i]. Several ranks may share a device; each then needs a stream of its own, and
 * CUDA_DEVICE_MAX_CONNECTIONS more than the ranks of a device. NCCL is not needed. Any thread; the thread's
 * current device stays as it is. Waits at most config->create_timeout_ms.
 * Errors: as above (devices is NULL, devices[i] is no device), nearlightUnsupported (built without CUDA, no
 * driver, devices that do not reach each other), nearlightCudaError. */
NEARLIGHT_API nearlightResult_t nearlightCommCreateCudaGroup(nearlightComm_t* comms, int nranks,
                                                             const int* devices,
                                                             const nearlightConfig_t* config);

/* One CPU rank of a group whose ranks are processes of this host (or threads of one), 1 to 8. Collective:
 * every rank calls it. They find each other by `key`, any text of 1 to 200 bytes without control characters
 * that no other group uses at the same time. `key` NULL: NEARLIGHT_KEY, else the job's own, from torchrun,
 * Open MPI, PMI or Slurm. `rank` and `nranks` both -1: likewise, from NEARLIGHT_RANK and NEARLIGHT_NRANKS or
 * the job. Any thread; waits at most config->create_timeout_ms for the others. All ranks get a communicator
 * or none does. A rank whose process ends later makes the others' calls fail at once.
 * Errors: nearlightInvalidArgument (names the argument, or the variable of the job that is wrong or missing),
 * nearlightTimeout (names the ranks that did not come), nearlightRemoteError (a rank ended or gave up,
 * named), nearlightInvalidUsage (the ranks came with different arguments, or two as one),
 * nearlightUnsupported (a job over several hosts), nearlightSystemError. */
NEARLIGHT_API nearlightResult_t nearlightCommCreateHost(nearlightComm_t* comm, int rank, int nranks,
                                                        const char* key, const nearlightConfig_t* config);

/* One GPU rank of a group whose ranks are processes of this host, on the CUDA device `device` (this process's
 * number of it; it need not see the others' GPUs). NCCL is not needed. Ranks of several processes that share
 * a GPU take turns on it, milliseconds each: of use for tests only. The thread's current device stays as it
 * is. Everything else as for nearlightCommCreateHost.
 * Errors: as there, and nearlightInvalidArgument (no such device), nearlightUnsupported (built without CUDA,
 * devices that do not reach each other), nearlightCudaError. */
NEARLIGHT_API nearlightResult_t nearlightCommCreateCuda(nearlightComm_t* comm, int device, int rank,
                                                        int nranks, const char* key,
                                                        const nearlightConfig_t* config);

/* A GPU rank on top of an NCCL communicator (from NCCL 2.19 on). Its memory is in windows of NCCL where they
 * were tested with that version (2.28.9) and its ranks have them; else it is what the ranks share without
 * NCCL, for ranks on one host whose GPUs NVLink connects. NEARLIGHT_NCCL_MEMORY decides otherwise;
 * nearlightCommGetInfo tells which and why. Collective over `nccl`, which stays the caller's, must be idle
 * during the call and must outlive the new communicator. Any thread; waits at most config->create_timeout_ms.
 * Errors: nearlightInvalidArgument (comm or nccl is NULL; the variable), nearlightUnsupported (built without
 * CUDA or NCCL's headers, an older NCCL, ranks that do not reach each other), nearlightInvalidUsage (ranks
 * with different variables).
 */
NEARLIGHT_API nearlightResult_t nearlightCommAttachNccl(nearlightComm_t* comm, struct ncclComm* nccl,
                                                        const nearlightConfig_t* config);

/* Ends a communicator and frees what it holds, its operators included. Operations that still run are ended,
 * not awaited: synchronise the stream before, when the results matter. CUDA graphs that captured its
 * operations may be destroyed later; replayed, they do nothing. Not collective. One thread; afterwards the
 * handle is dead for all. NULL does nothing. Errors: nearlightInvalidArgument (no live communicator),
 * nearlightInvalidUsage (another thread is in a collective call: nearlightCommAbort ends it). */
NEARLIGHT_API nearlightResult_t nearlightCommDestroy(nearlightComm_t comm);

/* Ends every wait of this rank, those that are going on and all later ones: the communicator has then failed
 * with nearlightAborted. Not collective; any thread. Errors: nearlightInvalidArgument (no live communicator).
 */
NEARLIGHT_API nearlightResult_t nearlightCommAbort(nearlightComm_t comm);

/* ---- coming back from a failure --------------------------------------------------------------------- */

/* Brings a communicator back, failed or not, with the ranks that it has: ends what this rank still waits for,
 * waits until nothing of it runs on any rank, and puts the scratch of all to rest. Results of operations that
 * were under way are undefined; CUDA graphs that captured its operations can be replayed as before. GPU ranks
 * wait for all work of their device. Collective: one thread of every rank, and no operation of the
 * communicator (nor a graph with one) is started meanwhile. Waits at most `timeout_ms` (1 ms to a year; 0:
 * what creation may take); longer than the limit of one wait is of use, since the others may still be in one.
 * On failure the communicator has failed, and nearlightCommReset may be called again. Errors:
 * nearlightInvalidArgument (no live communicator, timeout_ms), nearlightTimeout (names who did not come, or
 * whose device has not ended its work), nearlightRemoteError (names who is gone: see nearlightCommShrink),
 * nearlightInvalidUsage (another thread is in a call; it was shrunk), nearlightAborted (nearlightCommAbort
 * meanwhile), nearlightUnsupported (in windows of NCCL, when a rank did not come the time before),
 * nearlightCudaError. */
NEARLIGHT_API nearlightResult_t nearlightCommReset(nearlightComm_t comm, int64_t timeout_ms);

/* A new communicator of the `nmembers` ranks members[] of `comm` alone (ascending, this rank among them),
 * which are renumbered in order: for when the others are gone. It has the configuration of `comm` and memory
 * of its own, so that nothing of it depends on those who are left out. `comm` has failed from then on;
 * destroy it. Collective over the members, who all give the same list; the others need not live, and are left
 * out for good. Waits at most `timeout_ms`, as above. On failure `comm` has failed and *shrunk is not
 * written; nearlightCommShrink may be called again with these members or fewer. Errors:
 * nearlightInvalidArgument (no live communicator; members or shrunk is NULL; members[] is no such list, or
 * has one that was left out before; timeout_ms), nearlightTimeout and nearlightRemoteError (name who did not
 * come or is gone), nearlightInvalidUsage (another member gave another list, both in the text; another thread
 * is in a call; it was shrunk before), nearlightUnsupported (in windows of NCCL), and those of creation. The
 * new one is not attached to NCCL, whose communicator has all its ranks or none. */
NEARLIGHT_API nearlightResult_t nearlightCommShrink(nearlightComm_t comm, const int* members, int nmembers,
                                                    int64_t timeout_ms, nearlightComm_t* shrunk);

/* ---- moving calls to another path ------------------------------------------------------------------- */

/* Moves all calls of this communicator from now on to the path `path`, as far as they can take it: a name
 * that NEARLIGHT_FORCE_PATH takes. NULL or "" gives the choice back to the route table. Every rank does so
 * between the same two calls; nothing checks that but check mode, which names the ranks that differ. Nothing
 * is waited for, and CUDA graphs keep the path that was in force when they were captured. nearlightExplain
 * tells what calls take. "fallback" moves every call that can be made there, barriers too, to the attached
 * NCCL, else to the CPU, also when nearlight's kernels have failed; docs/concepts/hand-over.md lists what
 * stays, such as calls with a count for each rank. One thread, as a collective. Errors:
 * nearlightInvalidArgument (no live communicator; path is none of those that the text names, or these ranks
 * have no such path), nearlightUnsupported (no call of these ranks could take it; the text says why),
 * nearlightSystemError (no thread for the CPU's calls), nearlightInvalidUsage (another thread is in a call).
 */
NEARLIGHT_API nearlightResult_t nearlightCommSetPath(nearlightComm_t comm, const char* path);

/* ---- asking ----------------------------------------------------------------------------------------- */

/* This rank, 0 to the number of ranks - 1. Any thread. Errors: nearlightInvalidArgument. */
NEARLIGHT_API nearlightResult_t nearlightCommRank(nearlightComm_t comm, int* rank);
/* The number of ranks, 1 to 8. Any thread. Errors: nearlightInvalidArgument. */
NEARLIGHT_API nearlightResult_t nearlightCommCount(nearlightComm_t comm, int* nranks);

typedef struct {
  size_t size; /* in: sizeof(nearlightCommInfo_t) */
  int32_t rank;
  int32_t nranks;
  const char* backend;    /* "host", "cuda"; static text */
  const char* memory;     /* the heap: "shm", "cuda_vmm", "nccl_window"; static text */
  uint64_t scratch_bytes; /* memory that this rank provides for messages */
  int32_t early_launch;   /* GPU: 1 where the kernel after a call's may become resident while the call waits,
                             see nearlightConfig_t, and where one rank alone waits for nobody; else 0 */
  uint32_t reserved;      /* 0 */
  const char* memory_reason; /* why that memory, where another was possible (NEARLIGHT_NCCL_MEMORY); else "".
                                Text that lives as long as the communicator */
} nearlightCommInfo_t;

#define NEARLIGHT_COMM_INFO_INITIALIZER \
  { sizeof(nearlightCommInfo_t), 0, 0, NULL, NULL, 0, 0, 0, NULL }

/* What the communicator is made of. Any thread. Errors: nearlightInvalidArgument (no live communicator, info
 * is NULL or its size is no size). */
NEARLIGHT_API nearlightResult_t nearlightCommGetInfo(nearlightComm_t comm, nearlightCommInfo_t* info);

#define NEARLIGHT_TEXT_BYTES 512

typedef struct {
  size_t size;              /* in: sizeof(nearlightCommStatus_t) */
  nearlightResult_t result; /* nearlightSuccess, or how the communicator failed */
  int32_t rank;             /* who noticed; -1: nobody */
  int32_t peer;             /* whom it waited for, or who is gone; -1: nobody in particular */
  uint32_t epoch, region, slot, expected, seen; /* the wait that ended, for a report */
  uint64_t time_ns;                             /* when, by the clock of the place that waited */
  char text[NEARLIGHT_TEXT_BYTES];              /* for a person; "" when all is well */
} nearlightCommStatus_t;

#define NEARLIGHT_COMM_STATUS_INITIALIZER                                            \
  {                                                                                  \
    sizeof(nearlightCommStatus_t), nearlightSuccess, -1, -1, 0, 0, 0, 0, 0, 0, { 0 } \
  }

/* Whether the communicator has failed as far as is known now, and how. Never blocks; any thread. A failed
 * communicator stays failed, and its calls return the same failure at once, until nearlightCommReset.
 * The returned code is about the query alone: nearlightInvalidArgument (no live communicator, status is NULL
 * or its size is no size). */
NEARLIGHT_API nearlightResult_t nearlightCommGetStatus(nearlightComm_t comm, nearlightCommStatus_t* status);

typedef struct {
  size_t size; /* in: sizeof(nearlightRoute_t) */
  const char*
      algorithm; /* "copy", "one_shot", ..., "nccl": the attached NCCL's, "staged": the CPU's; static text */
  const char* protocol; /* "ll", "simple", ..., "none": NCCL chooses; static text */
  const char* reason;   /* why, in one line; static text */
  uint32_t grid;        /* CTAs; 1 on a CPU; 0: NCCL chooses */
  uint32_t threads; /* of a CTA, where both buffers begin at multiples of 16 bytes (at other addresses large
                       messages may take a kernel that gets half of them); 1 on a CPU; 0: NCCL chooses */
} nearlightRoute_t;

#define NEARLIGHT_ROUTE_INITIALIZER \
  { sizeof(nearlightRoute_t), NULL, NULL, NULL, 0, 0 }

/* What a collective of `count` elements would run, and why; `count` is as in the call (of
 * uneven parts that of the largest), and `op` is looked at
 * where there is one. The same on all ranks; not collective; any
 * thread. Errors: nearlightInvalidArgument (no live communicator, collective, type is none, op is none
 * of this communicator and type, count * size of an element overflows, route is NULL or its size is no size).
 */
NEARLIGHT_API nearlightResult_t nearlightExplain(nearlightComm_t comm, nearlightCollective_t collective,
                                                 size_t count, nearlightDataType_t type, nearlightRedOp_t op,
                                                 nearlightRoute_t* route);

/* The same of a fused call (nearlightCollectiveAllReduceRmsNorm, nearlightCollectiveAllReduceBias) on
 * `tokens` rows of `hidden` elements. Errors: as above, and nearlightInvalidArgument of types and sizes that
 * the call does not take, or no tokens. */
NEARLIGHT_API nearlightResult_t nearlightExplainFused(nearlightComm_t comm, nearlightCollective_t collective,
                                                      size_t tokens, size_t hidden, nearlightDataType_t type,
                                                      nearlightRoute_t* route);

/* The same of a product (nearlightCollectiveGemvAllReduce, nearlightCollectiveAllGatherGemv) with these
 * sizes, which are as in the call. Errors: as above; nearlightUnsupported where the call would be. */
NEARLIGHT_API nearlightResult_t nearlightExplainGemv(nearlightComm_t comm, nearlightCollective_t collective,
                                                     size_t tokens, size_t in_size, size_t out_size,
                                                     nearlightDataType_t type, nearlightRoute_t* route);

#define NEARLIGHT_MOST_ROUTES 16

typedef struct {
  const char* algorithm; /* as in nearlightRoute_t */
  const char* protocol;
  uint64_t operations;
  uint64_t bytes;
} nearlightRouteCounters_t;

/* Operations are calls that went through: done on a CPU, enqueued or captured on a GPU. */
typedef struct {
  size_t size;          /* in: sizeof(nearlightCounters_t) */
  uint64_t all_reduces; /* operations */
  uint64_t barriers;    /* operations */
  uint64_t bytes;       /* of the inputs of all operations */
  uint64_t captured;    /* how many of the operations were captured into a CUDA graph; replays are not seen */
  uint64_t failures;    /* calls that returned an error, of a bad argument or of the communicator */
  uint64_t routes;      /* ways that operations but barriers took; the first of them stand in route[] */
  nearlightRouteCounters_t route[NEARLIGHT_MOST_ROUTES];
  uint64_t all_gathers; /* operations, also those of uneven parts; and so on */
  uint64_t reduce_scatters;
  uint64_t broadcasts;
  uint64_t reduces;
  uint64_t all_to_alls;
  uint64_t send_recvs; /* sends and receives that were made alone, and groups of them */
  uint64_t all_reduce_rms_norms;
  uint64_t all_reduce_biases;
  uint64_t gemv_all_reduces;
  uint64_t all_gather_gemvs;
} nearlightCounters_t;

#define NEARLIGHT_COUNTERS_INITIALIZER \
  { sizeof(nearlightCounters_t), 0, 0, 0, 0, 0, 0, {{NULL, NULL, 0, 0}}, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* What the communicator has done since it was made. Costs its calls nothing to speak of; never blocks; any
 * thread, also while another one is in a call: then each number is one that was true at some moment of it.
 * Errors: nearlightInvalidArgument (no live communicator, counters is NULL or its size is no size). */
NEARLIGHT_API nearlightResult_t nearlightCommGetCounters(nearlightComm_t comm, nearlightCounters_t* counters);

/* ---- operators -------------------------------------------------------------------------------------- */

/* Makes the operator "multiply this rank's input by *scalar (an element of `type`), then sum", for operations
 * of `comm` with that type; the scalars of the ranks may differ. What is rounded where: docs/concepts/
 * numerics.md. *op is a number from 1024 on, which no other operator has, and is valid until it or `comm` is
 * destroyed. Not collective; never blocks; any thread.
 * Errors: nearlightInvalidArgument (no live communicator; op or scalar is NULL; type or residence is none),
 * nearlightUnsupported (residence: nearlightScalarDevice), nearlightSystemError (out of memory). With an
 * error *op is not written. */
NEARLIGHT_API nearlightResult_t nearlightRedOpCreatePreMulSum(nearlightRedOp_t* op, const void* scalar,
                                                              nearlightDataType_t type,
                                                              nearlightScalarResidence_t residence,
                                                              nearlightComm_t comm);
/* Frees such an operator. Operations that were enqueued or captured with it stay as they are. Any thread.
 * Errors: nearlightInvalidArgument (no live communicator; op was destroyed, made for another one, or never
 * made). */
NEARLIGHT_API nearlightResult_t nearlightRedOpDestroy(nearlightRedOp_t op, nearlightComm_t comm);

/* ---- collectives ------------------------------------------------------------------------------------ */

/* recv[i] = op over all ranks of send[i], for i < count, elements of `type`; bitwise the same on all ranks
 * and, unless the configuration's `deterministic` is -1, from run to run (a call that is handed to the
 * attached NCCL: as NCCL computes it). In place when send == recv, otherwise the two must not overlap.
 * Addresses are aligned to the element; any count, with 0 nothing happens.
 *
 * GPU ranks: the operation is enqueued on `stream` (a cudaStream_t; NULL: the device's default stream), can
 * be captured into a CUDA graph, and allocates nothing. The buffers are memory of the rank's GPU, managed or
 * pinned memory. Operations of one communicator must be ordered: one stream, or streams joined by events.
 * CPU ranks: `stream` must be NULL, and the result is there when the call returns.
 *
 * Collective. One thread at a time for each communicator.
 * Errors: nearlightInvalidArgument (no live communicator; type is none; op is none of this communicator and
 * type; send or recv is NULL, not aligned or not this GPU's; overlap; count * size of an element overflows;
 * the stream is another GPU's), nearlightInvalidUsage (another thread is in a call; in check mode: the
 * other ranks call something else), and, once the communicator has failed, that failure. With an error that
 * names an argument, nothing was written and nothing is waiting. */
NEARLIGHT_API nearlightResult_t nearlightAllReduce(const void* send, void* recv, size_t count,
                                                   nearlightDataType_t type, nearlightRedOp_t op,
                                                   nearlightComm_t comm, struct CUstream_st* stream);

/* The five that follow take their arguments as NCCL does. What nearlightAllReduce says of types, addresses,
 * counts, streams, graphs, threads and errors holds for them as well; elements that are not reduced arrive
 * bit by bit. A buffer that a rank has no use for is not looked at. */

/* recv[r * send_count + i] = send[i] of rank r, for i < send_count: recv has send_count elements of every
 * rank. In place when send == recv + rank * send_count; otherwise the two must not overlap. */
NEARLIGHT_API nearlightResult_t nearlightAllGather(const void* send, void* recv, size_t send_count,
                                                   nearlightDataType_t type, nearlightComm_t comm,
                                                   struct CUstream_st* stream);

/* recv[i] = op over all ranks of their send[rank * recv_count + i], for i < recv_count: send has recv_count
 * elements for every rank. In place when recv == send + rank * recv_count; otherwise the two must not
 * overlap.
 */
NEARLIGHT_API nearlightResult_t nearlightReduceScatter(const void* send, void* recv, size_t recv_count,
                                                       nearlightDataType_t type, nearlightRedOp_t op,
                                                       nearlightComm_t comm, struct CUstream_st* stream);

/* recv[i] on every rank = send[i] of rank `root`, whose send alone is looked at. In place on the root when
 * send == recv; otherwise the two must not overlap there. Also an error: root is no rank. */
NEARLIGHT_API nearlightResult_t nearlightBroadcast(const void* send, void* recv, size_t count,
                                                   nearlightDataType_t type, int root, nearlightComm_t comm,
                                                   struct CUstream_st* stream);

/* recv[i] on rank `root`, whose recv alone is looked at, = op over all ranks of send[i]. In place on the root
 * when send == recv; otherwise the two must not overlap there. Also an error: root is no rank. */
NEARLIGHT_API nearlightResult_t nearlightReduce(const void* send, void* recv, size_t count,
                                                nearlightDataType_t type, nearlightRedOp_t op, int root,
                                                nearlightComm_t comm, struct CUstream_st* stream);

/* recv[r * count + i] = send[rank * count + i] of rank r, for i < count: both have `count` elements for every
 * rank. Not in place: the two must not overlap. */
NEARLIGHT_API nearlightResult_t nearlightAllToAll(const void* send, void* recv, size_t count,
                                                  nearlightDataType_t type, nearlightComm_t comm,
                                                  struct CUstream_st* stream);

/* The three that follow are the same with parts of different sizes, any of which may be 0. Counts and places
 * are arrays of one entry a rank, in elements, read before the call returns; places that are NULL put the
 * parts one behind the other. Also errors: an array that is needed is NULL, parts of an output overlap. */

/* recv[recv_places[r] + i] = send[i] of rank r, for i < recv_counts[r], which is the same on all ranks;
 * places are each rank's own. In place when send == recv + recv_places[rank]. */
NEARLIGHT_API nearlightResult_t nearlightAllGatherV(const void* send, void* recv, const size_t* recv_counts,
                                                    const size_t* recv_places, nearlightDataType_t type,
                                                    nearlightComm_t comm, struct CUstream_st* stream);

/* recv[i] = op over all ranks of their send[p + i], for i < recv_counts[rank], p the sum of recv_counts of
 * the ranks before; recv_counts is the same on all ranks. In place when recv == send + p. */
NEARLIGHT_API nearlightResult_t nearlightReduceScatterV(const void* send, void* recv,
                                                        const size_t* recv_counts, nearlightDataType_t type,
                                                        nearlightRedOp_t op, nearlightComm_t comm,
                                                        struct CUstream_st* stream);

/* recv[recv_places[r] + i] = send[send_places[rank] + i] of rank r, for i < recv_counts[r], which is rank r's
 * send_counts[rank]. Every rank has arrays of its own. Not in place. Also errors: places that are NULL,
 * send_counts[rank] that is not recv_counts[rank]. Ranks that disagree about a count end in a timeout, or
 * with a part that is cut. */
NEARLIGHT_API nearlightResult_t nearlightAllToAllV(const void* send, const size_t* send_counts,
                                                   const size_t* send_places, void* recv,
                                                   const size_t* recv_counts, const size_t* recv_places,
                                                   nearlightDataType_t type, nearlightComm_t comm,
                                                   struct CUstream_st* stream);

/* ---- fused calls ------------------------------------------------------------------------------------ */

/* An AllReduce of rows with what follows it in a transformer, in one kernel. Matrices have `tokens` rows of
 * `hidden` elements, without gaps. Begin with NEARLIGHT_RMS_NORM_INITIALIZER. */
typedef struct {
  size_t size;                  /* sizeof(nearlightRmsNorm_t) */
  const void* input;            /* tokens x hidden of `type`: this rank's contribution */
  const void* residual;         /* the same, equal on all ranks; NULL: nothing is added */
  const void* weight;           /* hidden of `type`, equal on all ranks */
  void* residual_out;           /* tokens x hidden of `type`: the sum over all ranks, plus the residual */
  void* out;                    /* tokens x hidden of `out_type`: residual_out, normalised */
  const float* scale;           /* one float, of an out of 8 bits, which is divided by it; else NULL */
  size_t tokens;                /* 0 (nothing happens) to 2^20 */
  size_t hidden;                /* 1024 to 16384, a multiple of 8 */
  nearlightDataType_t type;     /* nearlightBfloat16 or nearlightFloat16 */
  nearlightDataType_t out_type; /* `type`, nearlightFloat8e4m3 or nearlightInt8 */
  float eps;                    /* at least 0 */
  uint32_t reserved;            /* 0 */
} nearlightRmsNorm_t;

#define NEARLIGHT_RMS_NORM_INITIALIZER                                                       \
  {                                                                                          \
    sizeof(nearlightRmsNorm_t), NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, nearlightBfloat16, \
        nearlightBfloat16, 1e-6f, 0                                                          \
  }

/* residual_out = AllReduce(input) + residual, to the bit what an AllReduce and an addition give;
 * out = residual_out / sqrt(mean of its squares, row by row, + eps) * weight, with fp32 statistics; with an
 * out_type of 8 bits divided by *scale and saturated. docs/concepts/numerics.md says what is rounded where.
 * Bitwise the same on all ranks and from run to run. `norm` is read before the call returns; the buffers, and
 * *scale, are read by the operation. Buffers are at multiples of 16 bytes (scale: 4) and do not overlap, but
 * that out may be input where the types are the same, and residual_out may be residual or input.
 * Sizes, types, eps and whether there is a residual are the same on all ranks. No call is handed to NCCL.
 * Of streams, graphs, memory, threads and errors what nearlightAllReduce says holds for it as well. Errors:
 * nearlightInvalidArgument names the field; nothing was written then. */
NEARLIGHT_API nearlightResult_t nearlightAllReduceRmsNorm(const nearlightRmsNorm_t* norm,
                                                          nearlightComm_t comm, struct CUstream_st* stream);

/* out = AllReduce(input) + bias: tokens x hidden of `type`, and a bias of `hidden`, equal on all ranks, for
 * every row. In place when out == input. Sizes, types, places and errors as of nearlightAllReduceRmsNorm. */
NEARLIGHT_API nearlightResult_t nearlightAllReduceBias(const void* input, const void* bias, void* out,
                                                       size_t tokens, size_t hidden, nearlightDataType_t type,
                                                       nearlightComm_t comm, struct CUstream_st* stream);

/* out = the sum over all ranks of input * weight^T, in one kernel: a matrix times the vectors of up to 16
 * tokens, its columns spread over the ranks (a row-parallel linear layer). input is tokens x in_size, weight
 * out_size x in_size, out tokens x out_size, of `type` (nearlightBfloat16, nearlightFloat16), without gaps.
 * What a rank has worked out is sent while it works out the rest; products are added up in fp32 and over the
 * ranks in fp32, in rank order, and rounded once: bitwise the same on all ranks and from run to run
 * (docs/concepts/numerics.md). tokens (0 to 16; 0: nothing happens), out_size (a multiple of 8 up to 2^20)
 * and type are the same on all ranks; in_size (a multiple of 8 up to 65536) is each rank's own. Buffers are
 * at multiples of 16 bytes; out overlaps neither of the others. GPU ranks: the kernel may have lines of
 * weight fetched into the L2 cache while the kernel in front of it still runs, and reads them after that
 * one's end. No call is handed to NCCL. Of streams, graphs, memory, threads and errors what
 * nearlightAllReduce says holds for it as well. Errors: nearlightInvalidArgument names the argument; nothing
 * was written then; nearlightUnsupported: a GPU before compute capability 8.0, a configuration with too few
 * `packets`. */
NEARLIGHT_API nearlightResult_t nearlightGemvAllReduce(const void* input, const void* weight, void* out,
                                                       size_t tokens, size_t in_size, size_t out_size,
                                                       nearlightDataType_t type, nearlightComm_t comm,
                                                       struct CUstream_st* stream);

/* out = all ranks' input, side by side, * weight^T, in one kernel: a matrix times the vectors of up to 16
 * tokens, its rows spread over the ranks (a column-parallel linear layer), and the vectors as well. input is
 * tokens x in_size, this rank's part of each vector, in the order of the ranks; weight is out_size x (in_size
 * times the number of ranks), out tokens x out_size. tokens, in_size, out_size and type are the same on all
 * ranks; in_size is a multiple of 8, up to 65536 for all ranks together. GPU ranks: what is gathered must fit
 * the shared memory of a CTA, 147 KiB, from compute capability 9.0 on (16 tokens of 4672 elements, one of
 * 65536) and before 12.0; else 19 KiB. Each CTA gathers for itself, so that of many tokens an AllGather and a
 * product by themselves may be faster (not measured). Otherwise as nearlightGemvAllReduce. Also
 * nearlightUnsupported: it does not fit. */
NEARLIGHT_API nearlightResult_t nearlightAllGatherGemv(const void* input, const void* weight, void* out,
                                                       size_t tokens, size_t in_size, size_t out_size,
                                                       nearlightDataType_t type, nearlightComm_t comm,
                                                       struct CUstream_st* stream);

/* ---- sends and receives ------------------------------------------------------------------------------- */

/* Sends count elements from `send` to rank `peer`, or receives them from it into `recv`. The i-th send of a
 * rank to another one is what the other one's i-th receive from it gets, bit by bit; both give the same count
 * and type, which check mode compares as messages arrive (nearlightInvalidUsage at the receiver from then
 * on). Nobody else has a part in it. A send is over when `send` may be written again, which may be before the
 * peer has received; of large messages it waits for the receive. With count 0 nothing is sent, and `recv`
 * gets nothing: such a pair counts for neither end. Types, addresses, streams, graphs, threads and errors are
 * as nearlightAllReduce's (also an error: peer is no rank); the streams of the two ends have nothing to do
 * with each other. A message to oneself needs both of its ends in one group (nearlightInvalidUsage). Not made
 * again by a configuration's `retries`. */
NEARLIGHT_API nearlightResult_t nearlightSend(const void* send, size_t count, nearlightDataType_t type,
                                              int peer, nearlightComm_t comm, struct CUstream_st* stream);
NEARLIGHT_API nearlightResult_t nearlightRecv(void* recv, size_t count, nearlightDataType_t type, int peer,
                                              nearlightComm_t comm, struct CUstream_st* stream);

/* The sends and receives that this thread makes between the two go together, those of a communicator as one
 * operation: all of them are under way at once, so that no order of them waits for another one. They start
 * with the end, which returns what else each of them would have; those of a communicator are on one stream,
 * and no receive's buffer may lie across another buffer of the group (but for a message to oneself in place:
 * send == recv). A call that was refused in between makes the end start nothing and return the same error.
 * Groups may be nested: the outermost end counts. Other calls are not held back. CPU ranks: one communicator
 * after another, each until its messages are there. GPU ranks: at most 1000 messages with other ranks in a
 * group of a communicator. Errors of the end: nearlightInvalidUsage (no group was started),
 * nearlightInvalidArgument (streams, buffers), nearlightUnsupported (too many), and the calls' own. */
NEARLIGHT_API nearlightResult_t nearlightGroupStart(void);
NEARLIGHT_API nearlightResult_t nearlightGroupEnd(void);
/* Ends all groups of this thread without starting anything. Errors: nearlightInvalidUsage (there is none). */
NEARLIGHT_API nearlightResult_t nearlightGroupDrop(void);

/* ---- barrier ---------------------------------------------------------------------------------------- */

/* No rank goes through before all ranks have come to theirs, and what a rank did before it is seen by all
 * after it. GPU ranks: enqueued on `stream` like an AllReduce, can be captured; the host does not wait. CPU
 * ranks: `stream` must be NULL, and all have come when the call returns.
 *
 * Collective. One thread at a time for each communicator.
 * Errors: nearlightInvalidArgument (no live communicator; the stream is another GPU's), nearlightInvalidUsage
 * (another thread is in a call; in check mode: the other ranks call something else), and, once the
 * communicator has failed, that failure. */
NEARLIGHT_API nearlightResult_t nearlightBarrier(nearlightComm_t comm, struct CUstream_st* stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* NEARLIGHT_NEARLIGHT_H */
