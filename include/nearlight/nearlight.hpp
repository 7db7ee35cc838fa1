// SPDX-License-Identifier: Apache-2.0
// nearlight for C++ (17 and later): header-only over nearlight.h, with exceptions and ownership. What each
// call does, who may make it and how it fails stands there and in docs/reference/cpp-api.md.
#ifndef NEARLIGHT_NEARLIGHT_HPP
#define NEARLIGHT_NEARLIGHT_HPP

#include <nearlight/nearlight.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace nearlight {
inline namespace v0 {

// How a call failed: NCCL's numbers for NCCL's meanings, nearlight's own from 100.
enum class Code : int {
  ok = nearlightSuccess,
  cuda_error = nearlightCudaError,
  system_error = nearlightSystemError,
  internal_error = nearlightInternalError,
  invalid_argument = nearlightInvalidArgument,
  invalid_usage = nearlightInvalidUsage,
  remote_error = nearlightRemoteError,
  in_progress = nearlightInProgress,
  timeout = nearlightTimeout,
  unsupported = nearlightUnsupported,
  aborted = nearlightAborted,
};

// Every failure of this header. what() is "<code in words>: <call, rank, argument, what is wrong>".
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& text)
      : std::runtime_error(std::string(nearlightGetErrorString(static_cast<nearlightResult_t>(code))) + ": " +
                           text),
        code_(code) {}
  Code code() const noexcept { return code_; }

 private:
  Code code_;
};

namespace detail {
inline void check(nearlightResult_t result) {
  if (result != nearlightSuccess) throw Error(static_cast<Code>(result), nearlightGetLastError());
}
}  // namespace detail

enum class DataType : int {
  i8 = nearlightInt8,
  u8 = nearlightUint8,
  i32 = nearlightInt32,
  u32 = nearlightUint32,
  i64 = nearlightInt64,
  u64 = nearlightUint64,
  f16 = nearlightFloat16,
  f32 = nearlightFloat32,
  f64 = nearlightFloat64,
  bf16 = nearlightBfloat16,
  f8e4m3 = nearlightFloat8e4m3,
  f8e5m2 = nearlightFloat8e5m2,
};
inline constexpr DataType i8 = DataType::i8, u8 = DataType::u8, i32 = DataType::i32, u32 = DataType::u32,
                          i64 = DataType::i64, u64 = DataType::u64, f16 = DataType::f16, f32 = DataType::f32,
                          f64 = DataType::f64, bf16 = DataType::bf16, f8e4m3 = DataType::f8e4m3,
                          f8e5m2 = DataType::f8e5m2;

enum class ReduceOp : int {
  sum = nearlightSum,
  prod = nearlightProd,
  max = nearlightMax,
  min = nearlightMin,
  avg = nearlightAvg,
};
inline constexpr ReduceOp sum = ReduceOp::sum, prod = ReduceOp::prod, max = ReduceOp::max,
                          min = ReduceOp::min, avg = ReduceOp::avg;

enum class Collective : int {
  all_reduce = nearlightCollectiveAllReduce,
  all_gather = nearlightCollectiveAllGather,
  reduce_scatter = nearlightCollectiveReduceScatter,
  broadcast = nearlightCollectiveBroadcast,
  reduce = nearlightCollectiveReduce,
  all_to_all = nearlightCollectiveAllToAll,
  all_gather_v = nearlightCollectiveAllGatherV,
  reduce_scatter_v = nearlightCollectiveReduceScatterV,
  all_to_all_v = nearlightCollectiveAllToAllV,
  send_recv = nearlightCollectiveSendRecv,
  all_reduce_rms_norm = nearlightCollectiveAllReduceRmsNorm,
  all_reduce_bias = nearlightCollectiveAllReduceBias,
  gemv_all_reduce = nearlightCollectiveGemvAllReduce,
  all_gather_gemv = nearlightCollectiveAllGatherGemv,
};

// C's struct, ready to be filled: RmsNorm norm; norm.input = ...
struct RmsNorm : nearlightRmsNorm_t {
  RmsNorm() : nearlightRmsNorm_t(NEARLIGHT_RMS_NORM_INITIALIZER) {}
};

// CUDA's stream: cudaStream_t converts to it.
using Stream = CUstream_st*;

