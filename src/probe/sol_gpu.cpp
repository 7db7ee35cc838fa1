// The GPU probe, driven from one host thread: both ends' kernels are started one after the other and run side
// by side.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <utility>

#include "probe/cuda_call.hpp"
#include "probe/gpu_kernels.hpp"
#include "probe/sol.hpp"
#include "probe/spread.hpp"
#include "trace/samples.hpp"

namespace nearlight::probe {

namespace {

using Clock = std::chrono::steady_clock;

// The part of the heap that is used: lines spread over it, and the target of the bandwidth measurement.
constexpr std::size_t kAreaBytes = std::size_t{16} << 20;
// Loops of at least 100 us on the GPUs of today, beside a clock that may tick once a microsecond.
constexpr Laps kLocalLaps{50, 1000};
constexpr Laps kRemoteLaps{20, 150};
constexpr Laps kPingPongLaps{20, 200};
constexpr int kPlaces = 3;           // SMs: first, middle, last
constexpr int kBandwidthRounds = 6;  // the first is warm-up
constexpr int kBandwidthKernels = 10;
constexpr int kChain = 200;
constexpr int kChainRounds = 30;
constexpr int kEagerRounds = 1000;
constexpr int kWarmups = 3;
constexpr int kPinTries = 3;

std::size_t spacing_of(int lines) {
  const std::size_t strides = kAreaBytes / kLineStride / static_cast<std::size_t>(lines);
  // Odd, so that the lines do not all share some address bits.
  return (strides % 2 == 1 || strides == 1 ? strides : strides - 1) * kLineStride;
}

double us_per_lap(std::uint64_t ns, std::uint32_t laps) { return static_cast<double>(ns) * 1e-3 / laps; }

// One rank's end, with all that is created on its device.
class End {
 public:
  End() = default;
  End(End&&) = default;
  // Kernels that were started end by themselves; the heap may be freed only after that.
  ~End() {
    if (stream_.get() != nullptr) (void)cudaStreamSynchronize(stream_.get());
  }

  static Result<End> create(const GpuEnd& end) {
    NL_PROBE_CUDA(cudaSetDevice(end.device));
    End made;
    made.device_ = end.device;
    NL_PROBE_CUDA(cudaDeviceGetAttribute(&made.sm_count_, cudaDevAttrMultiProcessorCount, end.device));
    NL_PROBE_CUDA(gpu::load_kernels());
    cudaStream_t stream = nullptr;
    NL_PROBE_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    made.stream_ = Stream(stream, end.device);
    void* notes = nullptr;
    NL_PROBE_CUDA(cudaMalloc(&notes, sizeof(gpu::Notes)));
    made.notes_ = DeviceMemory(notes, end.device);
    for (Event* event : {&made.begin_, &made.end_}) {
      cudaEvent_t created = nullptr;
      NL_PROBE_CUDA(cudaEventCreate(&created));
      *event = Event(created, end.device);
    }
    NL_TRY(made.find_sms());
    return made;
  }

  int device() const { return device_; }
  int sm_count() const { return sm_count_; }
  int ctas() const { return 2 * sm_count_; }
  cudaStream_t stream() const { return stream_.get(); }
  gpu::Notes* notes() const { return static_cast<gpu::Notes*>(notes_.get()); }
  // First, middle or last of the SMs that CTAs of this process get.
  int sm(int place) const { return sms_[place == 0 ? 0 : place == 1 ? sms_.size() / 2 : sms_.size() - 1]; }
  std::string name(int place) const {
    return "GPU " + std::to_string(device_) + " SM " + std::to_string(sm(place));
  }

