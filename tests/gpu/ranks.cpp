#include "tests/gpu/ranks.hpp"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "bootstrap/in_process.hpp"
#include "probe/concurrent_streams.hpp"
#include "runtime/create.hpp"
#if NEARLIGHT_TEST_NCCL
#include "memory/nccl_api.hpp"
#endif
#include "tests/support/gpu_support.hpp"

namespace nearlight::test {

std::string name_of(const Setup& setup) {
  return std::string(setup.memory == Memory::cuda_vmm ? "cuda_vmm" : "nccl_window") + "_" +
         std::to_string(setup.ranks) + "ranks";
}

runtime::Options test_options() {
  runtime::Options options;
  options.timeout = patient(std::chrono::seconds(15));
  options.create_timeout = patient(std::chrono::seconds(30));
  options.calibrate = false;    // takes its time, and has a test of its own
  options.early_launch = true;  // the kernels of tests leave room, and more is under way at once
  options.lines = 64;           // so that LL128 may be asked for where GPUs can have it
  options.test_lines = static_cast<std::uint64_t>(scaled(100'000, 10'000));  // lines_gpu_test has more
  return options;
}

Work Rank::work(const Pattern& pattern, std::uint64_t count, bool in_place, std::size_t send_offset,
                std::size_t recv_offset, std::uint32_t case_id) const {
  Work work;
  work.pattern = pattern;
  work.rank = static_cast<std::uint32_t>(rank);
  work.nranks = static_cast<std::uint32_t>(nranks);
  work.count = count;
  work.send = send + kGuardBytes + send_offset;
  work.recv = in_place ? work.send : recv + kGuardBytes + recv_offset;
  work.case_id = case_id;
  return work;
}

Status Rank::all_reduce(const Work& work, const runtime::CallOptions& options, cudaStream_t on) const {
  const DataType type = work.pattern.type;
  const std::uint64_t factor = factor_bits(type, work.rank);
  const Reduction reduction = work.pattern.op == ReduceOp::premul_sum ? Reduction::premul_sum(type, &factor)
                                                                      : Reduction(work.pattern.op);
  return comm->all_reduce(work.send, work.recv, work.count, type, reduction, on != nullptr ? on : stream,
                          options);
}

Status Rank::prepare_reduce_check(const Work& work, const runtime::CallOptions& options) const {
  NL_TRY(ok_or("prepare", prepare(work, stream)));
  NL_TRY(all_reduce(work, options));
  return ok_or("check", check(work, report, stream));
}

Status ok_or(const char* what, cudaError_t error) {
  if (error == cudaSuccess) return {};
  return failure(Code::cuda_error, "%s: %s", what, cudaGetErrorString(error));
}

Graph::Graph(const Rank& rank, const std::function<Status()>& body, cudaStreamCaptureMode mode)
    : stream_(rank.stream) {
  EXPECT_CUDA(cudaStreamBeginCapture(stream_, mode));
  EXPECT_OK(body());
  cudaGraph_t graph = nullptr;
  EXPECT_CUDA(cudaStreamEndCapture(stream_, &graph));
  if (graph == nullptr) return;
  EXPECT_CUDA(cudaGraphInstantiate(&exec_, graph, 0));
  EXPECT_CUDA(cudaGraphDestroy(graph));
  if (exec_ == nullptr) return;
  // What launching needs is put in place now: later it might wait for kernels that wait for this launch.
  EXPECT_CUDA(cudaGraphUpload(exec_, stream_));
  EXPECT_CUDA(cudaStreamSynchronize(stream_));
}

void Graph::destroy() {
  if (exec_ != nullptr) {
    EXPECT_CUDA(cudaGraphExecDestroy(exec_));
  }
  exec_ = nullptr;
}

Report Rank::wait_and_read() const {
  Report seen{};
  EXPECT_CUDA(cudaSetDevice(device));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_CUDA(cudaMemcpyAsync(&seen, report, sizeof seen, cudaMemcpyDeviceToHost, stream));
  EXPECT_CUDA(cudaMemsetAsync(report, 0, sizeof seen, stream));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  return seen;
}

#if NEARLIGHT_TEST_NCCL
Result<std::vector<ncclComm*>> nccl_communicators(int nranks) {
  static std::map<int, std::vector<ncclComm*>> made;
  auto& known = made[nranks];
  if (!known.empty()) return known;
  NL_TRY_ASSIGN(const memory::Nccl* const nccl, memory::Nccl::find());
  NL_TRY_ASSIGN(const auto id, nccl->get_unique_id());
  std::vector<ncclComm*> all(static_cast<std::size_t>(nranks));
  std::vector<Status> outcomes(all.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      outcomes[at] = ok_or("cudaSetDevice", cudaSetDevice(rank));
      if (!outcomes[at].ok()) return;
      auto comm = nccl->comm_init_rank(nranks, id, rank);
      outcomes[at] = comm.status();
      if (comm.ok()) all[at] = *comm;
    });
  }
  for (auto& thread : threads) thread.join();
  for (const Status& outcome : outcomes) NL_TRY(outcome);
  known = all;
  return known;
}
#endif

