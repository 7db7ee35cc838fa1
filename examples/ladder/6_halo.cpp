// Rung 6: a stencil. A rod is cut in pieces, one a rank; in every step each cell becomes the mean of its
// neighbours, so a rank needs its neighbours' outermost cells, and nobody else's: they are its peers.
#include "ladder/run.hpp"

constexpr int kCells = 32, kSteps = 100, kRanks = 4;

struct Halo {
  template <class Channel>
  NEARLIGHT_DEVICE_FN void operator()(Channel& ch, double* data) const {
    // data: two rods of kCells, each with a cell more at both ends, whose value stays as it is.
    const int lane = ch.coop().thread_rank();
    const bool has_left = ch.rank() > 0, has_right = ch.rank() + 1 < ch.nranks();
    for (int step = 0; step < kSteps; ++step) {
      double* const now = data + step % 2 * (kCells + 2);
      double* const next = data + (step + 1) % 2 * (kCells + 2);
      if (lane == 0) {
        if (has_left) ch.send(ch.rank() - 1, 0, now[1]);
        if (has_right) ch.send(ch.rank() + 1, 0, now[kCells]);
        if (has_left) ch.recv(ch.rank() - 1, 0, now[0]);
        if (has_right) ch.recv(ch.rank() + 1, 0, now[kCells + 1]);
      }
      ch.coop().sync();
      for (int i = 1 + lane; i <= kCells; i += ch.coop().size()) next[i] = (now[i - 1] + now[i + 1]) / 2;
      ch.advance_epoch();  // a sync as well
    }
  }
};

int main() {
  // The whole rod, by one thread.
  std::vector<double> rod(kRanks * kCells + 2), next(rod);
  rod.front() = next.front() = 1000;
  std::vector<std::vector<double>> inputs;
  for (int rank = 0; rank < kRanks; ++rank) {
    inputs.emplace_back(2 * (kCells + 2));
    if (rank == 0) inputs[0][0] = inputs[0][kCells + 2] = 1000;
  }
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t i = 1; i + 1 < rod.size(); ++i) next[i] = (rod[i - 1] + rod[i + 1]) / 2;
    rod.swap(next);
  }
  ladder::Plan plan{.nranks = kRanks, .shape = {.slots = 1}};
  plan.peers = [](int rank) {
    return (rank > 0 ? 1u << (rank - 1) : 0u) | (rank + 1 < kRanks ? 1u << (rank + 1) : 0u);
  };
  auto ranks = ladder::run<nearlight::device::LL>(plan, inputs, Halo{});
  std::vector<std::vector<double>> expected;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    auto& data = ranks[rank].data;
    if (data.size() > kCells) data = {data.begin() + 1, data.begin() + 1 + kCells};  // kSteps is even
    const auto first = rod.begin() + 1 + static_cast<std::ptrdiff_t>(rank * kCells);
    expected.emplace_back(first, first + kCells);
  }
  return ladder::expect("halo", ranks, expected);
}
