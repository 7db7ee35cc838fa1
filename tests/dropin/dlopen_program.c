/* A program that opens NCCL itself: dlopen_program LIBRARY [OTHER...]. Makes two communicators of one process
 * with the last one's functions, and adds 1 and 2. Or opens a library that does so (linked_module.c). */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct ncclComm* Comm;
typedef int (*InitAll)(Comm*, int, const int*);
typedef int (*AllReduce)(const void*, void*, size_t, int, int, Comm, void*);
typedef int (*Destroy)(Comm);
typedef const char* (*LogText)(void);
typedef int (*Tomorrow)(int);

static void* find(void* library, const char* name) {
  void* const symbol = dlsym(library, name);
  if (symbol == NULL) printf("no %s: %s\n", name, dlerror());
  return symbol;
}

int main(int argc, char** argv) {
  void* library = NULL;
  for (int i = 1; i < argc; ++i) {
    library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
      printf("%s\n", dlerror());
      return 2;
    }
  }
  int (*use_nccl)(void);
  *(void**)&use_nccl = dlsym(library, "use_nccl");
  if (use_nccl != NULL) return use_nccl();
  InitAll init_all;
  AllReduce all_reduce;
  Destroy destroy;
  LogText log_text;
  Tomorrow tomorrow;
  *(void**)&init_all = find(library, "ncclCommInitAll");
  *(void**)&all_reduce = find(library, "ncclAllReduce");
  *(void**)&destroy = find(library, "ncclCommDestroy");
  *(void**)&log_text = find(library, "fakeNcclLogText");
  *(void**)&tomorrow = find(library, "ncclOfTomorrow");
  if (!init_all || !all_reduce || !destroy || !log_text || !tomorrow) return 2;
  Comm comms[2] = {NULL, NULL};
  float send[2] = {1, 2}, recv[2] = {0, 0};
  if (init_all(comms, 2, NULL) != 0) return 3;
  for (int rank = 0; rank < 2; ++rank) {
    if (all_reduce(&send[rank], &recv[rank], 1, 7, 0, comms[rank], NULL) != 0) return 4;
  }
  if (recv[0] != 3 || recv[1] != 3) return 5;
  printf("%s", log_text());
  for (int rank = 0; rank < 2; ++rank) {
    if (destroy(comms[rank]) != 0) return 6;
  }
  printf("tomorrow %d\n", tomorrow(0));
  return 0;
}