namespace {

using Created = Result<std::unique_ptr<runtime::Communicator>>;

Created create_one(const Setup& setup, std::unique_ptr<Exchange> exchange,
                   [[maybe_unused]] const std::vector<ncclComm*>& nccl, int rank,
                   const runtime::Options& options) {
#if NEARLIGHT_TEST_NCCL
  if (setup.memory == Memory::nccl_window) {
    NL_TRY(ok_or("cudaSetDevice", cudaSetDevice(rank % setup.gpus)));
    return runtime::create_cuda_nccl(nccl[static_cast<std::size_t>(rank)], options);
  }
#endif
  if (setup.memory != Memory::cuda_vmm) return failure(Code::unsupported, "built without NCCL");
  return runtime::create_cuda_local(std::move(exchange), rank % setup.gpus, options);
}

}  // namespace

std::vector<Result<std::unique_ptr<runtime::Communicator>>> create_communicators(
    const Setup& setup, const runtime::Options& options,
    const std::function<fault_points::Hook(int rank)>& hook_of) {
  std::vector<Created> created;
  for (int rank = 0; rank < setup.ranks; ++rank)
    created.emplace_back(failure(Code::internal_error, "not created"));
  std::vector<ncclComm*> nccl;
#if NEARLIGHT_TEST_NCCL
  if (setup.memory == Memory::nccl_window) {
    auto comms = nccl_communicators(setup.ranks);
    if (!comms.ok()) {
      for (Created& one : created) one = comms.status();
      return created;
    }
    nccl = *comms;
  }
#endif
  std::vector<std::thread> threads;
  auto exchanges = bootstrap::make_in_process_group(setup.ranks);
  for (int rank = 0; rank < setup.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      std::optional<fault_points::Planted> planted;
      if (hook_of) planted.emplace(hook_of(rank));
      created[at] = create_one(setup, std::move(exchanges[at]), nccl, rank, options);
    });
  }
  for (auto& thread : threads) thread.join();
  return created;
}