// What a communicator is to be like; the same on all ranks. Zero and unset mean the default.
struct Config {
  std::chrono::milliseconds timeout{0};         // of one wait
  std::chrono::milliseconds create_timeout{0};  // of creation
  std::optional<bool> check;                    // check mode
  std::uint32_t regions = 0, slots = 0, chunk_bytes = 0, packets = 0, max_ctas = 0;
  std::optional<bool> deterministic;  // the same results from run to run
  std::uint32_t lines = 0;
  std::optional<bool> early_launch;  // of the kernel after a call's

  nearlightConfig_t to_c() const {
    nearlightConfig_t config = NEARLIGHT_CONFIG_INITIALIZER;
    config.timeout_ms = timeout.count();
    config.create_timeout_ms = create_timeout.count();
    config.check = check ? (*check ? 1 : -1) : 0;
    config.regions = regions;
    config.slots = slots;
    config.chunk_bytes = chunk_bytes;
    config.packets = packets;
    config.max_ctas = max_ctas;
    config.deterministic = deterministic ? (*deterministic ? 1 : -1) : 0;
    config.lines = lines;
    config.early_launch = early_launch ? (*early_launch ? 1 : -1) : 0;
    return config;
  }
};

struct Info {
  int rank = 0, nranks = 0;
  std::string backend, memory;
  std::uint64_t scratch_bytes = 0;
  bool early_launch = false;
  std::string memory_reason;  // "": there was no choice
};

// Whether a communicator has failed, and how.
struct Status {
  Code code = Code::ok;
  int rank = -1, peer = -1;  // who noticed; whom it waited for. -1: nobody
  std::string text;

  bool ok() const { return code == Code::ok; }
  explicit operator bool() const { return ok(); }
};

// What a communicator has done so far; see nearlightCounters_t.
struct Counters {
  std::uint64_t all_reduces = 0, barriers = 0, bytes = 0, captured = 0, failures = 0;
  struct PerRoute {
    std::string algorithm, protocol;
    std::uint64_t operations = 0, bytes = 0;
  };
  std::vector<PerRoute> routes;
  std::uint64_t all_gathers = 0, reduce_scatters = 0, broadcasts = 0, reduces = 0, all_to_alls = 0;
  std::uint64_t send_recvs = 0, all_reduce_rms_norms = 0, all_reduce_biases = 0, gemv_all_reduces = 0,
                all_gather_gemvs = 0;
};

// What a collective would run, and why.
struct Route {
  std::string algorithm, protocol, reason;
  std::uint32_t grid = 0, threads = 0;
};

// The library's version as one number: 10203 is 1.2.3.
inline int version() {
  int code = 0;
  detail::check(nearlightGetVersion(&code));
  return code;
}

// An operator that multiplies first; freed with this object. Made by Communicator::premul_sum, for that
// communicator, which frees it as well when it ends first. Moved from, it is no operator.
class Operator {
 public:
  // Takes over an operator of the C API.
  Operator(nearlightRedOp_t op, nearlightComm_t comm) noexcept : op_(op), comm_(comm) {}
  Operator(Operator&& other) noexcept
      : op_(std::exchange(other.op_, nearlightRedOpMin_)), comm_(std::exchange(other.comm_, nullptr)) {}
  Operator& operator=(Operator&& other) noexcept {
    if (this != &other) {
      end();
      op_ = std::exchange(other.op_, nearlightRedOpMin_);
      comm_ = std::exchange(other.comm_, nullptr);
    }
    return *this;
  }
  ~Operator() { end(); }

  // For the C API; still owned by this object.
  nearlightRedOp_t handle() const noexcept { return op_; }

 private:
  void end() noexcept {
    if (comm_ != nullptr) static_cast<void>(nearlightRedOpDestroy(op_, comm_));
  }

  nearlightRedOp_t op_;
  nearlightComm_t comm_;
};

// One rank's end of a group; destroyed with this object. Moved from, it is empty, and every call but
// assignment and destruction fails with Code::invalid_argument.
class Communicator {
 public:
  // A GPU rank on top of an NCCL communicator, which must outlive it. Collective.
  static Communicator attach(ncclComm* nccl, const Config& config = {}) {
    const nearlightConfig_t c_config = checked(config);
    nearlightComm_t comm = nullptr;
    detail::check(nearlightCommAttachNccl(&comm, nccl, &c_config));
    return Communicator(comm);
  }

