/* A library with the NVSHMEM functions that the benchmark calls, for one rank in CPU memory; it looks at what
 * it is given as the real one does. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct id {
  int version;
  char internal[124];
};
struct attributes {
  int version;
  void* mpi_comm;
  struct {
    int version;
    struct {
      int version;
      const struct id* id;
      int rank, nranks;
    } id_args;
    char content[96];
  } args;
};

int nvshmemx_get_uniqueid(struct id* id) {
  if (id->version != (1 << 16) + 128) return 1;
  strcpy(id->internal, "fake");
  return 0;
}

int nvshmemx_set_attr_uniqueid_args(int rank, int nranks, const struct id* id,
                                    struct attributes* attributes) {
  attributes->args.id_args.id = id;
  attributes->args.id_args.rank = rank;
  attributes->args.id_args.nranks = nranks;
  return 0;
}

#ifndef FAKE_WITHOUT_INIT
int nvshmemx_hostlib_init_attr(unsigned flags, struct attributes* attributes) {
  if (flags != 1 << 3 || attributes->version != (1 << 16) + 144 || attributes->mpi_comm != NULL) return 2;
  if (attributes->args.version != (1 << 16) + 128 || attributes->args.id_args.version != (1 << 16) + 24)
    return 3;
  return strcmp(attributes->args.id_args.id->internal, "fake") == 0 && attributes->args.id_args.nranks == 1
             ? 0
             : 4;
}
#endif

void nvshmemx_hostlib_finalize(void) {}
void* nvshmem_malloc(size_t bytes) { return malloc(bytes); }
void nvshmemx_vendor_get_version_info(int* major, int* minor, int* patch) {
  *major = 3;
  *minor = 4;
  *patch = 5;
}

int nvshmemx_float_sum_reduce_on_stream(int team, float* dest, const float* source, size_t count,
                                        void* stream) {
  if (team != 0 || stream != NULL) return 1;
  memmove(dest, source, count * sizeof *dest);
  return 0;
}
