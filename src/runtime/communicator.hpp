// A communicator: one rank's end of a group that runs collectives together.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nearlight/detail/protocol/channel_memory.hpp>
#include "base/exchange.hpp"
#include "base/status.hpp"
#include "base/types.hpp"
#include "route/route.hpp"
#include "runtime/call_log.hpp"
#include "runtime/collective_call.hpp"
#include "runtime/fused_call.hpp"
#include "runtime/gemv_call.hpp"
#include "runtime/instead.hpp"
#include "runtime/messages.hpp"
#include "trace/rank_trace.hpp"

namespace nearlight::runtime {

// CUDA's stream (cudaStream_t, a pointer). CPU communicators, whose calls return when the result is there,
// take none (null): the result could not wait for what a stream still has to do.
using Stream = void*;

// Limits and test hooks of one communicator; equal on all ranks unless said otherwise (checked at creation).
struct Options {
  // How long one wait lasts before the communicator fails. Unset: NEARLIGHT_TIMEOUT_MS, else 600 s. At least
  // 1 ms.
  std::optional<std::chrono::milliseconds> timeout;
  // How long creation may take.
  std::chrono::milliseconds create_timeout{60'000};
  // Check mode: every call looks at its pointers and stream (else only the first that has them) and is
  // compared with the other ranks' (call_check.hpp): before it starts, which waits for them, or, for GPU
  // ranks of one process, by whoever comes second, who then ends the others' waits. GPU: a call on another
  // stream than the one before, which has not ended, is told on stderr. Unset: NEARLIGHT_CHECK, else off.
  std::optional<bool> check;
  // How often a call that timed out is made again, after a reset of all ranks (docs/dev/recovery.md): CPU
  // ranks only, since a call of a GPU rank has returned when it fails; every call then ends with a barrier.
  // Only what can be right is made again: not after a rank has ended or was told to stop, and not where an
  // input was in the place of the output. Unset: NEARLIGHT_RETRIES, which GPU ranks leave aside, else 0. At
  // most 16.
  std::optional<std::uint32_t> retries;
  // Before the first time, twice as long before each next, at most 10 s.
  std::chrono::milliseconds retry_backoff{100};
  // CTA regions, so the largest grid. 0: chosen from the device and the ranks on it.
  std::uint32_t regions = 0;
  // LL slots (8 bytes of payload each) a region, bank and rank. 0: default.
  std::uint32_t slots = 0;
  // Payload bytes of a chunk of the simple protocol, a multiple of 16. 0: default.
  std::uint32_t chunk_bytes = 0;
  // Packets (16 bytes of payload each) of the sentinel protocol a region, bank and rank. 0: default.
  std::uint32_t packets = 0;
  // GPU ranks on GPUs of their own: whether creation measures, within some 40 ms, which regions are the
  // fastest for small messages. Unset: NEARLIGHT_CALIBRATE, else off.
  std::optional<bool> calibrate;
  // The most CTAs that a call takes, at most `regions`, which are no more than that where they are not given.
  // Calls by NCCL, whose CTAs are its own affair, are not handed over then. 0: NEARLIGHT_MAX_CTAS, else as
  // many as there are regions. GPU only: a CPU rank is one thread.
  std::uint32_t max_ctas = 0;
  // GPU: whether the kernel after a call's may become resident while the call still waits for the others
  // (programmatic dependent launch), and not only with its end. Where the one after fills the GPU, nothing
  // else finds room until the wait is over: it must not be waited for by what has found none, like another
  // rank's kernel on the same GPU, or another communicator's call (early_launch.hpp). Unset:
  // NEARLIGHT_EARLY_LAUNCH, else where on every GPU it is the process's first communicator and no other
  // rank's. One rank alone waits for nobody.
  std::optional<bool> early_launch;
  // Lines of LL128 (120 bytes of payload each) a region, bank and rank, and as many that are added to where
  // `deterministic` is false; a multiple of 4. 0: by default, which on GPUs is none where lines would not be
  // chosen.
  std::uint32_t lines = 0;
  // Whether results must be the same from run to run. False: the two-shot that adds may be chosen; all ranks
  // still have the same bits. Unset: NEARLIGHT_DETERMINISTIC, else true.
  std::optional<bool> deterministic;
  // Test hooks: how the test of lines sends, and how many from each neighbour.
  std::uint64_t test_lines = probe::kTestLines;
  probe::LineWay line_way = probe::LineWay::together;
  // Whether calls write down when their steps were. Unset: where NEARLIGHT_TRACE names a folder. True without
  // a folder: nothing is written at the end, which is of use to measure what it costs.
  std::optional<bool> trace;
  // Test hook: the epoch every region starts after (wrap tests).
  std::uint32_t initial_epoch = 0;
  // Test hook: bytes left free in front of the regions, to place the slots elsewhere in the heap.
  std::size_t heap_offset = 0;
};

// Per call; equal on all ranks unless said otherwise.
struct CallOptions {
  // Forces algorithm, protocol and grid; unset parts come from the route. One rank alone has nothing to
  // choose.
  std::optional<route::Algorithm> algorithm;
  std::optional<route::Protocol> protocol;
  std::uint32_t grid = 0;     // CTAs; 0: from the route
  std::uint32_t threads = 0;  // per CTA; 0: from the route
  // GPU, LL: the first slot used in each region, a multiple of 8 (slots differ in speed; see
  // docs/dev/lab.md).
  std::uint32_t first_slot = 0;
  // Fused calls on GPUs: CTAs that share a row, 1, 2, 4 or 8; 0: from the route.
  std::uint32_t spread = 0;
  // Buffers of all_reduce, collective and messages may overlap beyond what is in place, as NCCL has it: no
  // error, but what such memory holds afterwards is not defined. An all-to-all whose input is its output is
  // right by the ranks' own way. Check mode refuses overlaps all the same, of one rank too.
  bool may_overlap = false;
  // Of a communicator that traces: this call does not, and runs the code of one that does not.
  bool untraced = false;
  // The benchmark's code (runtime/instead.hpp), which outlives the call; all_reduce alone, and on GPUs loops
  // inside a kernel alone. Null: the library's own.
  const Instead* instead = nullptr;
  // The test hooks are of the first attempt; what is made again has none.
  // Test hook: hold threads at a point (algorithm::DelayPoint) for `delay_ns`, which may differ per rank; the
  // point may on CPUs only (on GPUs it changes how a message is cut). GPU: f32 sum only, and not the
  // sentinel; CPU: types and operators with algorithm::has_own_code().
  std::uint32_t delay_point = 0;
  std::uint64_t delay_ns = 0;
  // Test hook, one rank's own: what happens to the `faulty_packet`-th thing that this rank sends in the call
  // (algorithm::host::PacketFault; 1: lost, 2: spoilt). CPU only; types and operators with
  // algorithm::has_own_code().
  std::uint32_t packet_fault = 0;
  std::uint64_t faulty_packet = 0;
};

// The first failure, as far as it is known.
struct Fault {
  Status status;  // never ok
  int rank = -1;  // who noticed
  int peer = -1;  // whom it waited for
  std::uint32_t epoch = 0, region = 0, slot = 0, expected = 0, seen = 0;
  std::uint64_t time_ns = 0;  // of the clock of the rank's execution space
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int nranks() const = 0;
  // "host" or "cuda".
  virtual const char* backend() const = 0;
  // The heap's kind: "shm", "cuda_vmm", "nccl_window".
  virtual const char* memory() const = 0;
  // Why it is that one, where another was possible; else "". Lives as long as the communicator.
  virtual const char* memory_reason() const { return ""; }

