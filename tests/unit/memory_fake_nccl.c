/* A library with a few of NCCL's symbols: what loads it must say which of the others it misses. */
#define _DEFAULT_SOURCE
#include <stddef.h>
#include <unistd.h>

int ncclGetVersion(int* version) {
  *version = FAKE_VERSION;
  return 0;
}

const char* ncclGetErrorString(int result) {
  return result == 5 ? "invalid usage, says the fake" : "some error";
}
const char* ncclGetLastError(void* comm) { return comm == NULL ? "" : "the fake's last words"; }

#if FAKE_ALL_REDUCE
/* What it was called with, and what it is to return, by turns. */
struct FakeCall {
  const void* send;
  void* recv;
  size_t count;
  int type, op;
  void *comm, *stream;
  int calls, result, progress_polls;
  /* While it is not 0 a call does not return, as one that connects; `waiting`: such calls. */
  int hold, waiting;
};
struct FakeCall fake_call;
static int answer(void) {
  __atomic_fetch_add(&fake_call.calls, 1, __ATOMIC_SEQ_CST);
  __atomic_fetch_add(&fake_call.waiting, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&fake_call.hold, __ATOMIC_SEQ_CST) != 0) usleep(1000);
  __atomic_fetch_sub(&fake_call.waiting, 1, __ATOMIC_SEQ_CST);
  return fake_call.result;
}
int ncclAllReduce(const void* send, void* recv, size_t count, int type, int op, void* comm, void* stream) {
  fake_call.send = send;
  fake_call.recv = recv;
  fake_call.count = count;
  fake_call.type = type;
  fake_call.op = op;
  fake_call.comm = comm;
  fake_call.stream = stream;
  return answer();
}
int ncclSend(const void* send, size_t count, int type, int peer, void* comm, void* stream) {
  (void)send, (void)count, (void)type, (void)peer, (void)comm;
  fake_call.stream = stream;
  return 0;
}
int ncclRecv(void* recv, size_t count, int type, int peer, void* comm, void* stream) {
  return ncclSend(recv, count, type, peer, comm, stream);
}
int ncclGroupStart(void) { return 0; }
int ncclGroupEnd(void) { return answer(); }
#else
int ncclGroupStart(void) { return 7; }
#endif

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
#if FAKE_ALL_REDUCE
  /* In progress for a while, then done. */
  if (fake_call.progress_polls != 0) {
    *error = fake_call.progress_polls-- == 1 ? 0 : 7;
    return 0;
  }
#endif
  *error = 6;
  return 0;
}
