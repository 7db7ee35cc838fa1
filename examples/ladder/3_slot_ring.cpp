// Rung 3: many messages through a ring of slots. A lap of the ring is an epoch; rank 1 begins each with a
// credit, which says that it has read the lap before, so rank 0 may be a lap ahead and never more.
#include "ladder/run.hpp"

constexpr int kRing = 16, kLaps = 50;

struct SlotRing {
  template <class Channel>
  NEARLIGHT_DEVICE_FN void operator()(Channel& ch, long long* data) const {
    const int first = ch.coop().thread_rank(), step = ch.coop().size();
    for (int lap = 0; lap < kLaps; ++lap) {
      int credit = lap;
      if (ch.rank() == 0) {
        for (int slot = first; slot < kRing; slot += step)
          ch.send(1, static_cast<unsigned>(slot), data[lap * kRing + slot]);
        if (first == 0) ch.recv(1, 0, credit);
      } else {
        if (first == 0) ch.send(0, 0, credit);
        for (int slot = first; slot < kRing; slot += step)
          ch.recv(0, static_cast<unsigned>(slot), data[lap * kRing + slot]);
      }
      ch.advance_epoch();
    }
  }
};

int main() {
  std::vector<long long> sent(kRing * kLaps), nothing(kRing * kLaps);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<long long>(i * i + 1);
  const auto ranks =
      ladder::run<nearlight::device::LL>({.shape = {.slots = kRing}}, std::vector{sent, nothing}, SlotRing{});
  return ladder::expect("slot ring", ranks, {sent, sent});
}