  Status select() const { return cuda_status("cudaSetDevice", cudaSetDevice(device_)); }
  Status wait() const { return cuda_status("cudaStreamSynchronize", cudaStreamSynchronize(stream_.get())); }
  Status clear(void* what, std::size_t bytes) const {
    NL_TRY(select());
    NL_PROBE_CUDA(cudaMemsetAsync(what, 0, bytes, stream_.get()));
    return wait();
  }
  Status clear_notes() const { return clear(notes(), sizeof(gpu::Notes)); }
  Result<gpu::Notes> read_notes() const {
    gpu::Notes read{};
    NL_TRY(select());
    NL_PROBE_CUDA(cudaMemcpyAsync(&read, notes(), sizeof read, cudaMemcpyDeviceToHost, stream_.get()));
    NL_TRY(wait());
    return read;
  }

  Status record(bool begin) const {
    return cuda_status("cudaEventRecord", cudaEventRecord(begin ? begin_.get() : end_.get(), stream_.get()));
  }
  Result<double> between_records_us() const {
    float ms = 0;
    NL_PROBE_CUDA(cudaEventElapsedTime(&ms, begin_.get(), end_.get()));
    return static_cast<double>(ms) * 1e3;
  }

 private:
  Status find_sms() {
    NL_TRY(clear_notes());
    NL_PROBE_CUDA(gpu::start_find_sms(notes(), 4 * sm_count_, stream_.get()));
    NL_TRY(wait());
    NL_TRY_ASSIGN(const gpu::Notes found, read_notes());
    for (int sm = 0; sm < gpu::kMaxSms; ++sm) {
      if (found.sm_seen[sm] != 0) sms_.push_back(sm);
    }
    if (sms_.empty())
      return failure(Code::internal_error, "no kernel of the probe ran on device %d", device_);
    return {};
  }

  int device_ = 0;
  int sm_count_ = 0;
  std::vector<int> sms_;
  Stream stream_;
  DeviceMemory notes_;
  Event begin_, end_;
};

class Probe {
 public:
  static Result<SolReport> run(const GpuProbeTarget& target) {
    const Clock::time_point start = Clock::now();
    DeviceKeeper keeper;
    Probe probe(target);
    for (const GpuEnd& end : target.ends) {
      Result<End> made = End::create(end);
      NL_TRY(made.status().with_context("device " + std::to_string(end.device)));
      probe.ends_.push_back(std::move(*made));
    }
    Result<SolReport> report = probe.measure();
    // Zero again, whatever happened; all kernels have ended or will by themselves, before the clearing.
    const Status cleared = probe.clear_areas();
    NL_TRY(report.status());
    NL_TRY(cleared);
    report->took_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    return report;
  }

 private:
  explicit Probe(const GpuProbeTarget& target)
      : target_(target),
        one_device_(target.ends[0].device == target.ends[1].device),
        spacing_(spacing_of(target.lines)) {
    ends_.reserve(2);
  }

  // The used area of `owner`'s part, as `viewer` addresses it.
  char* area(int viewer, int owner) const {
    const GpuEnd& end = target_.ends[viewer];
    return end.base + static_cast<std::size_t>(target_.ends[owner].rank) * end.stride + target_.offset;
  }
  gpu::Lines lines(int viewer, int owner) const { return {area(viewer, owner), spacing_, target_.lines}; }

  Status clear_areas() const {
    for (int end = 0; end < 2; ++end)
      NL_TRY(ends_[static_cast<std::size_t>(end)].clear(area(end, end), kAreaBytes));
    return {};
  }