  // All GPU ranks of a group in this process: [i] is rank i, on CUDA device devices[i].
  static std::vector<Communicator> local(const std::vector<int>& devices, const Config& config = {}) {
    const nearlightConfig_t c_config = checked(config);
    // One more, so that no devices at all is an error for their number and not for a null pointer.
    std::vector<int> list(devices);
    list.push_back(0);
    return group(devices.size(), [&](nearlightComm_t* comms) {
      return nearlightCommCreateCudaGroup(comms, static_cast<int>(devices.size()), list.data(), &c_config);
    });
  }

  // All CPU ranks of a group in this process: [i] is rank i, for a thread of its own.
  static std::vector<Communicator> host_group(int nranks, const Config& config = {}) {
    const nearlightConfig_t c_config = checked(config);
    return group(nranks > 0 ? static_cast<std::size_t>(nranks) : 0, [&](nearlightComm_t* comms) {
      return nearlightCommCreateHostGroup(comms, nranks, &c_config);
    });
  }

  // One CPU rank; the ranks are processes of this host that find each other by `key`. Collective.
  static Communicator host(int rank, int nranks, const std::string& key, const Config& config = {}) {
    const nearlightConfig_t c_config = checked(config);
    nearlightComm_t comm = nullptr;
    detail::check(nearlightCommCreateHost(&comm, rank, nranks, key.c_str(), &c_config));
    return Communicator(comm);
  }

  // The same with rank, size and key from the job: NEARLIGHT_RANK, ..., torchrun, Open MPI, PMI or Slurm.
  static Communicator host_of_job(const Config& config = {}) {
    const nearlightConfig_t c_config = checked(config);
    nearlightComm_t comm = nullptr;
    detail::check(nearlightCommCreateHost(&comm, -1, -1, nullptr, &c_config));
    return Communicator(comm);
  }

  // One GPU rank, on this process's CUDA device; the ranks are processes of this host that find each other by
  // `key`. Collective.
  static Communicator cuda(int device, int rank, int nranks, const std::string& key,
                           const Config& config = {}) {
    const nearlightConfig_t c_config = checked(config);
    nearlightComm_t comm = nullptr;
    detail::check(nearlightCommCreateCuda(&comm, device, rank, nranks, key.c_str(), &c_config));
    return Communicator(comm);
  }

  // The same with rank, size and key from the job.
  static Communicator cuda_of_job(int device, const Config& config = {}) {
    const nearlightConfig_t c_config = checked(config);
    nearlightComm_t comm = nullptr;
    detail::check(nearlightCommCreateCuda(&comm, device, -1, -1, nullptr, &c_config));
    return Communicator(comm);
  }

