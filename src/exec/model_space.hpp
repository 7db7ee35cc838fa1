// A memory-model checker as an execution space: Relacy owns every access that ranks or lanes share, decides
// which store a load sees and which thread runs next, and reports data races, stuck threads and failed
// assertions.
//
// Include it last: the checker defines macros. Those that would hurt are taken back below.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>

#include <nearlight/detail/exec/concepts.hpp>
#include <nearlight/detail/exec/host_space.hpp>

#pragma push_macro("assert")
#pragma push_macro("errno")
#include <relacy/relacy.hpp>
#undef $
#undef VAR
#undef VAR_T
#undef TLS_T
#undef memory_order_relaxed
#undef memory_order_consume
#undef memory_order_acquire
#undef memory_order_release
#undef memory_order_acq_rel
#undef memory_order_seq_cst
#undef new
#undef delete
#undef malloc
#undef calloc
#undef realloc
#undef free
#pragma pop_macro("errno")
#pragma pop_macro("assert")

namespace nearlight::exec {

// What the model counts instead of measuring time. One execution runs at a time, so one instance serves all
// spaces; every execution starts with restart().
struct ModelCounters {
  static constexpr int kMaxThreads = 16;
  std::uint64_t clock = 0;                // calls of now_ns()
  std::uint64_t polls[kMaxThreads] = {};  // calls of relax(), by thread
  bool cleared[kMaxThreads] = {};         // for tests that leave a sync out
  // For tests of threads in lockstep, by run: the vote that is on.
  struct Vote {
    int cast = 0, against = 0;
    std::uint32_t number = 0;
    bool outcome = false;
  };
  Vote votes[kMaxThreads];

  void restart() { *this = {}; }
};
inline ModelCounters model_counters;

// Remembers who cleared a line or flag, so that a store into it that is not ordered after the clearing is a
// data race. The checker alone would not show it: it executes stores in the order in which they become
// visible.
class ModelClearings {
 public:
  void clear() {
    if (count_ < kMax) by_[count_++](RL_INFO).store(1);
  }
  void check_ordered_after() const {
    for (int i = 0; i < count_; ++i) (void)by_[i](RL_INFO).load();
  }

 private:
  static constexpr int kMax = 3;  // later clearings in one execution are not watched
  rl::var<int> by_[kMax];
  int count_ = 0;
};

// A wide line's content: two packs of payload and the word. `+` is the integers' sum of each 32 bits.
struct ModelLine {
  Pack pack[3] = {};
  friend bool operator==(const ModelLine&, const ModelLine&) = default;
  friend ModelLine operator+(const ModelLine& a, const ModelLine& b) {
    ModelLine sum;
    for (int i = 0; i < 3; ++i) sum.pack[i] = HostSpace::sum_of<Adds::i32>(a.pack[i], b.pack[i]);
    return sum;
  }
  friend std::ostream& operator<<(std::ostream& out, const ModelLine& line) {
    return out << line.pack[0] << ' ' << line.pack[1] << ' ' << line.pack[2];
  }
};

// `last`: the last epoch before numbering starts again, odd; small where the wrap is checked.
template <std::uint32_t last>
struct ModelSpaceWith {
  // Without a wrap nothing is cleared, and the checker is spared the bookkeeping.
  static constexpr bool kWraps = last != 0xffffffffu;
  struct NoClearings {
    void clear() {}
    void check_ordered_after() const {}
  };
  using Clearings = std::conditional_t<kWraps, ModelClearings, NoClearings>;

  // Each 8-byte half is atomic by itself: payload in the lower 32 bits, flag in the upper.
  struct Line {
    rl::atomic<std::uint64_t> half[2] = {0, 0};
    [[no_unique_address]] Clearings clearings;
  };
  struct Word {
    rl::atomic<std::uint32_t> value = 0;
    rl::var<int> claimed_by = -1;  // stands for what the claimant writes before it publishes
    [[no_unique_address]] Clearings clearings;
  };
  // Plain payload: an access that the flag does not protect is a data race.
  struct Cell {
    rl::var<Pack> pack[2] = {0, 0};
  };

  // At rest it holds the sentinel. Its resets are always watched.
  struct Packet {
    rl::atomic<std::uint64_t> half[2] = {~std::uint64_t{0}, ~std::uint64_t{0}};
    ModelClearings resets;
  };

  // Whole, and nothing beyond that: relaxed, one value at a time. What is set to zero is always watched.
  static constexpr int kLineThreads = 1;
  using Part = LinePart<3>;
  struct Wide {
    rl::atomic<ModelLine> line = ModelLine{};
    ModelClearings zeros;
  };

  static constexpr std::uint32_t kPollsPerCheck = 2;
  static constexpr std::uint32_t kLastEpoch = last;
  static constexpr bool kUnalignedAccess = true;