  Result<SolReport> measure() {
    SolReport report;
    report.backend = one_device_ ? "gpu_single" : "gpu";
    report.lines = target_.lines;
    NL_TRY(clear_areas());

    // Loads first: they need lines that are zero.
    std::vector<Direction> directions(2 * kPlaces);
    for (int place = 0; place < kPlaces; ++place) {
      for (const bool remote : {false, true}) {
        std::array<std::vector<double>, 2> times_us;
        NL_TRY(chase_both(place, remote, times_us));
        for (int end = 0; end < 2; ++end) {
          Direction& direction = directions[index_of(end, place)];
          (remote ? direction.remote_load_us : direction.l2rtt_us) =
              std::move(times_us[static_cast<std::size_t>(end)]);
        }
      }
    }
    std::uint32_t base = 0;
    for (int place = 0; place < kPlaces; ++place) {
      for (int first = 0; first < 2; ++first) {
        Direction& direction = directions[index_of(first, place)];
        direction.from = end_of(first).name(place);
        direction.to = end_of(1 - first).name(answering_place(place));
        NL_TRY(ping_pong_both(place, first, base, Arrival::relaxed, direction.one_way_us));
        base += kPingPongLaps.warmup + kPingPongLaps.timed;
      }
    }
    for (const Arrival arrival : {Arrival::relaxed, Arrival::acquire, Arrival::fence}) {
      std::vector<double> one_way_us;
      NL_TRY(ping_pong_both(0, 0, base, arrival, one_way_us));
      base += kPingPongLaps.warmup + kPingPongLaps.timed;
      (arrival == Arrival::relaxed   ? report.arrival_relaxed_us
       : arrival == Arrival::acquire ? report.arrival_acquire_us
                                     : report.arrival_fence_us) = median_of(one_way_us);
    }
    fill_report(report, directions);
    NL_TRY_ASSIGN(report.store_gbs, store_bandwidth());
    NL_TRY_ASSIGN(report.launch_floor_us, chain_floor(gpu::start_empty));
    NL_TRY_ASSIGN(report.launch_floor_pdl_us, chain_floor(gpu::start_empty_dependent));
    NL_TRY_ASSIGN(report.eager_floor_us, eager_floor());
    return report;
  }

  static std::size_t index_of(int end, int place) { return static_cast<std::size_t>(2 * place + end); }
  const End& end_of(int end) const { return ends_[static_cast<std::size_t>(end)]; }
  // On one device the other side works on another SM.
  int answering_place(int place) const { return one_device_ ? (place + 1) % kPlaces : place; }

  // Runs a pinned kernel on the chosen ends, again when no CTA got onto the wanted SM; the times, line by
  // line.
  Status run_pinned(const std::array<int, 2>& places, const std::function<cudaError_t(int end)>& start,
                    std::array<gpu::Notes, 2>& notes) {
    for (int tries = 1;; ++tries) {
      for (const End& end : ends_) NL_TRY(end.clear_notes());
      Status started;
      for (int end = 0; end < 2 && started.ok(); ++end) {
        started = end_of(end).select();
        if (started.ok()) started = cuda_status("launching a kernel of the probe", start(end));
      }
      for (int end = 0; end < 2; ++end) {
        NL_TRY(end_of(end).wait());
        NL_TRY_ASSIGN(notes[static_cast<std::size_t>(end)], end_of(end).read_notes());
      }
      NL_TRY(started);
      int idle = -1;
      for (int end = 0; end < 2; ++end) {
        if (notes[static_cast<std::size_t>(end)].outcome == gpu::Outcome::not_run) idle = end;
      }
      if (idle >= 0 && tries < kPinTries) {
        NL_TRY(clear_areas());
        continue;
      }
      if (idle >= 0) {
        return failure(Code::internal_error, "no CTA of the probe got onto %s",
                       end_of(idle).name(places[static_cast<std::size_t>(idle)]).c_str());
      }
      for (int end = 0; end < 2; ++end) {
        if (notes[static_cast<std::size_t>(end)].outcome == gpu::Outcome::timeout) {
          return failure(Code::timeout, "%s did not see a store of %s within %lld ms",
                         end_of(end).name(places[static_cast<std::size_t>(end)]).c_str(),
                         end_of(1 - end).name(places[static_cast<std::size_t>(1 - end)]).c_str(),
                         static_cast<long long>(target_.wait_limit.count()));
        }
      }
      return {};
    }
  }

  std::vector<double> times_of(const gpu::Notes& notes, std::uint32_t laps) const {
    std::vector<double> times_us;
    for (int line = 0; line < target_.lines; ++line) times_us.push_back(us_per_lap(notes.ns[line], laps));
    return times_us;
  }

