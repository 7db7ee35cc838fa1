// The CPU as an execution space: threads of one process or processes over shared memory.
//
// A line is two 8-byte atomics, each half with its own flag, so nothing assumes 16-byte atomicity.
#pragma once

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>

#include <nearlight/detail/exec/bits.hpp>
#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/small_float.hpp>

namespace nearlight::exec {

struct HostSpace {
  struct alignas(16) Line {
    std::uint64_t half[2];  // payload in the lower 32 bits, flag in the upper
  };
  using Word = std::uint32_t;
  using Cell = Vec;
  struct alignas(16) Packet {
    std::uint64_t half[2];
  };
  // One thread does all of it, the word last or first.
  static constexpr int kLineThreads = 1;
  using Part = LinePart<16>;
  struct alignas(128) Wide {
    std::uint64_t pack[16];
  };

  // No clock is read while relax() still spins; when it lets others run, each poll may take some
  // milliseconds.
  static constexpr std::uint32_t kPolitePolls = 200;
  static constexpr std::uint32_t kPollsPerCheck = kPolitePolls + 8;
  static constexpr std::uint32_t kPollsPerLateCheck = 8;
  // Waits look at Control::end_ns, too.
  static constexpr bool kCallsMayEnd = true;
  static constexpr std::uint32_t kLastEpoch = 0xffffffffu;
  static constexpr bool kUnalignedAccess = true;

  // Release and acquire, where the GPU has relaxed: between two kernels lies a fence, between two calls on
  // the CPU lies none, and the cells of an earlier call must have been read before a peer that heard of this
  // one overwrites them ([E3]).
  static void store_line(Line& line, Pack pack, std::uint32_t flag) {
    std::atomic_ref(line.half[0]).store(join_halves(low_half(pack), flag), std::memory_order_release);
    std::atomic_ref(line.half[1]).store(join_halves(high_half(pack), flag), std::memory_order_release);
  }
  static bool try_load_line(const Line& line, std::uint32_t flag, Pack& out, std::uint32_t& seen) {
    auto& mutable_line = const_cast<Line&>(line);  // atomic_ref<const T> is C++26
    const std::uint64_t first = std::atomic_ref(mutable_line.half[0]).load(std::memory_order_acquire);
    const std::uint64_t second = std::atomic_ref(mutable_line.half[1]).load(std::memory_order_acquire);
    out = join_halves(low_half(first), low_half(second));
    seen = high_half(first) == flag ? high_half(second) : high_half(first);
    return high_half(first) == flag && high_half(second) == flag;
  }

  template <Order order, Scope>
  static void store(Word& word, std::uint32_t value) {
    static_assert(order != Order::acquire);
    std::atomic_ref(word).store(
        value, order == Order::release ? std::memory_order_release : std::memory_order_relaxed);
  }
  template <Order order, Scope>
  static std::uint32_t load(const Word& word) {
    static_assert(order != Order::release);
    return std::atomic_ref(const_cast<Word&>(word))
        .load(order == Order::acquire ? std::memory_order_acquire : std::memory_order_relaxed);
  }
  static bool claim(Word& word) {
    std::uint32_t expected = 0;
    return std::atomic_ref(word).compare_exchange_strong(expected, 1, std::memory_order_relaxed);
  }

  // Release and acquire, as a line's ([N3]).
  static void store_packet(Packet& packet, const Vec& value) {
    std::atomic_ref(packet.half[0]).store(value.pack[0], std::memory_order_release);
    std::atomic_ref(packet.half[1]).store(value.pack[1], std::memory_order_release);
  }
  static Vec load_packet(const Packet& packet) {
    auto& mutable_packet = const_cast<Packet&>(packet);
    return {{std::atomic_ref(mutable_packet.half[0]).load(std::memory_order_acquire),
             std::atomic_ref(mutable_packet.half[1]).load(std::memory_order_acquire)}};
  }

