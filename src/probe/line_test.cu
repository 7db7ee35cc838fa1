#include "probe/line_test.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>

#include <nearlight/detail/exec/cuda_space.cuh>
#include <nearlight/detail/protocol/ll128.hpp>
#include <nearlight/detail/protocol/poll.hpp>
#include "probe/cuda_call.hpp"

namespace nearlight::probe {

namespace {

using exec::Adds;
using exec::CudaSpace;
using exec::CudaSpaceTorn;
using exec::Pack;

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr std::uint32_t kCtas = 32;                   // of each neighbour
constexpr std::uint32_t kLines = kCtas * kWarps * 4;  // that are on their way at a time, to each
constexpr std::uint64_t kWaitNs = 20'000'000;         // of one wait
constexpr std::uint32_t kRoundsPerLook = 64;          // at the clock

enum class Kind { stores, f32, f16, bf16 };
constexpr Kind kKinds[] = {Kind::stores, Kind::f32, Kind::f16, Kind::bf16};

// Of a rank's memory: lines of each kind, by neighbour and bank, then what the noise is stored to, then the
// notes.
constexpr std::size_t kKindBytes = std::size_t{2} * 2 * kLines * sizeof(CudaSpace::Wide);
constexpr std::size_t kNoiseAt = 4 * kKindBytes, kNotesAt = kLineTestBytes - 4096;
struct Notes {
  unsigned long long lines[4], torn[4], missing[4];
  std::uint32_t finished[4];  // CTAs
};
static_assert(kNoiseAt < kNotesAt && sizeof(Notes) <= 4096);

struct Args {
  char *mine, *next, *previous;
  std::uint32_t rounds;
  std::uint64_t limit_ns;
};

NL_FN Notes& notes_of(const Args& args) { return *reinterpret_cast<Notes*>(args.mine + kNotesAt); }

template <Kind kind>
NL_FN CudaSpace::Wide& line_of(char* part, std::uint32_t channel, std::uint32_t bank, std::uint32_t line) {
  return reinterpret_cast<CudaSpace::Wide*>(part + static_cast<std::size_t>(kind) *
                                                       kKindBytes)[(channel * 2 + bank) * kLines + line];
}

NL_FN std::uint64_t hash(std::uint64_t value) {  // splitmix64
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return value ^ value >> 31;
}

// What rank `side` (which of the two that meet in a channel) gives to a pack of line number `number`.
NL_FN std::uint64_t given(std::uint32_t side, std::uint32_t line, std::uint32_t number, int part, int pack) {
  return hash(std::uint64_t{number} << 32 | line << 6 | static_cast<std::uint32_t>(part * 2 + pack) << 1 |
              side);
}

// The same as whole numbers of the kind, small enough that their sums are exact, times `sign`; of both sides
// together where `given_b` is not null.
template <Kind kind>
NL_FN Pack numbers(std::uint64_t a, const std::uint64_t* b, float sign) {
  constexpr std::uint32_t kMask = kind == Kind::bf16 ? 63 : 255;
  const auto number = [&](int i) {
    std::uint32_t sum = static_cast<std::uint32_t>(a >> 8 * i) & kMask;
    if (b != nullptr) sum += static_cast<std::uint32_t>(*b >> 8 * i) & kMask;
    return sign * static_cast<float>(sum);
  };
  if constexpr (kind == Kind::f32)
    return exec::join_halves(exec::as_bits(number(0)), exec::as_bits(number(1)));
  if constexpr (kind == Kind::f16) {
    return exec::join_halves(CudaSpace::to_f16_pair(number(0), number(1)),
                             CudaSpace::to_f16_pair(number(2), number(3)));
  }
  return exec::join_halves(CudaSpace::to_bf16_pair(number(0), number(1)),
                           CudaSpace::to_bf16_pair(number(2), number(3)));
}
template <Kind kind>
NL_FN Pack count_word(float count) {
  if constexpr (kind == Kind::f32) return exec::as_bits(count);
  if constexpr (kind == Kind::f16) return CudaSpace::to_f16_pair(count, 0);
  return CudaSpace::to_bf16_pair(count, 0);
}

// Exchanges lines in one channel. Two banks are enough by the same rule as everywhere (E1). A sum is added to
// and taken from in turns, so that it is not set to zero and stays exact.
template <class S, Kind kind>
NL_FN void exchange_lines(const Args& args, std::uint32_t channel, std::uint32_t lane) {
  using Seat = protocol::LineSeat<S>;
  using Part = typename S::Part;
  constexpr int kPacks = Seat::kPartPacks;
  Notes& notes = notes_of(args);
  const Seat seat(lane);
  const std::uint32_t line =
      seat.line_of((exec::cta_index() % kCtas) * (kThreads / S::kLockstep) + lane / S::kLockstep);
  const int part = seat.part();
  char* const peer = channel == 0 ? args.next : args.previous;
  const std::uint32_t peer_channel = 1 - channel;
  protocol::Control<S> control;
  control.timeout_ns = kWaitNs;
  const std::uint64_t started_ns = S::now_ns();
  std::uint32_t lines = 0, torn = 0;
  bool in_time = true;

  std::uint32_t number = 1;
  for (; number <= args.rounds && in_time; ++number) {
    const std::uint32_t bank = number % 2;
    const bool back = (number + 1) / 2 % 2 == 0;  // takes back what was added two rounds before
    Part sent, wanted;
    for (int i = 0; i < kPacks; ++i) {
      const std::uint32_t which = back ? number - 2 : number;
      if constexpr (kind == Kind::stores) {
        sent.pack[i] = given(channel, line, number, part, i);
        wanted.pack[i] = given(peer_channel, line, number, part, i);
      } else {
        const std::uint64_t own = given(channel, line, which, part, i);
        const std::uint64_t other = given(peer_channel, line, which, part, i);
        sent.pack[i] = numbers<kind>(own, nullptr, back ? -1.0f : 1.0f);
        wanted.pack[i] = back ? 0 : numbers<kind>(own, &other, 1);
      }
    }
    Pack word = protocol::message_word(number), wanted_word = word;
    if constexpr (kind != Kind::stores) {
      word = count_word<kind>(back ? -1.0f : 1.0f);
      wanted_word = count_word<kind>(back ? 0.0f : 2.0f);
    }
    sent = seat.with_word(sent, word);
    wanted = seat.with_word(wanted, wanted_word);
    auto& there = line_of<kind>(peer, peer_channel, bank, line);
    auto& here = line_of<kind>(args.mine, channel, bank, line);
    if constexpr (kind == Kind::stores) {
      S::store_part(there, part, sent);
    } else {
      constexpr Adds kAdds = kind == Kind::f32 ? Adds::f32 : kind == Kind::f16 ? Adds::f16 : Adds::bf16;
      S::template add_part<kAdds>(there, part, sent);
      S::template add_part<kAdds>(here, part, sent);
    }
    Part got;
    in_time = protocol::poll_in_lockstep<S>(
        control,
        [&] {
          got = S::load_part(here, part);
          return seat.has_come(got, wanted_word);
        },
        [](protocol::Wait) {});
    if (!in_time) break;
    bool right = true;
    for (int i = 0; i < kPacks; ++i) right &= got.pack[i] == wanted.pack[i];
    const bool whole = S::all_of_line(right);
    if (seat.has_word()) {
      ++lines;
      torn += whole ? 0 : 1;
    }
    if (number % kRoundsPerLook == 0) {
      in_time = S::all_in_lockstep(S::now_ns() - started_ns < args.limit_ns);
    }
  }
  if (seat.has_word()) {
    constexpr int kAt = static_cast<int>(kind);
    atomicAdd(&notes.lines[kAt], lines);
    if (torn > 0) atomicAdd(&notes.torn[kAt], torn);
    if (lines < args.rounds) atomicAdd(&notes.missing[kAt], args.rounds - lines);
  }
}

// Plain stores to both neighbours until the CTAs that exchange lines are done.
template <Kind kind>
NL_FN void make_noise(const Args& args, std::uint32_t index, std::uint32_t count) {
  constexpr std::uint32_t kVecs = (kNotesAt - kNoiseAt) / sizeof(exec::Vec);
  exec::CtaCoop cta;
  const auto threads = static_cast<std::uint32_t>(cta.size()) * count;
  const std::uint64_t started_ns = CudaSpace::now_ns();
  while (CudaSpace::load<exec::Order::relaxed, exec::Scope::device>(
             notes_of(args).finished[static_cast<int>(kind)]) < 2 * kCtas &&
         CudaSpace::now_ns() - started_ns < args.limit_ns) {
    std::uint32_t i =
        index * static_cast<std::uint32_t>(cta.size()) + static_cast<std::uint32_t>(cta.thread_rank());
    // Some at a time, so that it ends soon after them.
    for (int turn = 0; turn < 8 && i < kVecs; ++turn, i += threads) {
      char* const peer = turn % 2 == 0 ? args.next : args.previous;
      CudaSpace::store_cell(reinterpret_cast<CudaSpace::Cell*>(peer + kNoiseAt)[i],
                            exec::Vec{{i, started_ns}});
    }
  }
}

template <class S, Kind kind>
__global__ void __launch_bounds__(kThreads) test_lines(Args args) {
  exec::CtaCoop cta;
  const std::uint32_t index = exec::cta_index();
  if (index >= 2 * kCtas) return make_noise<kind>(args, index - 2 * kCtas, exec::cta_count() - 2 * kCtas);
  exchange_lines<S, kind>(args, index / kCtas, static_cast<std::uint32_t>(cta.thread_rank()));
  cta.sync();
  if (cta.thread_rank() == 0) atomicAdd(&notes_of(args).finished[static_cast<int>(kind)], 1u);
}

using Kernel = void (*)(Args);
template <class S>
Kernel kernel_in(Kind kind) {
  switch (kind) {
    case Kind::stores:
      return test_lines<S, Kind::stores>;
    case Kind::f32:
      return test_lines<S, Kind::f32>;
    case Kind::f16:
      return test_lines<S, Kind::f16>;
    case Kind::bf16:
      return test_lines<S, Kind::bf16>;
  }
  return nullptr;
}
Kernel kernel_of(Kind kind, LineWay way) {
  switch (way) {
    case LineWay::together:
      return kernel_in<CudaSpace>(kind);
    case LineWay::in_pieces:
      return kernel_in<exec::CudaSpaceInPieces>(kind);
    case LineWay::torn:
      return kernel_in<CudaSpaceTorn>(kind);
  }
  return nullptr;
}

Args args_of(const LineTest& test, Kind kind) {
  const bool few = kind == Kind::f16 || kind == Kind::bf16;
  const auto rounds = static_cast<std::uint32_t>((test.lines + kLines - 1) / kLines);
  return {test.mine, test.next, test.previous, few ? (rounds + 7) / 8 : rounds,
          few                    ? std::uint64_t{10'000'000}
          : kind == Kind::stores ? std::uint64_t{60'000'000}
                                 : std::uint64_t{40'000'000}};
}

}  // namespace

Status load_line_test() {
  for (const Kind kind : kKinds) {
    for (const LineWay way : {LineWay::together, LineWay::in_pieces, LineWay::torn}) {
      cudaFuncAttributes attributes{};
      NL_PROBE_CUDA(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel_of(kind, way))));
    }
  }
  return {};
}

