/* A library with a few of NCCL's symbols: what loads it must say which of the others it misses. */
#include <stddef.h>

int ncclGetVersion(int* version) {
  *version = FAKE_VERSION;
  return 0;
}

const char* ncclGetErrorString(int result) {
  return result == 5 ? "invalid usage, says the fake" : "some error";
}
const char* ncclGetLastError(void* comm) { return comm == NULL ? "" : "the fake's last words"; }

/* Makes a "communicator" out of nothing. */
int ncclCommInitRank(void** comm, int nranks) {
  static int object;
  if (nranks != 2) return 5;
  *comm = &object;
  return 0;
}
int ncclCommCount(const void* comm, int* count) {
  (void)comm;
  *count = 2;
  return 0;
}
int ncclCommGetAsyncError(void* comm, int* error) {
  (void)comm;
  *error = 6;
  return 0;
}
int ncclGroupStart(void) { return 7; }