  // The word releases and acquires, as a line's flags do; it makes the line whole.
  static void store_part(Wide& line, int, const Part& value) {
    for (int i = 0; i < kWord; ++i)
      std::atomic_ref(line.pack[i]).store(value.pack[i], std::memory_order_relaxed);
    std::atomic_ref(line.pack[kWord]).store(value.pack[kWord], std::memory_order_release);
  }
  static Part load_part(const Wide& line, int) {
    auto& mutable_line = const_cast<Wide&>(line);
    Part value;
    value.pack[kWord] = std::atomic_ref(mutable_line.pack[kWord]).load(std::memory_order_acquire);
    for (int i = 0; i < kWord; ++i)
      value.pack[i] = std::atomic_ref(mutable_line.pack[i]).load(std::memory_order_relaxed);
    return value;
  }
  // The adds to the word are one release sequence: who acquires the last has seen all.
  template <Adds adds>
  static void add_part(Wide& line, int, const Part& value) {
    for (int i = 0; i <= kWord; ++i) {
      const std::atomic_ref pack(line.pack[i]);
      const auto order = i == kWord ? std::memory_order_release : std::memory_order_relaxed;
      std::uint64_t before = pack.load(std::memory_order_relaxed);
      while (!pack.compare_exchange_weak(before, sum_of<adds>(before, value.pack[i]), order,
                                         std::memory_order_relaxed)) {
      }
    }
  }
  static void zero_part(Wide& line, int part) { store_part(line, part, {}); }
  static Pack load_word(const Wide& line) {
    return std::atomic_ref(const_cast<Wide&>(line).pack[kWord]).load(std::memory_order_relaxed);
  }
  static void clear_word(Wide& line) {
    std::atomic_ref(line.pack[kWord]).store(0, std::memory_order_relaxed);
  }
  // Two packs of elements, each sum rounded to the element's type.
  template <Adds adds>
  static Pack sum_of(Pack a, Pack b) {
    const std::uint32_t low = sum_of_halves<adds>(low_half(a), low_half(b));
    return join_halves(low, sum_of_halves<adds>(high_half(a), high_half(b)));
  }

  static void store_cell(Cell& cell, const Vec& value) { cell = value; }
  static Vec load_cell(const Cell& cell) { return cell; }

  static Pack load_pack(const void* data) {
    Pack pack;
    std::memcpy(&pack, data, sizeof pack);
    return pack;
  }
  static void store_pack(void* data, Pack pack) { std::memcpy(data, &pack, sizeof pack); }
  static Vec load_vec(const void* data) {
    Vec vec;
    std::memcpy(&vec, data, sizeof vec);
    return vec;
  }
  static void store_vec(void* data, const Vec& vec) { std::memcpy(data, &vec, sizeof vec); }
  static std::uint32_t load_element(const std::uint32_t* element) { return *element; }
  static std::uint16_t load_element(const std::uint16_t* element) { return *element; }
  static std::uint8_t load_element(const std::uint8_t* element) { return *element; }
  static std::uint64_t load_element(const std::uint64_t* element) { return *element; }

  static constexpr int kLockstep = 1;
  static bool all_in_lockstep(bool mine) { return mine; }

  static void fence_system() {
// ThreadSanitizer does not see the fence; only atomics depend on it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wtsan"
    std::atomic_thread_fence(std::memory_order_seq_cst);
#pragma GCC diagnostic pop
  }

  // Spins politely at first, then lets another thread run: there may be more ranks than processors.
  static void relax(std::uint32_t polls) {
    if (polls < kPolitePolls) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }

  // As the GPU's cvt.rn.bf16x2: nearest even, NaN becomes 0x7fff.
  static std::uint32_t to_bf16(float value) {
    const std::uint32_t bits = as_bits(value);
    const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    return value != value ? 0x7fffu : rounded;
  }
  // `low` lands in the lower half, in all of them.
  static std::uint32_t to_bf16_pair(float low, float high) { return to_bf16(low) | to_bf16(high) << 16; }
  static std::uint32_t to_f16_pair(float low, float high) {
    return HalfFormat::narrow(low) | HalfFormat::narrow(high) << 16;
  }
  static void from_f16_pair(std::uint32_t pair, float& low, float& high) {
    low = HalfFormat::widen(pair & 0xffffu);
    high = HalfFormat::widen(pair >> 16);
  }
  static std::uint32_t to_e4m3_pair(float low, float high) {
    return E4m3Format::narrow(low) | E4m3Format::narrow(high) << 8;
  }
  static void from_e4m3_pair(std::uint32_t pair, float& low, float& high) {
    low = E4m3Format::widen(pair & 0xffu);
    high = E4m3Format::widen(pair >> 8 & 0xffu);
  }
  static std::uint32_t to_e5m2_pair(float low, float high) {
    return E5m2Format::narrow(low) | E5m2Format::narrow(high) << 8;
  }
  static void from_e5m2_pair(std::uint32_t pair, float& low, float& high) {
    low = E5m2Format::widen(pair & 0xffu);
    high = E5m2Format::widen(pair >> 8 & 0xffu);
  }

  // As the GPU's max and min: a NaN loses to a number, +0 beats -0 in max and -0 beats +0 in min.
  static float max_float(float a, float b) {
    if (a != a) return b != b ? as_float(kNan32) : b;
    if (b != b) return a;
    if (a == b) return as_float(as_bits(a) & as_bits(b));  // equal bits, or zeros of both signs
    return a > b ? a : b;
  }
  static float min_float(float a, float b) {
    if (a != a) return b != b ? as_float(kNan32) : b;
    if (b != b) return a;
    if (a == b) return as_float(as_bits(a) | as_bits(b));
    return a < b ? a : b;
  }
  // Compiled without contraction (-ffp-contract=off): a product is rounded before it is added.
  static float multiply(float a, float b) { return a * b; }
  static double multiply(double a, double b) { return a * b; }
  static float divide(float a, float b) { return a / b; }
  static double divide(double a, double b) { return a / b; }
  static float reciprocal_root(float value) { return 1.0f / std::sqrt(value); }
  // To the nearest, of two the even one; too large becomes the end of the range, NaN 0. In the lower 8 bits.
  static std::uint32_t to_i8(float value) {
    if (value != value) return 0;
    const float within = value < -128.0f ? -128.0f : value > 127.0f ? 127.0f : value;
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(std::nearbyint(within))) & 0xffu;
  }
  // As the GPU's: a CPU would keep the payload of one of the operands, and not always of the same.
  static float one_nan(float value) { return value != value ? as_float(kNan32) : value; }
  static double one_nan(double value) { return value != value ? as_double(kNan64) : value; }

  static std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::steady_clock::now().time_since_epoch())
                                          .count());
  }

 private:
  static constexpr int kWord = 15;  // of a wide line

  template <Adds adds>
  static std::uint32_t sum_of_halves(std::uint32_t a, std::uint32_t b) {
    if constexpr (adds == Adds::i32) return a + b;
    if constexpr (adds == Adds::f32) return as_bits(one_nan(as_float(a) + as_float(b)));
    float a_low, a_high, b_low, b_high;
    if constexpr (adds == Adds::f16) {
      from_f16_pair(a, a_low, a_high);
      from_f16_pair(b, b_low, b_high);
      return to_f16_pair(a_low + b_low, a_high + b_high);
    } else {
      a_low = as_float(a << 16), a_high = as_float(a & 0xffff0000u);
      b_low = as_float(b << 16), b_high = as_float(b & 0xffff0000u);
      return to_bf16_pair(a_low + b_low, a_high + b_high);
    }
  }

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield" ::: "memory");
#endif
  }
};

// A group of one thread.
struct SoloCoop {
  int thread_rank() const { return 0; }
  int size() const { return 1; }
  void sync() {}
  bool sync_any(bool mine) { return mine; }
};

}  // namespace nearlight::exec