Group::Group(const Setup& setup, const runtime::Options& options, std::size_t buffer_bytes, int streams_each)
    : ranks_(static_cast<std::size_t>(setup.ranks)) {
  bool fine = true;
  for (int device = 0; device < setup.gpus && device < setup.ranks; ++device) {
    const int here = (setup.ranks - device + setup.gpus - 1) / setup.gpus;
    auto streams =
        probe::concurrent_streams(device, here * streams_each, patient(std::chrono::milliseconds(5)));
    EXPECT_TRUE(streams.ok()) << streams.status().to_string();
    if (!streams.ok()) return;
    for (int i = 0; i < here * streams_each; ++i) {
      Rank& rank = (*this)[device + i % here * setup.gpus];
      rank.streams.push_back(std::move((*streams)[static_cast<std::size_t>(i)]));
      rank.stream = rank.streams.front().get();
    }
  }
  const auto need = [&](cudaError_t error) {
    if (error != cudaSuccess) fine = false;
    EXPECT_CUDA(error);
  };
  for (int rank = 0; rank < setup.ranks; ++rank) {
    Rank& mine = (*this)[rank];
    mine.rank = rank;
    mine.nranks = setup.ranks;
    mine.device = rank % setup.gpus;
    need(cudaSetDevice(mine.device));
    if (!fine) return;
    need(preload_device_work());
    need(cudaMalloc(reinterpret_cast<void**>(&mine.send), buffer_bytes));
    need(cudaMalloc(reinterpret_cast<void**>(&mine.recv), buffer_bytes));
    need(cudaMalloc(reinterpret_cast<void**>(&mine.report), sizeof(Report)));
    need(cudaMalloc(reinterpret_cast<void**>(&mine.counter), sizeof(std::uint64_t)));
    if (!fine) return;
    need(cudaMemset(mine.send, 0, buffer_bytes));
    need(cudaMemset(mine.recv, 0, buffer_bytes));
    need(cudaMemset(mine.report, 0, sizeof(Report)));
    need(cudaMemset(mine.counter, 0, sizeof(std::uint64_t)));
    need(cudaDeviceSynchronize());
  }
  auto created = create_communicators(setup, options);
  for (int rank = 0; rank < setup.ranks; ++rank) {
    auto& one = created[static_cast<std::size_t>(rank)];
    EXPECT_TRUE(one.ok()) << "rank " << rank << ": " << one.status().to_string();
    if (!one.ok()) {
      fine = false;
      continue;
    }
    (*this)[rank].comm = std::move(one).value();
    EXPECT_STREQ((*this)[rank].comm->memory(), setup.memory == Memory::cuda_vmm ? "cuda_vmm" : "nccl_window");
    EXPECT_EQ((*this)[rank].comm->rank(), rank);
    EXPECT_EQ((*this)[rank].comm->nranks(), setup.ranks);
  }
  ok_ = fine;
  if (!fine) return;
  const probe::LineReport lines = ranks_[0].comm->lines();
  for (const route::Protocol protocol : algorithm::kProtocols) {
    if (protocol != route::Protocol::ll128 ||
        (lines.path == probe::PathType::nvl && lines.stores == probe::LineVerdict::whole))
      protocols_.push_back(protocol);
  }
}

Group::~Group() {
  for (Rank& rank : ranks_) {
    if (cudaSetDevice(rank.device) != cudaSuccess) continue;
    if (rank.stream == nullptr) continue;
    EXPECT_CUDA(cudaStreamSynchronize(rank.stream));
  }
  for (Rank& rank : ranks_) rank.comm.reset();
  for (Rank& rank : ranks_) {
    if (cudaSetDevice(rank.device) != cudaSuccess) continue;
    EXPECT_CUDA(cudaFree(rank.send));
    EXPECT_CUDA(cudaFree(rank.recv));
    EXPECT_CUDA(cudaFree(rank.report));
    EXPECT_CUDA(cudaFree(rank.counter));
  }
}

void Group::run(const std::function<void(Rank&)>& body) {
  barrier_ = std::make_unique<std::barrier<>>(nranks());
  std::vector<std::thread> threads;
  for (Rank& rank : ranks_) {
    threads.emplace_back([&] {
      EXPECT_CUDA(cudaSetDevice(rank.device));
      body(rank);
      barrier_->arrive_and_drop();
    });
  }
  for (auto& thread : threads) thread.join();
}

void Group::meet() { barrier_->arrive_and_wait(); }

void Group::expect_clean(std::uint64_t checks, const std::function<std::string(std::uint32_t)>& describe) {
  static constexpr const char* kWhat[] = {"nothing", "output", "guard byte", "input",
                                          "output that must stay untouched"};
  for (Rank& rank : ranks_) {
    const Report report = rank.wait_and_read();
    EXPECT_EQ(report.wrong, 0u) << "rank " << rank.rank << " of " << rank.nranks << ", case "
                                << report.case_id << " ("
                                << (describe ? describe(report.case_id) : std::string("no description"))
                                << "): " << kWhat[report.what < std::size(kWhat) ? report.what : 0] << " at "
                                << report.index << std::hex << ", expected 0x" << report.expected
                                << ", got 0x" << report.got;
    EXPECT_EQ(report.checks, checks) << "rank " << rank.rank;
    if (rank.comm != nullptr) EXPECT_OK(rank.comm->status());
  }
}

}  // namespace nearlight::test