  static void store_line(Line& line, Pack pack, std::uint32_t flag) {
    if (flag == 0) {
      line.clearings.clear();
    } else {
      line.clearings.check_ordered_after();
    }
    line.half[0](RL_INFO).store(join_halves(low_half(pack), flag), rl::mo_relaxed);
    line.half[1](RL_INFO).store(join_halves(high_half(pack), flag), rl::mo_relaxed);
  }
  static bool try_load_line(const Line& line, std::uint32_t flag, Pack& out, std::uint32_t& seen) {
    const std::uint64_t first = line.half[0](RL_INFO).load(rl::mo_relaxed);
    const std::uint64_t second = line.half[1](RL_INFO).load(rl::mo_relaxed);
    out = join_halves(low_half(first), low_half(second));
    seen = high_half(first) == flag ? high_half(second) : high_half(first);
    return high_half(first) == flag && high_half(second) == flag;
  }

  template <Order order, Scope>
  static void store(Word& word, std::uint32_t value) {
    static_assert(order != Order::acquire);
    if (value == 0) {
      word.clearings.clear();
    } else {
      word.clearings.check_ordered_after();
    }
    word.value(RL_INFO).store(value, order == Order::release ? rl::mo_release : rl::mo_relaxed);
  }
  template <Order order, Scope>
  static std::uint32_t load(const Word& word) {
    static_assert(order != Order::release);
    return word.value(RL_INFO).load(order == Order::acquire ? rl::mo_acquire : rl::mo_relaxed);
  }
  static bool claim(Word& word) {
    std::uint32_t expected = 0;
    if (!word.value(RL_INFO).compare_exchange_strong(expected, 1u, rl::mo_relaxed)) return false;
    word.claimed_by(RL_INFO).store(static_cast<int>(rl::thread_index()));
    return true;
  }

  static void store_packet(Packet& packet, const Vec& value) {
    if (value.pack[0] == ~Pack{0} && value.pack[1] == ~Pack{0}) {
      packet.resets.clear();
    } else {
      packet.resets.check_ordered_after();
    }
    packet.half[0](RL_INFO).store(value.pack[0], rl::mo_relaxed);
    packet.half[1](RL_INFO).store(value.pack[1], rl::mo_relaxed);
  }
  static Vec load_packet(const Packet& packet) {
    return {{packet.half[0](RL_INFO).load(rl::mo_relaxed), packet.half[1](RL_INFO).load(rl::mo_relaxed)}};
  }

  static void store_part(Wide& line, int, const Part& value) {
    line.zeros.check_ordered_after();
    line.line(RL_INFO).store(as_line(value), rl::mo_relaxed);
  }
  static Part load_part(const Wide& line, int) {
    const ModelLine value = line.line(RL_INFO).load(rl::mo_relaxed);
    return {{value.pack[0], value.pack[1], value.pack[2]}};
  }
  template <Adds>
  static void add_part(Wide& line, int, const Part& value) {
    line.zeros.check_ordered_after();
    line.line(RL_INFO).fetch_add(as_line(value), rl::mo_relaxed);
  }
  static void zero_part(Wide& line, int) {
    line.zeros.clear();
    line.line(RL_INFO).store(ModelLine{}, rl::mo_relaxed);
  }
  static void clear_word(Wide& line) { zero_part(line, 0); }
  static Pack load_word(const Wide& line) { return load_part(line, 0).pack[2]; }
  static ModelLine as_line(const Part& value) { return {{value.pack[0], value.pack[1], value.pack[2]}}; }

  static void store_cell(Cell& cell, const Vec& value) {
    cell.pack[0](RL_INFO).store(value.pack[0]);
    cell.pack[1](RL_INFO).store(value.pack[1]);
  }
  static Vec load_cell(const Cell& cell) {
    return {{cell.pack[0](RL_INFO).load(), cell.pack[1](RL_INFO).load()}};
  }

  static constexpr int kLockstep = 1;
  static bool all_in_lockstep(bool mine) { return mine; }

  // Weaker than the fences of GPU and CPU, which are sequentially consistent: the protocols need no more.
  static void fence_system() { rl::atomic_thread_fence(rl::mo_acq_rel, RL_INFO); }

  static void relax(std::uint32_t) {
    ++model_counters.polls[rl::thread_index()];
    rl::yield(1, RL_INFO);
  }
  static std::uint64_t now_ns() { return ++model_counters.clock; }

  // A rank's own buffers are no part of the model.
  static Pack load_pack(const void* data) { return HostSpace::load_pack(data); }
  static void store_pack(void* data, Pack pack) { HostSpace::store_pack(data, pack); }
  static Vec load_vec(const void* data) { return HostSpace::load_vec(data); }
  static void store_vec(void* data, const Vec& vec) { HostSpace::store_vec(data, vec); }
  static std::uint32_t load_element(const std::uint32_t* element) { return *element; }
  static std::uint16_t load_element(const std::uint16_t* element) { return *element; }
  static std::uint8_t load_element(const std::uint8_t* element) { return *element; }
  static std::uint32_t to_bf16_pair(float low, float high) { return HostSpace::to_bf16_pair(low, high); }
  static float max_float(float a, float b) { return HostSpace::max_float(a, b); }
};

using ModelSpace = ModelSpaceWith<0xffffffffu>;

// What lanes of one rank meet at; every wait in it is seen by the checker. Lanes that wait are asleep, not
// polling: that spares the checker most of the interleavings.
template <int kMaxLanes>
class ModelBarrierOf {
 public:
  ModelBarrierOf() {
    for (auto& row : posted_) {
      for (auto& post : row) post.init(false, 0, kMaxPosted, RL_INFO);
    }
  }
  ~ModelBarrierOf() {
    for (auto& row : posted_) {
      for (auto& post : row) post.deinit(RL_INFO);
    }
  }

