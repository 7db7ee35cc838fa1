#include "tests/dropin/gpu_cases.hpp"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <thread>

#include "tests/dropin/gpu_values.hpp"
#include "tests/dropin/weak_nccl.hpp"

namespace nearlight::test {

namespace {

std::atomic<int> problems{0};

void problem(const std::string& text) {
  if (problems++ < 20) std::fprintf(stderr, "not so: %s\n", text.c_str());
}
void nccl(ncclResult_t result, const char* call) {
  if (result != ncclSuccess && result != ncclInProgress)
    problem(std::string(call) + ": " + ncclGetErrorString(result) + ": " + ncclGetLastError(nullptr));
}
void cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) problem(std::string(call) + ": " + cudaGetErrorString(error));
}
#define NCCL(call) nccl(call, #call)
#define CUDA(call) cuda(call, #call)

constexpr std::size_t kBytes = std::size_t{4} << 20;

// One rank: its GPU (the only one, where there is one), two streams, buffers and a communicator.
struct Rank {
  int rank = 0;
  int device = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t streams[2] = {};
  unsigned char *send = nullptr, *recv = nullptr;

  void make(int which) {
    rank = which;
    int devices = 0;
    CUDA(cudaGetDeviceCount(&devices));
    device = devices > 0 ? rank % devices : 0;
    CUDA(cudaSetDevice(device));
    for (auto& stream : streams) CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc(reinterpret_cast<void**>(&send), kBytes));
    CUDA(cudaMalloc(reinterpret_cast<void**>(&recv), kBytes));
  }
  void fill(std::size_t count, ncclDataType_t type, ncclRedOp_t op, int salt, int stream = 0) const {
    CUDA(cudaSetDevice(device));
    const auto bytes = inputs(count, type, op, rank, salt);
    CUDA(cudaMemcpyAsync(send, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, streams[stream]));
    CUDA(cudaMemsetAsync(recv, 0xEE, bytes.size() + 64, streams[stream]));
    CUDA(cudaStreamSynchronize(streams[stream]));
  }
  void check(const unsigned char* at, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int salt,
             const std::string& what) const {
    CUDA(cudaSetDevice(device));
    for (const auto stream : streams) CUDA(cudaStreamSynchronize(stream));
    std::vector<unsigned char> seen(count * bytes_of(type));
    CUDA(cudaMemcpy(seen.data(), at, seen.size(), cudaMemcpyDeviceToHost));
    if (seen != results(count, type, op, salt)) {
      problem(what + ", rank " + std::to_string(rank) + ", type " + std::to_string(type) + ", op " +
              std::to_string(op) + ", count " + std::to_string(count));
    }
  }
};