  // Takes over a handle of the C API.
  explicit Communicator(nearlightComm_t comm) noexcept : comm_(comm) {}
  Communicator(Communicator&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  Communicator& operator=(Communicator&& other) noexcept {
    if (this != &other) {
      static_cast<void>(nearlightCommDestroy(comm_));
      comm_ = std::exchange(other.comm_, nullptr);
    }
    return *this;
  }
  ~Communicator() { static_cast<void>(nearlightCommDestroy(comm_)); }

  // The handle, for the C API; still owned by this object.
  nearlightComm_t handle() const noexcept { return comm_; }
  // The handle, now the caller's.
  nearlightComm_t release() noexcept { return std::exchange(comm_, nullptr); }

  int rank() const {
    int rank = 0;
    detail::check(nearlightCommRank(comm_, &rank));
    return rank;
  }
  int nranks() const {
    int nranks = 0;
    detail::check(nearlightCommCount(comm_, &nranks));
    return nranks;
  }
  Info info() const {
    nearlightCommInfo_t info = NEARLIGHT_COMM_INFO_INITIALIZER;
    detail::check(nearlightCommGetInfo(comm_, &info));
    return {info.rank,
            info.nranks,
            info.backend,
            info.memory,
            info.scratch_bytes,
            info.early_launch != 0,
            info.memory_reason != nullptr ? info.memory_reason : ""};
  }
  // Whether it has failed by now. Throws only when there is no communicator.
  Status status() const {
    nearlightCommStatus_t status = NEARLIGHT_COMM_STATUS_INITIALIZER;
    detail::check(nearlightCommGetStatus(comm_, &status));
    return {static_cast<Code>(status.result), status.rank, status.peer, status.text};
  }
  // What it has done so far; any thread, also while another one is in a call.
  Counters counters() const {
    nearlightCounters_t counters = NEARLIGHT_COUNTERS_INITIALIZER;
    detail::check(nearlightCommGetCounters(comm_, &counters));
    Counters out{counters.all_reduces,
                 counters.barriers,
                 counters.bytes,
                 counters.captured,
                 counters.failures,
                 {},
                 counters.all_gathers,
                 counters.reduce_scatters,
                 counters.broadcasts,
                 counters.reduces,
                 counters.all_to_alls,
                 counters.send_recvs,
                 counters.all_reduce_rms_norms,
                 counters.all_reduce_biases,
                 counters.gemv_all_reduces,
                 counters.all_gather_gemvs};
    for (std::size_t i = 0; i < NEARLIGHT_MOST_ROUTES && i < counters.routes; ++i) {
      const nearlightRouteCounters_t& route = counters.route[i];
      out.routes.push_back({route.algorithm, route.protocol, route.operations, route.bytes});
    }
    return out;
  }
  // Ends every wait of this rank, now and later; any thread.
  void abort() { detail::check(nearlightCommAbort(comm_)); }
  // Brings it back, failed or not; collective. See nearlightCommReset. 0: as long as creation may take.
  void reset(std::chrono::milliseconds timeout = std::chrono::milliseconds(0)) {
    detail::check(nearlightCommReset(comm_, timeout.count()));
  }
  // A new one of these ranks alone (ascending, this one among them); collective over them. See
  // nearlightCommShrink.
  Communicator shrink(const std::vector<int>& members,
                      std::chrono::milliseconds timeout = std::chrono::milliseconds(0)) {
    // One more, so that none at all is an error for their number and not for a null pointer.
    std::vector<int> list(members);
    list.push_back(0);
    nearlightComm_t shrunk = nullptr;
    detail::check(
        nearlightCommShrink(comm_, list.data(), static_cast<int>(members.size()), timeout.count(), &shrunk));
    return Communicator(shrunk);
  }

  // Moves all calls from now on to another path, by its name; "": the route table's choice. On all ranks
  // between the same calls; see nearlightCommSetPath.
  void set_path(const std::string& path) { detail::check(nearlightCommSetPath(comm_, path.c_str())); }

  // recv[i] = op over all ranks of send[i]; see nearlightAllReduce.
  void all_reduce(const void* send, void* recv, std::size_t count, DataType type, ReduceOp op,
                  Stream stream = nullptr) {
    reduce_all(send, recv, count, type, static_cast<nearlightRedOp_t>(op), stream);
  }
  void all_reduce(const void* send, void* recv, std::size_t count, DataType type, const Operator& op,
                  Stream stream = nullptr) {
    reduce_all(send, recv, count, type, op.handle(), stream);
  }

  // recv[r * send_count + i] = send[i] of rank r; see nearlightAllGather.
  void all_gather(const void* send, void* recv, std::size_t send_count, DataType type,
                  Stream stream = nullptr) {
    detail::check(
        nearlightAllGather(send, recv, send_count, static_cast<nearlightDataType_t>(type), comm_, stream));
  }
  // recv[i] = op over all ranks of send[rank * recv_count + i]; see nearlightReduceScatter.
  void reduce_scatter(const void* send, void* recv, std::size_t recv_count, DataType type, ReduceOp op,
                      Stream stream = nullptr) {
    detail::check(nearlightReduceScatter(send, recv, recv_count, static_cast<nearlightDataType_t>(type),
                                         static_cast<nearlightRedOp_t>(op), comm_, stream));
  }
  void reduce_scatter(const void* send, void* recv, std::size_t recv_count, DataType type, const Operator& op,
                      Stream stream = nullptr) {
    detail::check(nearlightReduceScatter(send, recv, recv_count, static_cast<nearlightDataType_t>(type),
                                         op.handle(), comm_, stream));
  }
  // recv[i] = send[i] of the root; see nearlightBroadcast.
  void broadcast(const void* send, void* recv, std::size_t count, DataType type, int root,
                 Stream stream = nullptr) {
    detail::check(
        nearlightBroadcast(send, recv, count, static_cast<nearlightDataType_t>(type), root, comm_, stream));
  }
  // recv[i] on the root = op over all ranks of send[i]; see nearlightReduce.
  void reduce(const void* send, void* recv, std::size_t count, DataType type, ReduceOp op, int root,
              Stream stream = nullptr) {
    detail::check(nearlightReduce(send, recv, count, static_cast<nearlightDataType_t>(type),
                                  static_cast<nearlightRedOp_t>(op), root, comm_, stream));
  }
  void reduce(const void* send, void* recv, std::size_t count, DataType type, const Operator& op, int root,
              Stream stream = nullptr) {
    detail::check(nearlightReduce(send, recv, count, static_cast<nearlightDataType_t>(type), op.handle(),
                                  root, comm_, stream));
  }
  // recv[r * count + i] = send[rank * count + i] of rank r; see nearlightAllToAll.
  void all_to_all(const void* send, void* recv, std::size_t count, DataType type, Stream stream = nullptr) {
    detail::check(
        nearlightAllToAll(send, recv, count, static_cast<nearlightDataType_t>(type), comm_, stream));
  }

  // The same with parts of different sizes, arrays of one entry a rank; see nearlightAllGatherV,
  // nearlightReduceScatterV and nearlightAllToAllV.
  void all_gather_v(const void* send, void* recv, const std::size_t* recv_counts,
                    const std::size_t* recv_places, DataType type, Stream stream = nullptr) {
    detail::check(nearlightAllGatherV(send, recv, recv_counts, recv_places,
                                      static_cast<nearlightDataType_t>(type), comm_, stream));
  }
  void reduce_scatter_v(const void* send, void* recv, const std::size_t* recv_counts, DataType type,
                        ReduceOp op, Stream stream = nullptr) {
    detail::check(nearlightReduceScatterV(send, recv, recv_counts, static_cast<nearlightDataType_t>(type),
                                          static_cast<nearlightRedOp_t>(op), comm_, stream));
  }
  void reduce_scatter_v(const void* send, void* recv, const std::size_t* recv_counts, DataType type,
                        const Operator& op, Stream stream = nullptr) {
    detail::check(nearlightReduceScatterV(send, recv, recv_counts, static_cast<nearlightDataType_t>(type),
                                          op.handle(), comm_, stream));
  }
  void all_to_all_v(const void* send, const std::size_t* send_counts, const std::size_t* send_places,
                    void* recv, const std::size_t* recv_counts, const std::size_t* recv_places, DataType type,
                    Stream stream = nullptr) {
    detail::check(nearlightAllToAllV(send, send_counts, send_places, recv, recv_counts, recv_places,
                                     static_cast<nearlightDataType_t>(type), comm_, stream));
  }

  // An AllReduce of rows with what follows it; see nearlightRmsNorm_t, nearlightAllReduceRmsNorm and
  // nearlightAllReduceBias.
  void all_reduce_rms_norm(const RmsNorm& norm, Stream stream = nullptr) {
    detail::check(nearlightAllReduceRmsNorm(&norm, comm_, stream));
  }
  void all_reduce_bias(const void* input, const void* bias, void* out, std::size_t tokens, std::size_t hidden,
                       DataType type, Stream stream = nullptr) {
    detail::check(nearlightAllReduceBias(input, bias, out, tokens, hidden,
                                         static_cast<nearlightDataType_t>(type), comm_, stream));
  }

  // out = the sum over the ranks of input * weight^T; see nearlightGemvAllReduce.
  void gemv_all_reduce(const void* input, const void* weight, void* out, std::size_t tokens,
                       std::size_t in_size, std::size_t out_size, DataType type, Stream stream = nullptr) {
    detail::check(nearlightGemvAllReduce(input, weight, out, tokens, in_size, out_size,
                                         static_cast<nearlightDataType_t>(type), comm_, stream));
  }

  // out = all ranks' input, side by side, * weight^T; see nearlightAllGatherGemv.
  void all_gather_gemv(const void* input, const void* weight, void* out, std::size_t tokens,
                       std::size_t in_size, std::size_t out_size, DataType type, Stream stream = nullptr) {
    detail::check(nearlightAllGatherGemv(input, weight, out, tokens, in_size, out_size,
                                         static_cast<nearlightDataType_t>(type), comm_, stream));
  }

  // To, or from, one other rank; see nearlightSend and nearlightRecv. together() makes several at once.
  void send(const void* send, std::size_t count, DataType type, int peer, Stream stream = nullptr) {
    detail::check(nearlightSend(send, count, static_cast<nearlightDataType_t>(type), peer, comm_, stream));
  }
  void recv(void* recv, std::size_t count, DataType type, int peer, Stream stream = nullptr) {
    detail::check(nearlightRecv(recv, count, static_cast<nearlightDataType_t>(type), peer, comm_, stream));
  }

  // No rank goes through before all have come; see nearlightBarrier.
  void barrier(Stream stream = nullptr) { detail::check(nearlightBarrier(comm_, stream)); }

  // The operator "multiply this rank's input by *factor, then sum" for elements of `type`. `factor` points to
  // one of them, on the host, and is read at once.
  Operator premul_sum(DataType type, const void* factor) const {
    nearlightRedOp_t op = nearlightRedOpMin_;
    detail::check(nearlightRedOpCreatePreMulSum(&op, factor, static_cast<nearlightDataType_t>(type),
                                                nearlightScalarHostImmediate, comm_));
    return Operator(op, comm_);
  }

  // What a collective of `count` elements would run, and why.
  Route explain(Collective collective, std::size_t count, DataType type, ReduceOp op) const {
    return route_of(collective, count, type, static_cast<nearlightRedOp_t>(op));
  }
  Route explain(Collective collective, std::size_t count, DataType type, const Operator& op) const {
    return route_of(collective, count, type, op.handle());
  }
  // The same of a fused one on so many rows; see nearlightExplainFused.
  Route explain_fused(Collective collective, std::size_t tokens, std::size_t hidden, DataType type) const {
    nearlightRoute_t route = NEARLIGHT_ROUTE_INITIALIZER;
    detail::check(nearlightExplainFused(comm_, static_cast<nearlightCollective_t>(collective), tokens, hidden,
                                        static_cast<nearlightDataType_t>(type), &route));
    return {route.algorithm, route.protocol, route.reason, route.grid, route.threads};
  }
  // The same of a product with these sizes; see nearlightExplainGemv.
  Route explain_gemv(Collective collective, std::size_t tokens, std::size_t in_size, std::size_t out_size,
                     DataType type) const {
    nearlightRoute_t route = NEARLIGHT_ROUTE_INITIALIZER;
    detail::check(nearlightExplainGemv(comm_, static_cast<nearlightCollective_t>(collective), tokens, in_size,
                                       out_size, static_cast<nearlightDataType_t>(type), &route));
    return {route.algorithm, route.protocol, route.reason, route.grid, route.threads};
  }

 private:
  void reduce_all(const void* send, void* recv, std::size_t count, DataType type, nearlightRedOp_t op,
                  Stream stream) {
    detail::check(
        nearlightAllReduce(send, recv, count, static_cast<nearlightDataType_t>(type), op, comm_, stream));
  }
  Route route_of(Collective collective, std::size_t count, DataType type, nearlightRedOp_t op) const {
    nearlightRoute_t route = NEARLIGHT_ROUTE_INITIALIZER;
    detail::check(nearlightExplain(comm_, static_cast<nearlightCollective_t>(collective), count,
                                   static_cast<nearlightDataType_t>(type), op, &route));
    return {route.algorithm, route.protocol, route.reason, route.grid, route.threads};
  }

  // Before anything is made: does the library fit this header?
  static nearlightConfig_t checked(const Config& config) {
    detail::check(NEARLIGHT_CHECK_VERSION());
    return config.to_c();
  }
  template <class Create>
  static std::vector<Communicator> group(std::size_t nranks, const Create& create) {
    std::vector<nearlightComm_t> comms(nranks + 1, nullptr);
    std::vector<Communicator> all;
    all.reserve(nranks);  // nothing after the creation may throw
    detail::check(create(comms.data()));
    for (std::size_t rank = 0; rank < nranks; ++rank) all.emplace_back(comms[rank]);
    return all;
  }

  nearlightComm_t comm_ = nullptr;
};

}  // namespace v0
// The sends and receives that `calls()` makes, all at once; see nearlightGroupStart. Where it throws, none of
// them starts.
template <class Calls>
void together(Calls&& calls) {
  detail::check(nearlightGroupStart());
  try {
    std::forward<Calls>(calls)();
  } catch (...) {
    static_cast<void>(nearlightGroupDrop());
    throw;
  }
  detail::check(nearlightGroupEnd());
}

}  // namespace nearlight

#endif  // NEARLIGHT_NEARLIGHT_HPP