  Status chase_both(int place, bool remote, std::array<std::vector<double>, 2>& times_us) {
    const Laps laps = remote ? kRemoteLaps : kLocalLaps;
    const auto start = [&](int end) {
      const End& here = end_of(end);
      return gpu::start_chase(here.notes(), here.ctas(), here.sm(place), lines(end, remote ? 1 - end : end),
                              laps, here.stream());
    };
    if (!one_device_) {
      NL_TRY(run_pinned({place, place}, start, notes_));
      for (std::size_t end = 0; end < 2; ++end) times_us[end] = times_of(notes_[end], laps.timed);
      return {};
    }
    // Both ends would work on the same SM: one after the other, the idle one elsewhere.
    for (int alone = 0; alone < 2; ++alone) {
      const auto start_apart = [&](int end) {
        const End& here = end_of(end);
        const int where = end == alone ? place : answering_place(place);
        const gpu::Lines probed = lines(end, remote ? 1 - end : end);
        return gpu::start_chase(here.notes(), here.ctas(), here.sm(where),
                                end == alone ? probed : gpu::Lines{probed.first, probed.spacing, 0}, laps,
                                here.stream());
      };
      NL_TRY(run_pinned({place, place}, start_apart, notes_));
      times_us[static_cast<std::size_t>(alone)] =
          times_of(notes_[static_cast<std::size_t>(alone)], laps.timed);
    }
    return {};
  }

  // Half a round trip, by the clock of the side that stores first. (One way alone would need clocks that
  // agree.)
  Status ping_pong_both(int place, int first, std::uint32_t base, Arrival arrival,
                        std::vector<double>& one_way_us) {
    std::array<int, 2> places{};
    places[static_cast<std::size_t>(first)] = place;
    places[static_cast<std::size_t>(1 - first)] = answering_place(place);
    const auto start = [&](int end) {
      const End& here = end_of(end);
      gpu::PingPongArgs args{};
      args.mine = lines(end, end);
      args.theirs = area(end, 1 - end);
      args.first = end == first;
      args.base = base;
      args.laps = kPingPongLaps;
      args.arrival = arrival;
      args.timeout_ns = static_cast<std::uint64_t>(target_.wait_limit.count()) * 1'000'000u;
      return gpu::start_ping_pong(here.notes(), here.ctas(), here.sm(places[static_cast<std::size_t>(end)]),
                                  args, here.stream());
    };
    NL_TRY(run_pinned(places, start, notes_));
    one_way_us = times_of(notes_[static_cast<std::size_t>(first)], 2 * kPingPongLaps.timed);
    return {};
  }

  // Both ends store into the other's part at once; the median over rounds and directions.
  Result<double> store_bandwidth() {
    std::vector<double> gbs;
    for (int round = 0; round < kBandwidthRounds; ++round) {
      for (const End& end : ends_) {
        NL_TRY(end.select());
        NL_TRY(end.record(true));
      }
      for (int kernel = 0; kernel < kBandwidthKernels;
           ++kernel) {  // alternating, so that they start close together
        for (int end = 0; end < 2; ++end) {
          NL_TRY(end_of(end).select());
          NL_PROBE_CUDA(gpu::start_stores(area(end, 1 - end), kAreaBytes, end_of(end).sm_count(),
                                          end_of(end).stream()));
        }
      }
      for (const End& end : ends_) {
        NL_TRY(end.select());
        NL_TRY(end.record(false));
      }
      for (const End& end : ends_) {
        NL_TRY(end.wait());
        NL_TRY_ASSIGN(const double us, end.between_records_us());
        if (round > 0) gbs.push_back(static_cast<double>(kBandwidthKernels * kAreaBytes) / us * 1e-3);
      }
    }
    return median_of(gbs);
  }