  // recv[i] = op over ranks of send[i], `count` elements of `type`, bitwise the same on all ranks and (unless
  // Options::deterministic is false) from run to run (handed to NCCL: as NCCL computes it). In place when
  // send == recv; otherwise they must not overlap. Addresses aligned to the element. A pre-multiplied sum
  // takes each rank's own factor (Reduction::premul_sum). What is rounded where and what NaNs, zeros and
  // overflows do: docs/concepts/numerics.md. Any count; with 0 nothing happens (and the pointers may be
  // null). GPU: enqueued on `stream`, may be captured into a CUDA graph, allocates nothing. Operations of one
  // communicator must be ordered: one stream, or streams joined by events. Errors: invalid_argument (names
  // the argument; nothing was written), invalid_usage (check mode: the ranks called different things, nothing
  // was written anywhere), the recorded fault once the communicator has failed.
  virtual Status all_reduce(const void* send, void* recv, std::size_t count, DataType type,
                            const Reduction& op, Stream stream, const CallOptions& options = {}) = 0;

  // A collective that goes by parts, with the arguments and in-place rules of NCCL (nearlight.h has them).
  // Moved elements keep their bits; reduced ones are as all_reduce's, in rank order. Types, counts,
  // alignments, streams and errors: as all_reduce. Of the options: protocol, grid, threads and the test
  // hooks (GPU: delays of moves alone; CPU: those of reductions for f32 alone).
  virtual Status collective(const CollectiveCall& call, Stream stream, const CallOptions& options = {}) = 0;
  // What it would run, and why; where collective() would refuse the options, the same failure. No pointer is
  // looked at.
  virtual Result<route::Route> explain(const CollectiveCall& call, const CallOptions& options = {}) const = 0;

