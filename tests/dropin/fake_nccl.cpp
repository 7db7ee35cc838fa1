// A stand-in for NCCL: communicators are threads of one process, memory is the host's, streams are numbers.
// An operation is done by the rank that comes last, so that no call waits for others but those that make
// communicators.
#include "tests/dropin/fake_nccl.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#ifndef FAKE_VERSION
#define FAKE_VERSION NCCL_VERSION_CODE
#endif

namespace {

constexpr auto kLimit = std::chrono::seconds(10);

std::mutex all;  // guards everything below
std::condition_variable changed;
std::string log_text;
std::atomic<bool> quiet{false};
std::atomic<int> fail_next{0}, companion_failure{0};
std::atomic<int> live{0};
std::atomic<bool> held{false};
struct Gate {
  std::atomic<bool> takes_next{false}, closed{false};
  std::atomic<int> held{0};
};
Gate gates[fakeNcclPlaces];

std::size_t size_of(int type) {
  constexpr std::size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < 12 ? kSizes[type] : 0;
}

struct Call {
  std::string name;
  const void* send;
  void* recv;
  std::size_t count;
  int type, op, root;
};

struct Queue {
  std::uint64_t first = 0;  // number of the first of `open`
  std::deque<std::map<int, Call>> open;
};

struct Meeting {
  int expected = 0;
  std::map<int, std::uint64_t> values;
};

struct Group {
  int nranks = 0, joined = 0;
  Queue by_nccl, taken;
  std::map<std::string, Meeting> meetings;
};

template <class T>
void reduce(const std::map<int, Call>& ranks, int op) {
  const Call& first = ranks.begin()->second;
  std::vector<T> result(first.count);
  for (std::size_t i = 0; i < first.count; ++i) {
    T value = static_cast<const T*>(first.send)[i];
    for (auto rank = std::next(ranks.begin()); rank != ranks.end(); ++rank) {
      const T other = static_cast<const T*>(rank->second.send)[i];
      value = op == ncclProd  ? value * other
              : op == ncclMax ? std::max(value, other)
              : op == ncclMin ? std::min(value, other)
                              : value + other;
    }
    result[i] = op == ncclAvg ? value / static_cast<T>(ranks.size()) : value;
  }
  for (const auto& [rank, call] : ranks) std::memcpy(call.recv, result.data(), result.size() * sizeof(T));
}

void carry_out(const std::map<int, Call>& ranks) {
  const Call& first = ranks.begin()->second;
  const std::size_t bytes = first.count * size_of(first.type);
  if (first.name == "AllReduce") {
    if (first.type == ncclFloat32) reduce<float>(ranks, first.op);
    if (first.type == ncclInt32) reduce<int>(ranks, first.op);
  } else if (first.name == "Broadcast") {
    for (const auto& [rank, call] : ranks) std::memmove(call.recv, ranks.at(call.root).send, bytes);
  } else if (first.name == "AllGather") {
    for (const auto& [rank, call] : ranks) {
      for (const auto& [peer, theirs] : ranks)
        std::memmove(static_cast<char*>(call.recv) + static_cast<std::size_t>(peer) * bytes, theirs.send,
                     bytes);
    }
  }
}

}  // namespace

struct ncclComm {
  std::shared_ptr<Group> group;
  int rank = 0;
  bool blocking = true, revoked = false, finalized = false, enqueues = false;
  int polls = 0;  // how often it still says "in progress"
  std::uint64_t next = 0, next_taken = 0, splits = 0, meetings = 0;
};