Result<LineTestResult> run_line_test(const LineTest& test) {
  int device = 0;
  cudaStream_t made = nullptr;
  NL_PROBE_CUDA(cudaGetDevice(&device));
  NL_PROBE_CUDA(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
  const Stream stream(made, device);
  // All resident together, with as many SMs for the noise as for half the lines, where there are so many.
  const int noise = std::clamp(test.sms - 2 * static_cast<int>(kCtas), 1, static_cast<int>(kCtas));
  for (const Kind kind : kKinds) {
    if (kind != Kind::stores && !test.adds) break;
    Args args = args_of(test, kind);
    void* parameters[] = {&args};
    NL_PROBE_CUDA(cudaLaunchKernel(reinterpret_cast<const void*>(kernel_of(kind, test.way)),
                                   dim3(2 * kCtas + static_cast<unsigned>(noise)), dim3(kThreads), parameters,
                                   0, stream.get()));
  }
  Notes notes{};
  NL_PROBE_CUDA(
      cudaMemcpyAsync(&notes, test.mine + kNotesAt, sizeof notes, cudaMemcpyDeviceToHost, stream.get()));
  NL_PROBE_CUDA(cudaStreamSynchronize(stream.get()));
  LineTestResult result;
  for (int i = 0; i < 4; ++i) {
    LineCounts& counts = i == 0 ? result.stores : result.adds;
    counts.lines += notes.lines[i];
    counts.torn += notes.torn[i];
    counts.missing += notes.missing[i];
  }
  return result;
}

}  // namespace nearlight::probe