  // Sends and receives of this rank that go together: all of them are under way at once, so that no order of
  // them waits for another one. A message goes from one rank to one other; nobody else has a part in it. A
  // send is over when its buffer may be written again, which may be before the peer has received. A message
  // to oneself needs both of its ends in one group. Counts, alignments, streams and errors: as all_reduce; in
  // check mode the receiver compares what comes with what it expects: Code::invalid_usage, from then on. No
  // call is made again (Options::retries). Of the options: protocol (ll, simple), algorithm nccl, grid (lanes
  // of each message) and, on CPUs, the test hooks.
  virtual Status messages(std::span<const MessageCall> group, Stream stream,
                          const CallOptions& options = {}) = 0;
  // The same for one thread that has messages of several communicators which go together: it begins all of
  // them, and waits then. Where NCCL connects for them its host waits for the other ranks', which may be of
  // this thread. `rest`, where it is set, is to be called once, before any other call of this communicator.
  virtual Status begin_messages(std::span<const MessageCall> group, Stream stream, Rest& rest) {
    rest = {};
    return messages(group, stream);
  }
  // Whose work on one stream is in the order of the calls; -1: none.
  virtual int device() const { return -1; }
  // What one of them would run; no pointer is looked at.
  virtual Result<route::Route> explain_message(const MessageCall& message,
                                               const CallOptions& options = {}) const = 0;

  // An AllReduce of rows with what follows it (runtime/fused_call.hpp), bitwise the same on all ranks and
  // from run to run; numerics: docs/concepts/numerics.md. bf16 and f16; buffers at multiples of 16 bytes,
  // which must not overlap but for `output` in the place of `input` (of the same type), and `residual_out` in
  // that of `residual` or of `input`. With no tokens nothing happens. `residual`, `weight`, `bias` and
  // `scale` must hold the same on all ranks. Always the ranks' own way: nothing is handed over. Streams,
  // graphs and errors: as all_reduce. Of the options: grid, spread, protocol sentinel, and, on CPUs, the test
  // hooks.
  virtual Status fused(const FusedCall& call, Stream stream, const CallOptions& options = {}) = 0;
  // What it would run, and why; no pointer is looked at.
  virtual Result<route::FusedRoute> explain_fused(const FusedCall& call,
                                                  const CallOptions& options = {}) const = 0;

  // A matrix times up to 16 vectors (runtime/gemv_call.hpp): its columns spread over the ranks, and the
  // AllReduce of the products, bitwise the same on all ranks; or its rows spread over them, with the
  // AllGather of the vectors in front. From run to run the same; numerics: docs/concepts/numerics.md. bf16
  // and f16; buffers at multiples of 16 bytes; `output` overlaps nothing. With no tokens nothing happens.
  // `tokens`, `out` and the type must be the same on all ranks, and, where vectors are gathered, `in`. GPU:
  // the kernel may begin to fetch `weight` into L2 before what is in front of it has ended; it reads it
  // afterwards. Always the ranks' own way: nothing is handed over. Streams, graphs and errors: as all_reduce;
  // unsupported: before compute capability 8.0, and more gathered tokens than a CTA has shared memory for. Of
  // the options: grid, protocol sentinel, and, on CPUs, the test hooks.
  virtual Status gemv(const GemvCall& call, Stream stream, const CallOptions& options = {}) = 0;
  // What it would run, and why; no pointer is looked at.
  virtual Result<route::Route> explain_gemv(const GemvCall& call, const CallOptions& options = {}) const = 0;

  // No rank's goes through before all have come to theirs, and what a rank did before it is seen by all after
  // it. GPU: enqueued on `stream`, as all_reduce is; the host does not wait. Errors: the recorded fault once
  // the communicator has failed.
  virtual Status barrier(Stream stream) = 0;

  // Moves all calls from now on to another path, by the name that NEARLIGHT_FORCE_PATH takes, as far as they
  // can take it; "" gives the choice back to the route table. Not checked: all ranks must do so between the
  // same calls (check mode finds those that do not). Captured calls keep their path. "fallback" takes every
  // call to the attached NCCL, else to the CPU, also when the ranks' own way has failed.
  // Code::invalid_argument names the paths there are; Code::unsupported: none of these ranks' calls can take
  // it, and why; Code::system_error: no thread for the CPU's calls.
  virtual Status set_path(const std::string& path) = 0;

