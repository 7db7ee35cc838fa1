/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For C: memory for the channels on which kernels of your own communicate (nearlight/device.cuh), from a
 * communicator, and what they did in its trace. The rules of nearlight/nearlight.h hold. C++ has
 * nearlight/device_memory.hpp.
 */
#ifndef NEARLIGHT_DEVICE_H
#define NEARLIGHT_DEVICE_H

#include <nearlight/nearlight.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the channels are to be like; the same on all ranks, but for peers. */
typedef struct {
  size_t size;       /* sizeof(nearlightChannelConfig_t) */
  uint32_t channels; /* groups of threads that communicate at the same time, 1 to 1024 [1] */
  uint32_t slots;    /* LL: messages of up to 8 bytes from each rank in an epoch, at most 2^20 */
  uint32_t packets;  /* Sentinel: messages of up to 16 bytes from each rank in an epoch, at most 2^20 */
  uint32_t cells;    /* Simple: 16-byte cells that each rank may write in an epoch, at most 2^20 */
  uint32_t peers;    /* bit p: rank p is heard from in every epoch, and may be sent to; mutual [all others] */
  uint32_t checks;   /* 1: with memory for finding mistakes, for kernels with NEARLIGHT_DEVICE_CHECKS 1 */
} nearlightChannelConfig_t;

#define NEARLIGHT_CHANNEL_CONFIG_INITIALIZER \
  { sizeof(nearlightChannelConfig_t), 0, 0, 0, 0, 0, 0 }

/* Channels as a kernel needs them: plain data, pointers of the rank's GPU (CPU ranks: of this process). */
typedef struct {
  size_t size;   /* in: sizeof(nearlightChannel_t) */
  void* base;    /* where rank 0's shared part begins */
  size_t stride; /* bytes from one rank's part to the next */
  void* own;     /* this rank's own part */
  uint32_t* abort;
  uint32_t* claim;
  uint32_t* valid;
  void* record;
  uint64_t timeout_ns; /* of one wait */
  int32_t rank;
  int32_t nranks;
  uint32_t channels, slots, packets, cells, peers, checks;
  uint32_t collective; /* the number in fault records */
  uint32_t reserved;
} nearlightChannel_t;

#define NEARLIGHT_CHANNEL_INITIALIZER \
  { sizeof(nearlightChannel_t), NULL, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Makes channels on memory of their own: no call of the communicator uses it. They share its limit of one
 * wait, its end (nearlightCommAbort, a rank whose process ends) and its first failure: when a wait on a
 * channel fails, the communicator has failed, nearlightCommGetStatus says with whom, and so the other way
 * round. They live until nearlightChannelDestroy or the communicator's end; after nearlightCommReset they are
 * dead (kernels neither send nor wait), and are to be made anew. Collective; waits at most what creation may
 * take. GPU ranks: it allocates, so no kernel may be waiting for another rank meanwhile, and a graph with
 * kernels on channels must not be replayed after their end.
 * Errors: nearlightInvalidArgument (no live communicator; config or channel is NULL or its size is no size; a
 * field is out of range, named), nearlightInvalidUsage (the ranks' configurations differ, or peers are not
 * mutual; another thread is in a call; it was shrunk), nearlightTimeout (names who did not come),
 * nearlightUnsupported, nearlightSystemError, nearlightCudaError, and the failure of a failed communicator.
 * With an error *channel is not written. */
NEARLIGHT_API nearlightResult_t nearlightChannelCreate(nearlightComm_t comm,
                                                       const nearlightChannelConfig_t* config,
                                                       nearlightChannel_t* channel);

/* Frees what nearlightChannelCreate gave. Not collective. No kernel of this rank may use it any more; those
 * of its peers must not be waiting for this rank. Errors: nearlightInvalidArgument (no live communicator,
 * channel is NULL or none of it, or its size is no size), nearlightInvalidUsage (another thread is in a
 * call). */
NEARLIGHT_API nearlightResult_t nearlightChannelDestroy(nearlightComm_t comm,
                                                        const nearlightChannel_t* channel);

/* Something of the program's own that took time, for the trace (NEARLIGHT_TRACE, `nearlight trace`). */
typedef struct {
  size_t size;       /* sizeof(nearlightSpan_t) */
  const char* name;  /* copied: 1 to 63 printable ASCII characters, neither " nor \ */
  uint64_t begin_ns; /* by the rank's clock: of a channel now_ns() (a GPU's %globaltimer, a CPU's
                        CLOCK_MONOTONIC) */
  uint64_t end_ns;   /* not before begin_ns */
  uint64_t message;  /* what an arrow is told by, among those between the same two ranks */
  uint32_t track;    /* below 1000; spans of a track follow each other or lie within each other */
  uint32_t to;       /* bit p: an arrow to rank p begins where the span begins, before it was sent */
  uint32_t from;     /* bit p: an arrow from rank p ends where the span ends, after it was there */
  uint32_t reserved; /* 0 */
} nearlightSpan_t;

#define NEARLIGHT_SPAN_INITIALIZER \
  { sizeof(nearlightSpan_t), NULL, 0, 0, 0, 0, 0, 0, 0 }

/* Adds a span to what the communicator writes at its end; where it does not trace, nothing happens. A
 * communicator takes a million. Any thread, at any time; allocates. Errors: nearlightInvalidArgument (no live
 * communicator; span is NULL or its size is no size; a field cannot be, named), nearlightInvalidUsage (there
 * are a million). */
NEARLIGHT_API nearlightResult_t nearlightCommTraceSpan(nearlightComm_t comm, const nearlightSpan_t* span);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* NEARLIGHT_DEVICE_H */
