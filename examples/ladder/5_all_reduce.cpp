// Rung 5: an AllReduce of one's own. Every rank sends its numbers to all others and adds what comes, in rank
// order, so that all have the same bits. The operator is anything: here a sum and a maximum at once.
#include "ladder/run.hpp"

constexpr int kCount = 64, kRounds = 20, kRanks = 3;

struct Pair {
  float sum, most;
  bool operator==(const Pair& other) const { return sum == other.sum && most == other.most; }
};
struct SumAndMost {
  NEARLIGHT_DEVICE_FN Pair operator()(const Pair& a, const Pair& b) const {
    return {a.sum + b.sum, a.most > b.most ? a.most : b.most};
  }
};

struct AllReduce {
  template <class Channel>
  NEARLIGHT_DEVICE_FN void operator()(Channel& ch, Pair* data) const {
    for (int round = 0; round < kRounds; ++round) {
      for (int i = ch.coop().thread_rank(); i < kCount; i += ch.coop().size())
        ch.bcast(static_cast<unsigned>(i), data[i]);
      for (int i = ch.coop().thread_rank(); i < kCount; i += ch.coop().size())
        ch.recv_reduce(static_cast<unsigned>(i), data[i], SumAndMost{}, data[i]);
      ch.advance_epoch();
    }
  }
};

int main() {
  std::vector<std::vector<Pair>> inputs(kRanks), expected(kRanks);
  for (int i = 0; i < kCount; ++i) {
    Pair all{0, 0};
    for (int rank = 0; rank < kRanks; ++rank) {
      const float value = static_cast<float>(i * 10 + rank);
      inputs[static_cast<std::size_t>(rank)].push_back({value / 1024, value});
      all = {all.sum + value / 1024, value};
    }
    // From the second round on, all have the same.
    for (int round = 1; round < kRounds; ++round) all.sum = all.sum + all.sum + all.sum;
    for (auto& rank : expected) rank.push_back(all);
  }
  const auto ranks =
      ladder::run<nearlight::device::LL>({.nranks = kRanks, .shape = {.slots = kCount}}, inputs, AllReduce{});
  return ladder::expect("all-reduce", ranks, expected);
}
