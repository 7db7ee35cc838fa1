/* What a program in another language, Python above all, calls to be one rank of `nearlight bench`, and the
 * peers that it brings. Not installed: the benchmark's own. */
#ifndef NEARLIGHT_CLI_PEERS_TORCH_RANK_LIBRARY_H
#define NEARLIGHT_CLI_PEERS_TORCH_RANK_LIBRARY_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One implementation of AllReduce. The functions return 0, or something else with a text in `error`, which
 * has room for `error_bytes`. They are called from the thread that is in nearlightBenchRank. */
typedef struct {
  const char* impl;     /* its name in result files */
  const char* settings; /* how it was set up; "" for nothing to tell */
  int in_place_only;    /* 1: it is always called with send == recv */
  int roundings;        /* how often a sum of a small float type may be rounded on its way */
  void* self;           /* given to the functions */
  /* Memory for inputs and for outputs of `bytes` each, aligned to 16. Collective. */
  int (*buffers)(void* self, size_t bytes, void** send, void** recv, char* error, size_t error_bytes);
  /* Types and operators have NCCL's numbers. GPU: enqueued on `stream`, which may be capturing. CPU: done. */
  int (*all_reduce)(void* self, const void* send, void* recv, size_t count, int type, int op, void* stream,
                    char* error, size_t error_bytes);
} nearlightBenchPeer;

/* `argv`: as typed behind the name of the program. Ranks come together by `key`; devices[r] is rank r's. Rank
 * 0 prints and writes. Returns the exit status. */
__attribute__((visibility("default"))) int nearlightBenchRank(int argc, const char* const* argv, int rank,
                                                              int nranks, const char* key, const int* devices,
                                                              int attach, const nearlightBenchPeer* peers,
                                                              int npeers);

/* The program `nearlight` itself. */
__attribute__((visibility("default"))) int nearlightMain(int argc, char** argv);

#ifdef __cplusplus
}
#endif

#endif