  // What all_reduce would run, and why.
  virtual route::Route explain_all_reduce(std::size_t count, DataType type, ReduceOp op) const = 0;
  // The same for a call with these options; where all_reduce would refuse them, the same failure.
  virtual Result<route::Route> explain_all_reduce(std::size_t count, DataType type, ReduceOp op,
                                                  const CallOptions& options) const = 0;

  // Ok, or the first failure known by now. Never blocks.
  virtual Status status() const = 0;
  virtual std::optional<Fault> fault() const = 0;
  // Ends every wait of this rank, now and later; the communicator has then failed with Code::aborted. Any
  // thread.
  virtual void abort() = 0;

  // Something of the program's own for the trace that is written at the end; nothing where none is. Any
  // thread. Code::invalid_argument names the field; Code::invalid_usage: there are too many.
  virtual Status add_span(trace::RankTrace::Span span) = 0;

  // What it has done so far. Never blocks; any thread.
  Counters counters() const { return calls_.counters(); }
  // Its state as text for a person (runtime/dump.hpp). Any thread; takes some seconds at most, and waits for
  // nothing that calls or kernels do.
  virtual std::string dump() const = 0;
  // Whether lines of 128 bytes arrive whole between the ranks, as far as it was looked at. The same on all.
  virtual probe::LineReport lines() const = 0;

  // For tests and reports: of each region, the epoch that its last call had. Equal on all ranks once they
  // have made the same calls. On GPUs it waits for the device, and calls must not run meanwhile.
  virtual Result<std::vector<std::uint32_t>> epochs() const = 0;

  // Brings a communicator back that has failed, or one that has not: ends what still waits, waits until
  // nothing of it runs on any rank, and puts the scratch of all to rest. Captured graphs can be replayed
  // again afterwards; operations that were under way have undefined results. Collective; no call of this rank
  // may be made meanwhile, nor a captured graph replayed; waits at most `limit` (unset:
  // Options::create_timeout). On failure the communicator has failed, and reset may be tried again. Errors:
  // timeout (names who did not come), remote_error (names who is gone), cuda_error, aborted (abort()
  // meanwhile), unsupported (NCCL's communicator cannot be met through any more), invalid_usage (it was
  // shrunk).
  virtual Status reset(std::optional<std::chrono::milliseconds> limit = std::nullopt) = 0;

  // A communicator of the ranks `members` alone (ascending, this one among them), renumbered in order, with
  // the options of this one and memory of its own: nothing of it depends on a rank that is left out. This one
  // has failed from then on and can only be destroyed. Collective over `members`, who give the same list;
  // waits at most `limit` (unset: Options::create_timeout). On failure this communicator has failed, and
  // shrink may be tried again, with these members or fewer. Errors: as reset's; invalid_argument (the list),
  // invalid_usage (another member gave another list, named with both), and those of creation.
  virtual Result<std::unique_ptr<Communicator>> shrink(
      std::span<const int> members, std::optional<std::chrono::milliseconds> limit = std::nullopt) = 0;

  // Memory for channels of kernels (on CPUs: threads) that are not the library's: of its own, so that no call
  // of this communicator uses it, or changes its epochs. It has the limits and the fault record of this
  // communicator: each fails with the other. Lives until free_channels(), or the communicator's end; after
  // reset() it is dead, and is to be made anew. Collective; waits at most Options::create_timeout; GPU: it
  // allocates, so no kernel may wait for another rank meanwhile. `shape.nranks` is filled in. `peers`: see
  // protocol::ChannelMemory. Errors: invalid_argument (names the field), invalid_usage (the ranks' differ),
  // system_error, cuda_error, and the recorded fault once the communicator has failed.
  virtual Result<protocol::ChannelMemory> make_channels(protocol::ChannelShape shape, std::uint32_t peers) {
    (void)shape, (void)peers;
    return failure(Code::unsupported, "this communicator has no channels");
  }
  // Frees it; not collective. `own`: as in the memory. No kernel of this rank may use it any more; the peers'
  // may. Errors: invalid_argument (there is none such).
  virtual Status free_channels(const char* own) {
    (void)own;
    return failure(Code::invalid_argument, "channel: there is none such");
  }

  // Bytes of scratch this rank provides.
  virtual std::size_t scratch_bytes() const = 0;
  // GPU: whether the kernel after a call's is let in early (Options::early_launch). CPU: no.
  virtual bool early_launch() const { return false; }
  // GPU: which parts of the scratch were measured to be the fastest and what that gains, or why nothing was
  // measured; one line. CPU: "".
  virtual std::string placement() const { return ""; }

 protected:
  CallLog calls_;
};

}  // namespace nearlight::runtime