namespace {

void note(const char* who, const Call& call, const ncclComm* comm, const void* stream) {
  char line[160];
  std::snprintf(line, sizeof line, "%s %s r%d s%zu %zu\n", who, call.name.c_str(), comm->rank,
                reinterpret_cast<std::size_t>(stream), call.count);
  log_text += line;
}

void post(Queue& queue, std::uint64_t number, const Call& call, const ncclComm* comm) {
  while (queue.first + queue.open.size() <= number) queue.open.emplace_back();
  queue.open[number - queue.first][comm->rank] = call;
  while (!queue.open.empty() && static_cast<int>(queue.open.front().size()) == comm->group->nranks) {
    carry_out(queue.open.front());
    queue.open.pop_front();
    ++queue.first;
  }
}

struct InGroup {
  Call call;
  ncclComm* comm;
  const void* stream;
};
thread_local int depth = 0;
thread_local std::vector<InGroup> in_group;
thread_local std::vector<std::string> waiting_for;  // meetings that the end of the group waits for
thread_local std::vector<std::shared_ptr<Group>> waiting_groups;

ncclResult_t collective(const char* name, const void* send, void* recv, std::size_t count, int type, int op,
                        int root, ncclComm* comm, const void* stream) {
  if (quiet.load(std::memory_order_relaxed)) return ncclSuccess;
  if (const int code = fail_next.exchange(0); code != 0) return static_cast<ncclResult_t>(code);
  if (comm == nullptr) return ncclInvalidArgument;
  const std::lock_guard lock(all);
  if (comm->revoked) return ncclInvalidUsage;
  const Call call{name, send, recv, count, type, op, root};
  if (depth > 0) {
    in_group.push_back({call, comm, stream});
    return ncclSuccess;
  }
  note("nccl", call, comm, stream);
  post(comm->group->by_nccl, comm->next++, call, comm);
  return comm->blocking ? ncclSuccess : ncclInProgress;
}

std::map<std::string, std::shared_ptr<Group>>& groups() {
  static std::map<std::string, std::shared_ptr<Group>> by_id;
  return by_id;
}

// Not yet made, or with something under way.
bool in_progress(const ncclComm* comm) {
  return comm->polls > 0 || comm->group->joined < comm->group->nranks;
}

// NCCL asks itself by its public name, which a drop-in has, too.
ncclResult_t ready(ncclComm* comm) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
  if (asked != ncclSuccess) return asked;
  return state == ncclInProgress ? ncclInvalidArgument : state;
}

ncclComm* make(const std::shared_ptr<Group>& group, int rank, const ncclConfig_t* config) {
  auto* const comm = new ncclComm;
  comm->group = group;
  comm->rank = rank;
  // The variable comes before the configuration, as in NCCL.
  const char* const variable = std::getenv("NCCL_COMM_BLOCKING");
  comm->blocking = variable != nullptr ? variable[0] != '0' : config == nullptr || config->blocking != 0;
  comm->polls = comm->blocking ? 0 : 5;
  ++group->joined;
  ++live;
  changed.notify_all();
  return comm;
}

// Until all ranks have joined; at once inside a group, or for a communicator that does not block.
ncclResult_t joined(std::unique_lock<std::mutex>& lock, ncclComm* comm) {
  if (!comm->blocking) return ncclInProgress;
  const auto group = comm->group;
  if (depth > 0) {
    waiting_groups.push_back(group);
    return ncclSuccess;
  }
  return changed.wait_for(lock, kLimit, [&] { return group->joined >= group->nranks; }) ? ncclSuccess
                                                                                        : ncclSystemError;
}

// A communicator of those with one colour, in the order of their keys.
ncclResult_t divide(ncclComm* parent, int color, int key, int expected, ncclComm** out,
                    const ncclConfig_t* config) {
  std::unique_lock lock(all);
  Meeting& meeting = parent->group->meetings["split" + std::to_string(parent->splits++)];
  meeting.expected = expected;
  meeting.values[parent->rank] = static_cast<std::uint64_t>(static_cast<unsigned>(color)) << 32 |
                                 static_cast<unsigned>(key + 1000) << 8 | static_cast<unsigned>(parent->rank);
  changed.notify_all();
  // All ranks of a test that splits inside a group are threads of their own, or do not.
  if (!changed.wait_for(lock, kLimit,
                        [&] { return static_cast<int>(meeting.values.size()) >= meeting.expected; })) {
    return ncclSystemError;
  }
  if (color == NCCL_SPLIT_NOCOLOR) {
    *out = nullptr;
    return ncclSuccess;
  }
  std::vector<std::uint64_t> mine;
  for (const auto& [rank, value] : meeting.values) {
    if (value >> 32 == static_cast<unsigned>(color)) mine.push_back(value & 0xffffffffU);
  }
  std::sort(mine.begin(), mine.end());
  const auto own = static_cast<std::uint64_t>(static_cast<unsigned>(key + 1000) << 8 |
                                              static_cast<unsigned>(parent->rank));
  char id[96];
  std::snprintf(id, sizeof id, "%p/%llu/%d", static_cast<void*>(parent->group.get()),
                static_cast<unsigned long long>(parent->splits), color);
  auto& group = groups()[id];
  if (group == nullptr) group = std::make_shared<Group>();
  group->nranks = static_cast<int>(mine.size());
  *out = make(group, static_cast<int>(std::find(mine.begin(), mine.end(), own) - mine.begin()), config);
  return joined(lock, *out);
}

}  // namespace