  // Each lane tells each other one, then waits for each other one. A count for every pair: a lane that is
  // already in the next phase must not be taken for one that is missing.
  void arrive_and_wait(int lane, int lanes) {
    unsigned before = 0;
    for (int to = 0; to < lanes; ++to) {
      if (to != lane) posted_[lane][to].post(1, before, RL_INFO);
    }
    for (int from = 0; from < lanes; ++from) {
      if (from != lane) posted_[from][lane].wait(false, false, RL_INFO);
    }
  }
  // The same, and whether any lane brought true. Two sets of votes: a lane may be one phase ahead of another,
  // not two.
  bool vote_and_wait(int lane, int lanes, bool mine) {
    const int set = votes_cast_[lane]++ % 2;
    vote_[set][lane](RL_INFO).store(mine ? 1 : 0);
    arrive_and_wait(lane, lanes);
    bool any = false;
    for (int from = 0; from < lanes; ++from) any |= vote_[set][from](RL_INFO).load() != 0;
    return any;
  }

 private:
  static constexpr unsigned kMaxPosted = 2;
  struct Tag;
  rl::semaphore<Tag> posted_[kMaxLanes][kMaxLanes];
  rl::var<int> vote_[2][kMaxLanes];
  int votes_cast_[kMaxLanes] = {};
};
using ModelBarrier = ModelBarrierOf<2>;

struct ModelCoop {
  int lane;
  int lanes;
  ModelBarrier* barrier;

  int thread_rank() const { return lane; }
  int size() const { return lanes; }
  void sync() {
    if (lanes > 1) barrier->arrive_and_wait(lane, lanes);
  }
};

// A group whose sync can carry a vote, as a thread block's can.
struct ModelVotingCoop : ModelCoop {
  bool sync_any(bool mine) { return lanes > 1 ? barrier->vote_and_wait(lane, lanes, mine) : mine; }
};

// A region of every rank, as arrays of cells.
template <class S, int ranks, int slot_count, int cell_count, int packet_count = 0, int wide_count = 0>
struct ModelMemory {
  static constexpr int kRanks = ranks, kSlots = slot_count, kCells = cell_count, kPackets = packet_count,
                       kWide = wide_count;
  // [owner][bank][source]
  typename S::Word flag[ranks][2][ranks];
  typename S::Line line[ranks][2][ranks][slot_count > 0 ? slot_count : 1];
  typename S::Cell cell[ranks][2][ranks][cell_count > 0 ? cell_count : 1];
  typename S::Packet packet[ranks][2][ranks][packet_count > 0 ? packet_count : 1];
  typename S::Wide wide[ranks][2][ranks][wide_count > 0 ? wide_count : 1];
  typename S::Wide sum[ranks][2][wide_count > 0 ? wide_count : 1];
};

template <class S, class Memory>
class ModelRegion {
 public:
  using Space = S;

  ModelRegion(Memory& memory, int rank) : memory_(&memory), rank_(rank) {}

  int rank() const { return rank_; }
  int nranks() const { return Memory::kRanks; }
  std::uint32_t slots() const { return Memory::kSlots; }
  std::uint32_t cells() const { return Memory::kCells; }
  std::uint32_t packets() const { return Memory::kPackets; }
  std::uint32_t wide_lines() const { return Memory::kWide; }
  std::uint32_t sum_lines() const { return Memory::kWide; }
  typename S::Word& flag(int peer, int bank, int source) const { return memory_->flag[peer][bank][source]; }
  typename S::Line& line(int peer, int bank, int source, std::uint32_t slot) const {
    return memory_->line[peer][bank][source][slot];
  }
  typename S::Cell& cell(int peer, int bank, int source, std::uint32_t index) const {
    return memory_->cell[peer][bank][source][index];
  }
  typename S::Packet& packet(int peer, int bank, int source, std::uint32_t index) const {
    return memory_->packet[peer][bank][source][index];
  }
  typename S::Wide& wide(int peer, int bank, int source, std::uint32_t line) const {
    return memory_->wide[peer][bank][source][line];
  }
  typename S::Wide& sum(int peer, int bank, std::uint32_t line) const {
    return memory_->sum[peer][bank][line];
  }

 private:
  Memory* memory_;
  int rank_;
};

}  // namespace nearlight::exec
