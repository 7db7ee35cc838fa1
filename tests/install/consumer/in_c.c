/* Two CPU ranks, each a thread, in C. */
#define _POSIX_C_SOURCE 200112L
#include <nearlight/nearlight.h>
#include <pthread.h>
#include <stdio.h>

static void* run_rank(void* argument) {
  nearlightComm_t comm = (nearlightComm_t)argument;
  float value[4] = {1.0f, 2.0f, 3.0f, 4.0f};
  if (nearlightAllReduce(value, value, 4, nearlightFloat32, nearlightSum, comm, NULL) != nearlightSuccess) {
    fprintf(stderr, "%s\n", nearlightGetLastError());
    return argument;
  }
  return value[3] == 8.0f ? NULL : argument;
}

int main(void) {
  nearlightComm_t comms[2];
  pthread_t threads[2];
  void* failed[2] = {NULL, NULL};
  int i;
  if (NEARLIGHT_CHECK_VERSION() != nearlightSuccess ||
      nearlightCommCreateHostGroup(comms, 2, NULL) != nearlightSuccess) {
    fprintf(stderr, "%s\n", nearlightGetLastError());
    return 1;
  }
  for (i = 0; i < 2; ++i) {
    if (pthread_create(&threads[i], NULL, run_rank, comms[i]) != 0) return 1;
  }
  for (i = 0; i < 2; ++i) pthread_join(threads[i], &failed[i]);
  for (i = 0; i < 2; ++i) nearlightCommDestroy(comms[i]);
  if (failed[0] != NULL || failed[1] != NULL) return 1;
  printf("C: ok\n");
  return 0;
}