  // Microseconds a kernel in a captured chain.
  Result<double> chain_floor(cudaError_t (*start)(cudaStream_t)) {
    const End& end = ends_[0];
    NL_TRY(end.select());
    cudaGraph_t captured = nullptr;
    NL_PROBE_CUDA(cudaStreamBeginCapture(end.stream(), cudaStreamCaptureModeThreadLocal));
    cudaError_t started = cudaSuccess;
    for (int kernel = 0; kernel < kChain && started == cudaSuccess; ++kernel) started = start(end.stream());
    const cudaError_t ended =
        cudaStreamEndCapture(end.stream(), &captured);  // also after a failure: ends the capture
    const Graph graph(captured, end.device());
    NL_TRY(cuda_status("launching an empty kernel", started));
    NL_TRY(cuda_status("cudaStreamEndCapture", ended));
    cudaGraphExec_t instantiated = nullptr;
    NL_PROBE_CUDA(cudaGraphInstantiate(&instantiated, graph.get(), 0));
    const GraphExec exec(instantiated, end.device());
    std::vector<double> times_us;
    for (int round = 0; round < kWarmups + kChainRounds; ++round) {
      NL_TRY(end.record(true));
      NL_PROBE_CUDA(cudaGraphLaunch(exec.get(), end.stream()));
      NL_TRY(end.record(false));
      NL_TRY(end.wait());
      NL_TRY_ASSIGN(const double us, end.between_records_us());
      if (round >= kWarmups) times_us.push_back(us / kChain);
    }
    return median_of(times_us);
  }

  Result<double> eager_floor() {
    const End& end = ends_[0];
    NL_TRY(end.select());
    std::vector<double> times_us;
    for (int round = 0; round < kWarmups + kEagerRounds; ++round) {
      const Clock::time_point begin = Clock::now();
      NL_PROBE_CUDA(gpu::start_empty(end.stream()));
      NL_TRY(end.wait());
      if (round >= kWarmups)
        times_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    }
    return median_of(times_us);
  }

  const GpuProbeTarget& target_;
  const bool one_device_;
  const std::size_t spacing_;
  std::vector<End> ends_;
  std::array<gpu::Notes, 2> notes_{};
};

Status check(const GpuProbeTarget& target) {
  if (target.lines < 1 || target.lines > kMaxLines) {
    return failure(Code::invalid_argument, "lines: %d, not from 1 to %d", target.lines, kMaxLines);
  }
  if (target.wait_limit.count() < 1) return failure(Code::invalid_argument, "wait_limit: below 1 ms");
  if (target.offset % kLineStride != 0) {
    return failure(Code::invalid_argument, "offset: %zu is no multiple of %zu", target.offset, kLineStride);
  }
  if (target.bytes < kAreaBytes) {
    return failure(Code::invalid_argument, "bytes: %zu, but the probe needs %zu", target.bytes, kAreaBytes);
  }
  for (const GpuEnd& end : target.ends) {
    if (end.base == nullptr) return failure(Code::invalid_argument, "ends: base is null");
    if (reinterpret_cast<std::uintptr_t>(end.base) % kLineStride != 0 || end.stride % kLineStride != 0) {
      return failure(Code::invalid_argument, "ends: base or stride is not aligned to %zu", kLineStride);
    }
    if (end.rank < 0) return failure(Code::invalid_argument, "ends: rank %d", end.rank);
    if (end.stride < target.offset + target.bytes) {
      return failure(Code::invalid_argument, "offset, bytes: the range ends outside of a part of %zu bytes",
                     end.stride);
    }
  }
  if (target.ends[0].rank == target.ends[1].rank) {
    return failure(Code::invalid_argument, "ends: both are rank %d", target.ends[0].rank);
  }
  return {};
}

}  // namespace

std::size_t gpu_probe_bytes(int) { return kAreaBytes; }

Result<SolReport> measure_gpu(const GpuProbeTarget& target) {
  NL_TRY(check(target));
  return Probe::run(target);
}

}  // namespace nearlight::probe