extern "C" {

int ncclOfTomorrow(int value) { return value + FAKE_VERSION; }

void fakeNcclLog(const char* line) {
  const std::lock_guard lock(all);
  log_text += std::string(line) + "\n";
}
const char* fakeNcclLogText() {
  static thread_local std::string text;
  const std::lock_guard lock(all);
  text = log_text;
  return text.c_str();
}
void fakeNcclLogClear() {
  const std::lock_guard lock(all);
  log_text.clear();
}
void fakeNcclQuiet(int value) { quiet = value != 0; }
void fakeNcclFailNext(ncclResult_t result) { fail_next = result; }
void fakeNcclSetCompanionFailure(int code) { companion_failure = code; }
int fakeNcclCompanionFailure() { return companion_failure; }
void fakeNcclHold(int value) { held = value != 0; }
int fakeNcclHeld() { return held ? 1 : 0; }
void fakeNcclHoldAt(fakeNcclPlace place, int value) {
  gates[place].closed = gates[place].takes_next = value != 0;
}
int fakeNcclHeldAt(fakeNcclPlace place) { return gates[place].held; }
void fakeNcclPass(fakeNcclPlace place) {
  Gate& gate = gates[place];
  if (!gate.takes_next.exchange(false)) return;
  ++gate.held;
  const auto end = std::chrono::steady_clock::now() + kLimit;
  while (gate.closed && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  --gate.held;
}
int fakeNcclRank(ncclComm_t comm) { return comm->rank; }
int fakeNcclLive() { return live; }

int fakeNcclMeet(ncclComm_t comm, std::uint64_t mine, std::uint64_t* values) {
  std::unique_lock lock(all);
  Meeting& meeting = comm->group->meetings["meet" + std::to_string(comm->meetings++)];
  meeting.values[comm->rank] = mine;
  changed.notify_all();
  const auto group = comm->group;
  if (!changed.wait_for(lock, kLimit,
                        [&] { return static_cast<int>(meeting.values.size()) == group->nranks; })) {
    return 0;
  }
  for (const auto& [rank, value] : meeting.values) values[rank] = value;
  return 1;
}

ncclResult_t fakeNcclTaken(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, void* stream) {
  if (quiet.load(std::memory_order_relaxed)) return ncclSuccess;
  const std::lock_guard lock(all);
  const Call call{"AllReduce", send, recv, count, type, op, -1};
  note("nearlight", call, comm, stream);
  post(comm->group->taken, comm->next_taken++, call, comm);
  return ncclSuccess;
}

ncclResult_t ncclGetVersion(int* version) {
  *version = FAKE_VERSION;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : "an error";
}
const char* ncclGetLastError(ncclComm_t) { return "the fake's last words"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> next{0};
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "id%d", next++);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (rank < 0 || rank >= nranks) return ncclInvalidArgument;
  std::unique_lock lock(all);
  auto& group = groups()[id.internal];
  if (group == nullptr) group = std::make_shared<Group>();
  group->nranks = nranks;
  *comm = make(group, rank, config);
  return joined(lock, *comm);
}
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(comm, nranks, id, rank, nullptr);
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int nranks, int rank, int nId, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
  return nId < 1 ? ncclInvalidArgument : ncclCommInitRankConfig(comm, nranks, ids[0], rank, config);
}
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int n, const int*) {
  const std::lock_guard lock(all);
  const auto group = std::make_shared<Group>();
  group->nranks = n;
  for (int rank = 0; rank < n; ++rank) comms[rank] = make(group, rank, nullptr);
  return n == 0 || comms[0]->blocking ? ncclSuccess : ncclInProgress;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* out, ncclConfig_t* config) {
  return divide(comm, color, key, comm->group->nranks, out, config);
}
ncclResult_t ncclCommShrink(ncclComm_t comm, int*, int excluded, ncclComm_t* out, ncclConfig_t* config, int) {
  return divide(comm, 0, comm->rank, comm->group->nranks - excluded, out, config);
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  fakeNcclPass(fakeNcclFinalizes);
  fakeNcclLog(("finalize r" + std::to_string(comm->rank)).c_str());
  if (const ncclResult_t result = ready(comm); result != ncclSuccess) return result;
  const std::lock_guard lock(all);
  if (comm->finalized) return ncclInvalidArgument;
  comm->finalized = true;
  if (comm->blocking) return ncclSuccess;
  comm->polls = 3;
  return ncclInProgress;
}
ncclResult_t ncclCommRevoke(ncclComm_t comm, int) {
  fakeNcclLog(("revoke r" + std::to_string(comm->rank)).c_str());
  comm->revoked = true;
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  fakeNcclLog(("destroy r" + std::to_string(comm->rank)).c_str());
  if (const int code = fail_next.exchange(0); code != 0) return static_cast<ncclResult_t>(code);
  if (const ncclResult_t result = ready(comm); result != ncclSuccess) return result;
  --live;
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  fakeNcclLog(("abort r" + std::to_string(comm->rank)).c_str());
  --live;
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  if (const ncclResult_t result = ready(comm); result != ncclSuccess) return result;
  *count = comm->group->nranks;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  fakeNcclPass(fakeNcclStateIsAsked);
  const std::lock_guard lock(all);
  const bool waits = in_progress(comm);
  if (comm->polls > 0) --comm->polls;
  if (!waits && std::exchange(comm->enqueues, false))
    log_text += "enqueued r" + std::to_string(comm->rank) + "\n";
  *error = waits ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (depth == 0) return ncclInvalidUsage;
  if (--depth > 0) return ncclSuccess;
  const auto calls = std::exchange(in_group, {});
  const auto made = std::exchange(waiting_groups, {});
  if (quiet) return ncclSuccess;
  if (const int code = fail_next.exchange(0); code != 0) return static_cast<ncclResult_t>(code);
  std::unique_lock lock(all);
  for (const auto& group : made) {
    if (!changed.wait_for(lock, kLimit, [&] { return group->joined >= group->nranks; }))
      return ncclSystemError;
  }
  log_text += "end of group\n";
  for (const InGroup& one : calls) {
    note("nccl", one.call, one.comm, one.stream);
    post(one.comm->group->by_nccl, one.comm->next++, one.call, one.comm);
  }
  // What does not block has not begun yet.
  bool later = false;
  for (const InGroup& one : calls) {
    if (one.comm->blocking) continue;
    later = true;
    one.comm->polls = 3;
    one.comm->enqueues = true;
  }
  return later ? ncclInProgress : ncclSuccess;
}
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t*) {
  if (depth == 0) return ncclInvalidUsage;
  if (--depth == 0) in_group.clear();
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective("AllReduce", send, recv, count, type, op, -1, comm, stream);
}
ncclResult_t ncclAllGather(const void* send, void* recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return collective("AllGather", send, recv, count, type, 0, -1, comm, stream);
}
ncclResult_t ncclBroadcast(const void* send, void* recv, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective("Broadcast", send, recv, count, type, 0, root, comm, stream);
}
// As in NCCL: by the name, which somebody else may have.
ncclResult_t ncclBcast(void* buff, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(buff, buff, count, type, root, comm, stream);
}
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void*, ncclDataType_t, ncclScalarResidence_t,
                                      ncclComm_t) {
  *op = static_cast<ncclRedOp_t>(ncclNumOps);
  return ncclSuccess;
}
ncclResult_t ncclMemAlloc(void** pointer, size_t size) {
  *pointer = ::operator new(size);
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* pointer) {
  ::operator delete(pointer);
  return ncclSuccess;
}

// All others only log their name.
#define NL_INTERCEPTED(type, name, parameters, names)
#define NL_FORWARDED(type, name, parameters, names) \
  type name parameters {                            \
    fakeNcclLog(#name);                             \
    return type();                                  \
  }
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "fake_nccl_functions.def"

// Each also by its second name.
#undef NL_INTERCEPTED
#undef NL_FORWARDED
#define NL_INTERCEPTED(type, name, parameters, names) [[gnu::alias(#name)]] decltype(name) p##name;
#define NL_FORWARDED NL_INTERCEPTED
#include "fake_nccl_functions.def"

}  // extern "C"