void wait_until_ready(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  for (int i = 0; i < 60'000 && state == ncclInProgress; ++i) {
    NCCL(ncclCommGetAsyncError(comm, &state));
    if (state == ncclInProgress) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (state != ncclSuccess) problem("a communicator is not ready: " + std::to_string(state));
}

// The ranks of this process: both, or one of two processes.
struct Ranks {
  std::vector<Rank> mine;

  // Everybody's call, in a group as one thread needs it.
  void all(const std::function<void(Rank&)>& call) {
    NCCL(ncclGroupStart());
    for (Rank& rank : mine) call(rank);
    NCCL(ncclGroupEnd());
    // A call of a communicator that does not block may not be enqueued yet.
    for (const Rank& rank : mine) wait_until_ready(rank.comm);
  }
  void reduce(std::size_t count, ncclDataType_t type, ncclRedOp_t op, int salt, bool in_place,
              const std::string& what) {
    for (const Rank& rank : mine) rank.fill(count, type, op, salt);
    all([&](const Rank& rank) {
      unsigned char* const to = in_place ? rank.send : rank.recv;
      NCCL(ncclAllReduce(rank.send, to, count, type, op, rank.comm, rank.streams[0]));
    });
    for (const Rank& rank : mine) rank.check(in_place ? rank.send : rank.recv, count, type, op, salt, what);
  }
};

ncclUniqueId meet(int rank, const std::string& meeting) {
  ncclUniqueId id{};
  if (rank <= 0) NCCL(ncclGetUniqueId(&id));
  if (rank < 0) return id;
  const std::string ready = meeting + ".ready";
  if (rank == 0) {
    std::ofstream(meeting, std::ios::binary).write(id.internal, sizeof id.internal);
    std::filesystem::rename(meeting, ready);
    return id;
  }
  for (int i = 0; i < 6000 && !std::filesystem::exists(ready); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::ifstream file(ready, std::ios::binary);
  if (!file.read(id.internal, sizeof id.internal)) problem("no id in " + ready);
  return id;
}

void types(Ranks& ranks) {
  int salt = 0;
  for (int type = 0; type < ncclNumTypes; ++type) {
    for (int op = 0; op < ncclNumOps; ++op) {
      for (const std::size_t count : {1, 7, 64, 1000, 4099, 40'000, 300'001}) {
        for (const bool in_place : {false, true}) {
          ranks.reduce(count, static_cast<ncclDataType_t>(type), static_cast<ncclRedOp_t>(op), ++salt,
                       in_place, in_place ? "in place" : "out of place");
        }
      }
    }
  }
}

// Replayed with other inputs, 20 times, with eager calls in between.
void graphs(Ranks& ranks) {
  constexpr std::size_t kCount = 5000;
  std::vector<cudaGraphExec_t> execs;
  for (const Rank& rank : ranks.mine) {
    CUDA(cudaSetDevice(rank.device));
    CUDA(cudaStreamBeginCapture(rank.streams[0], cudaStreamCaptureModeThreadLocal));
  }
  ranks.all([&](const Rank& rank) {
    for (int i = 0; i < 3; ++i)
      NCCL(ncclAllReduce(rank.send, rank.recv, kCount, ncclBfloat16, ncclSum, rank.comm, rank.streams[0]));
  });
  std::vector<cudaGraph_t> captured;  // no graph can be instantiated while this thread captures another
  for (const Rank& rank : ranks.mine) {
    CUDA(cudaSetDevice(rank.device));
    CUDA(cudaStreamEndCapture(rank.streams[0], &captured.emplace_back()));
  }
  for (std::size_t i = 0; i < captured.size(); ++i) {
    CUDA(cudaSetDevice(ranks.mine[i].device));
    CUDA(cudaGraphInstantiate(&execs.emplace_back(), captured[i], 0));
    CUDA(cudaGraphDestroy(captured[i]));
  }
  for (int replay = 0; replay < 20; ++replay) {
    for (const Rank& rank : ranks.mine) rank.fill(kCount, ncclBfloat16, ncclSum, replay);
    for (std::size_t i = 0; i < execs.size(); ++i) {
      CUDA(cudaSetDevice(ranks.mine[i].device));
      CUDA(cudaGraphLaunch(execs[i], ranks.mine[i].streams[0]));
    }
    for (const Rank& rank : ranks.mine) rank.check(rank.recv, kCount, ncclBfloat16, ncclSum, replay, "graph");
    ranks.reduce(100, ncclFloat32, ncclSum, replay, false, "between replays");
  }
  for (const cudaGraphExec_t exec : execs) CUDA(cudaGraphExecDestroy(exec));
}

// Taken and passed on in one group, sends and receives, too.
void groups(Ranks& ranks) {
  constexpr std::size_t kCount = 3000;
  for (int turn = 0; turn < 20; ++turn) {
    for (const Rank& rank : ranks.mine) rank.fill(kCount, ncclFloat32, ncclSum, turn);
    ranks.all([&](const Rank& rank) {
      const int other = 1 - rank.rank;
      auto* const apart = rank.recv + kBytes / 2;
      NCCL(ncclSend(rank.send, kCount, ncclFloat32, other, rank.comm, rank.streams[0]));
      NCCL(ncclRecv(apart, kCount, ncclFloat32, other, rank.comm, rank.streams[0]));
      NCCL(ncclAllReduce(rank.send, rank.recv, kCount, ncclFloat32, ncclSum, rank.comm, rank.streams[0]));
      NCCL(ncclAllGather(rank.send, apart + kCount * 4, kCount, ncclFloat32, rank.comm, rank.streams[0]));
    });
    for (const Rank& rank : ranks.mine) {
      rank.check(rank.recv, kCount, ncclFloat32, ncclSum, turn, "in a group");
      std::vector<unsigned char> seen(kCount * 4);
      CUDA(cudaMemcpy(seen.data(), rank.recv + kBytes / 2, seen.size(), cudaMemcpyDeviceToHost));
      if (seen != inputs(kCount, ncclFloat32, ncclSum, 1 - rank.rank, turn)) problem("received in a group");
      seen.resize(kCount * 4);
      CUDA(cudaMemcpy(seen.data(), rank.recv + kBytes / 2 + kCount * 8, seen.size(), cudaMemcpyDeviceToHost));
      if (seen != inputs(kCount, ncclFloat32, ncclSum, 1, turn)) problem("gathered in a group");
    }
  }
}

using Bytes = std::vector<unsigned char>;

Bytes part_of(const Bytes& bytes, int part) {
  const auto half = static_cast<std::ptrdiff_t>(bytes.size() / 2);
  return {bytes.begin() + part * half, bytes.begin() + (part + 1) * half};
}
Bytes behind(Bytes first, const Bytes& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// All six that nearlight has, by turns in one group and each by itself, with several types.
void every_function(Ranks& ranks) {
  constexpr std::size_t kPart = 3000, kApart = kBytes / 8;
  constexpr ncclDataType_t kTypes[] = {ncclFloat32, ncclBfloat16, ncclInt8, ncclInt64};
  for (int turn = 0; turn < 24; ++turn) {
    const ncclDataType_t type = kTypes[turn % 4];
    for (const Rank& rank : ranks.mine) {
      CUDA(cudaSetDevice(rank.device));
      CUDA(cudaMemset(rank.recv, 0xEE, kBytes));
      rank.fill(2 * kPart, type, ncclSum, turn);
    }
    const std::function<void(Rank&)> calls[] = {
        [&](const Rank& r) {
          NCCL(ncclAllReduce(r.send, r.recv, 2 * kPart, type, ncclSum, r.comm, r.streams[0]));
        },
        [&](const Rank& r) {
          NCCL(ncclAllGather(r.send, r.recv + kApart, kPart, type, r.comm, r.streams[0]));
        },
        [&](const Rank& r) {
          NCCL(ncclReduceScatter(r.send, r.recv + 2 * kApart, kPart, type, ncclSum, r.comm, r.streams[0]));
        },
        [&](const Rank& r) {
          NCCL(ncclBroadcast(r.send, r.recv + 3 * kApart, kPart, type, 1, r.comm, r.streams[0]));
        },
        [&](const Rank& r) {
          NCCL(ncclReduce(r.send, r.recv + 4 * kApart, kPart, type, ncclSum, 0, r.comm, r.streams[0]));
        },
        [&](const Rank& r) {
          NCCL(ncclAlltoAll(r.send, r.recv + 5 * kApart, kPart, type, r.comm, r.streams[0]));
        }};
    if (turn % 8 < 4) {
      ranks.all([&](Rank& rank) {
        for (const auto& call : calls) call(rank);
      });
    } else {
      for (const auto& call : calls) ranks.all(call);
    }
    const Bytes sent[] = {inputs(2 * kPart, type, ncclSum, 0, turn),
                          inputs(2 * kPart, type, ncclSum, 1, turn)};
    const Bytes sum = results(2 * kPart, type, ncclSum, turn);
    for (const Rank& rank : ranks.mine) {
      const Bytes wanted[] = {sum,
                              behind(part_of(sent[0], 0), part_of(sent[1], 0)),
                              part_of(sum, rank.rank),
                              part_of(sent[1], 0),
                              rank.rank == 0 ? part_of(sum, 0) : Bytes(kPart * bytes_of(type), 0xEE),
                              behind(part_of(sent[0], rank.rank), part_of(sent[1], rank.rank))};
      CUDA(cudaSetDevice(rank.device));
      CUDA(cudaStreamSynchronize(rank.streams[0]));
      for (std::size_t i = 0; i < std::size(wanted); ++i) {
        Bytes seen(wanted[i].size());
        CUDA(cudaMemcpy(seen.data(), rank.recv + i * kApart, seen.size(), cudaMemcpyDeviceToHost));
        if (seen != wanted[i])
          problem("function " + std::to_string(i) + ", rank " + std::to_string(rank.rank) + ", turn " +
                  std::to_string(turn));
      }
    }
  }
}

// Streams that nothing joins: operations of one communicator still follow each other. Some by NCCL in
// between.
void streams(Ranks& ranks) {
  constexpr std::size_t kCount = 2000;
  ncclRedOp_t doubled[2];
  float two = 2;
  for (std::size_t i = 0; i < ranks.mine.size(); ++i)
    NCCL(ncclRedOpCreatePreMulSum(&doubled[i], &two, ncclFloat32, ncclScalarHostImmediate,
                                  ranks.mine[i].comm));
  for (int turn = 0; turn < 30; ++turn) {
    for (const Rank& rank : ranks.mine) rank.fill(kCount, ncclFloat32, ncclSum, turn);
    for (int i = 0; i < 4; ++i) {
      ranks.all([&](const Rank& rank) {
        NCCL(ncclAllReduce(rank.send, rank.recv, kCount, ncclFloat32, ncclSum, rank.comm,
                           rank.streams[i % 2]));
      });
    }
    for (const Rank& rank : ranks.mine)
      rank.check(rank.recv, kCount, ncclFloat32, ncclSum, turn, "two streams");
    std::size_t i = 0;
    ranks.all([&](const Rank& rank) {
      NCCL(
          ncclAllReduce(rank.send, rank.recv, kCount, ncclFloat32, doubled[i++], rank.comm, rank.streams[0]));
    });
    for (const Rank& rank : ranks.mine) {
      CUDA(cudaSetDevice(rank.device));
      CUDA(cudaStreamSynchronize(rank.streams[0]));
      std::vector<float> seen(kCount);
      CUDA(cudaMemcpy(seen.data(), rank.recv, kCount * 4, cudaMemcpyDeviceToHost));
      for (std::size_t e = 0; e < kCount; ++e) {
        if (seen[e] != 2 * (value_of(e, 0, turn, false) + value_of(e, 1, turn, false)))
          return problem("an operator of the program's own");
      }
    }
  }
  for (std::size_t i = 0; i < ranks.mine.size(); ++i) NCCL(ncclRedOpDestroy(doubled[i], ranks.mine[i].comm));
}

// Communicators beside, from and after each other.
void communicators(Ranks& ranks) {
  std::vector<ncclComm_t> first;
  for (const Rank& rank : ranks.mine) first.push_back(rank.comm);
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<ncclComm_t> reversed(ranks.mine.size()), alone(ranks.mine.size());
    NCCL(ncclGroupStart());
    for (std::size_t i = 0; i < first.size(); ++i)
      NCCL(ncclCommSplit(first[i], 0, -ranks.mine[i].rank, &reversed[i], nullptr));
    NCCL(ncclGroupEnd());
    NCCL(ncclGroupStart());
    for (std::size_t i = 0; i < first.size(); ++i)
      NCCL(ncclCommSplit(first[i], ranks.mine[i].rank, 0, &alone[i], nullptr));
    NCCL(ncclGroupEnd());
    for (std::size_t i = 0; i < first.size(); ++i) ranks.mine[i].comm = reversed[i];
    ranks.reduce(1000, ncclFloat16, ncclMax, turn, false, "split, ranks reversed");
    for (std::size_t i = 0; i < first.size(); ++i) ranks.mine[i].comm = first[i];
    ranks.reduce(1000, ncclFloat16, ncclMin, turn, false, "beside a split");
    for (std::size_t i = 0; i < first.size(); ++i) {
      CUDA(cudaSetDevice(ranks.mine[i].device));
      NCCL(ncclCommDestroy(alone[i]));
    }
    // The end is collective inside NCCL where it is not aborted.
    NCCL(ncclGroupStart());
    for (const ncclComm_t comm : reversed) NCCL(turn == 1 ? ncclCommAbort(comm) : ncclCommDestroy(comm));
    NCCL(ncclGroupEnd());
  }
  ranks.reduce(1000, ncclFloat16, ncclSum, 9, true, "after the others are gone");
}

void few(Ranks& ranks) {
  for (int i = 0; i < 50; ++i)
    ranks.reduce(static_cast<std::size_t>(1 + i * 37), ncclBfloat16, ncclSum, i, i % 2 == 0, "some calls");
}

// Rank 0 is done and ends without a word; that is no error for rank 1, which has all it needs.
void left(Ranks& ranks) {
  few(ranks);
  for (const Rank& rank : ranks.mine) {
    if (rank.rank == 0) return;
    std::this_thread::sleep_for(std::chrono::seconds(3));
    ncclResult_t state = ncclSuccess;
    NCCL(ncclCommGetAsyncError(rank.comm, &state));
    if (state != ncclSuccess) problem("a rank that has ended is told as an error");
  }
}

using Body = void (*)(Ranks&);
const std::map<std::string, Body> kBodies = {{"types", types},     {"graphs", graphs},
                                             {"groups", groups},   {"every_function", every_function},
                                             {"streams", streams}, {"communicators", communicators},
                                             {"left", left}};

// Each rank by a thread of its own.
void on_threads(const std::string& meeting, Body body, bool blocking) {
  const ncclUniqueId id = meet(-1, meeting);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      Ranks ranks;
      ranks.mine.resize(1);
      ranks.mine[0].make(r);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = blocking ? 1 : 0;
      ncclComm_t& comm = ranks.mine[0].comm;
      NCCL(ncclCommInitRankConfig(&comm, 2, id, r, &config));
      wait_until_ready(comm);
      body(ranks);
      NCCL(ncclCommFinalize(comm));
      wait_until_ready(comm);
      NCCL(ncclCommDestroy(comm));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int run_gpu_case(const std::string& name, int rank, const std::string& meeting) {
  if (ncclCommInitAll == nullptr) {
    std::fprintf(stderr, "no NCCL is preloaded\n");
    return 3;
  }
  if (name == "threads" || name == "non_blocking") {
    on_threads(meeting, few, name == "threads");
    return problems == 0 ? 0 : 1;
  }
  Ranks ranks;
  ranks.mine.resize(rank < 0 ? 2 : 1);
  if (rank < 0) {
    ncclComm_t comms[2] = {};
    NCCL(ncclCommInitAll(comms, 2, nullptr));
    for (int r = 0; r < 2; ++r) {
      ranks.mine[static_cast<std::size_t>(r)].make(r);
      ranks.mine[static_cast<std::size_t>(r)].comm = comms[r];
    }
  } else {
    const ncclUniqueId id = meet(rank, meeting);
    ranks.mine[0].make(rank);
    NCCL(ncclCommInitRank(&ranks.mine[0].comm, 2, id, rank));
  }
  if (problems == 0) kBodies.at(name)(ranks);
  if (name == "left") return problems == 0 ? 0 : 1;
  NCCL(ncclGroupStart());
  for (const Rank& one : ranks.mine) NCCL(ncclCommDestroy(one.comm));
  NCCL(ncclGroupEnd());
  return problems == 0 ? 0 : 1;
}

}  // namespace nearlight::test
