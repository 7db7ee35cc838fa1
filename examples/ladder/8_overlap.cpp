// Rung 8: compute and exchange at the same time, and what shows it. The work goes in tiles; a tile's parts
// leave as soon as they are computed, and fly while the next tile is computed. The kernel writes down when it
// did what. The program says how much of the exchange it did not have to wait for, and gives the times to the
// communicator's trace:
//
//   nearlight trace -o overlap.json -- nearlight_ladder_overlap
//
// writes them as a timeline for ui.perfetto.dev: two groups of ranks, one that waits for each tile before it
// begins the next, and one that does not.
#include <algorithm>

#include "ladder/run.hpp"

using Word = std::uint64_t;

constexpr int kTiles = 16, kElements = 64, kRanks = 2;
constexpr int kRounds = 300;  // of arithmetic an element

// Where a rank's words lie: the sums, then for each tile when it was begun, computed, sent, looked for and
// there.
enum Time { kBegun, kComputed, kSent, kLooked, kArrived, kTimes };
constexpr int kSums = 0, kClock = kSums + kTiles * kElements, kEnd = kClock + kTiles * kTimes;

// A rank's part of an element: arithmetic that nobody can shorten.
LADDER_FN Word part(int rank, int tile, int element) {
  Word x = static_cast<Word>(rank * 1000 + tile * kElements + element);
  for (int i = 0; i < kRounds; ++i) x = (x ^ x >> 29) * 0x9e3779b97f4a7c15u + 1;
  return x;
}

struct Tiles {
  bool overlaps;

  struct Plus {
    NEARLIGHT_DEVICE_FN Word operator()(Word a, Word b) const { return a + b; }
  };
  template <class Channel>
  NEARLIGHT_DEVICE_FN void compute(Channel& ch, Word* data, int tile) const {
    Word* const clock = data + kClock + tile * kTimes;
    const bool writes = ch.coop().thread_rank() == 0;
    if (writes) clock[kBegun] = ch.now_ns();
    for (int i = ch.coop().thread_rank(); i < kElements; i += ch.coop().size())
      data[kSums + tile * kElements + i] = part(ch.rank(), tile, i);
    ch.coop().sync();
    if (writes) clock[kComputed] = ch.now_ns();
  }

  template <class Channel>
  NEARLIGHT_DEVICE_FN void operator()(Channel& ch, Word* data) const {
    const int lane = ch.coop().thread_rank(), width = ch.coop().size();
    compute(ch, data, 0);
    for (int tile = 0; tile < kTiles; ++tile) {
      Word* const sums = data + kSums + tile * kElements;
      Word* const clock = data + kClock + tile * kTimes;
      if (lane == 0) clock[kSent] = ch.now_ns();
      for (int i = lane; i < kElements; i += width) ch.bcast(static_cast<unsigned>(i), sums[i]);
      if (overlaps && tile + 1 < kTiles) compute(ch, data, tile + 1);
      if (lane == 0) clock[kLooked] = ch.now_ns();
      for (int i = lane; i < kElements; i += width)
        ch.recv_reduce(static_cast<unsigned>(i), sums[i], Plus{}, sums[i]);
      ch.coop().sync();
      if (lane == 0) clock[kArrived] = ch.now_ns();
      if (!overlaps && tile + 1 < kTiles) compute(ch, data, tile + 1);
      ch.advance_epoch();
    }
  }
};

// What the kernel did, one row for the threads' work and one for what is on its way.
void tell(const nearlight::Communicator& comm, const std::vector<Word>& data) {
  const std::uint32_t others = ((1u << kRanks) - 1) & ~(1u << static_cast<unsigned>(comm.rank()));
  for (int tile = 0; tile < kTiles; ++tile) {
    const Word* const clock = &data[static_cast<std::size_t>(kClock + tile * kTimes)];
    const std::string number = std::to_string(tile);
    namespace device = nearlight::device;
    device::trace(comm, {.name = "compute " + number, .begin_ns = clock[kBegun], .end_ns = clock[kComputed]});
    device::trace(comm, {.name = "wait " + number, .begin_ns = clock[kLooked], .end_ns = clock[kArrived]});
    device::trace(comm, {.name = "exchange " + number,
                         .begin_ns = clock[kSent],
                         .end_ns = clock[kArrived],
                         .track = 1,
                         .to = others,
                         .from = others,
                         .message = static_cast<Word>(tile)});
  }
}

// How long rank 0 waited for a tile, the median of those that had a next one, in us.
double wait_us(const std::vector<Word>& data) {
  std::vector<Word> waits;
  for (int tile = 0; tile + 1 < kTiles; ++tile) {
    const Word* const clock = &data[static_cast<std::size_t>(kClock + tile * kTimes)];
    waits.push_back(clock[kArrived] - clock[kLooked]);
  }
  std::nth_element(waits.begin(), waits.begin() + kTiles / 2, waits.end());
  return static_cast<double>(waits[kTiles / 2]) / 1e3;
}

int main() {
  std::vector<Word> sums(kTiles * kElements);
  for (int i = 0; i < kTiles * kElements; ++i) {
    for (int rank = 0; rank < kRanks; ++rank)
      sums[static_cast<std::size_t>(i)] += part(rank, i / kElements, i % kElements);
  }
  const std::vector inputs(kRanks, std::vector<Word>(kEnd));
  double waited_us[2];
  for (const bool overlaps : {false, true}) {
    const auto ranks = ladder::run<nearlight::device::LL, Word>(
        {.nranks = kRanks, .shape = {.slots = kElements}}, inputs, Tiles{overlaps}, tell);
    const char* const name = overlaps ? "overlap" : "one after another";
    if (const int wrong = ladder::expect(name, ranks, std::vector(kRanks, sums)); wrong != 0) return wrong;
    waited_us[overlaps ? 1 : 0] = wait_us(ranks[0].data);
  }
  const double hidden_us = std::max(0.0, waited_us[0] - waited_us[1]);
  std::printf("exchange of a tile: %.2f us of waiting, %.2f us beside the next tile's work: %.0f %% hidden\n",
              waited_us[0], waited_us[1], waited_us[0] > 0 ? 100 * hidden_us / waited_us[0] : 0);
  return 0;
}
