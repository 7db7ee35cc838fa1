// Rung 1: one message, one way. Rank 0 sends a number to rank 1; the message is its own flag.
#include "ladder/run.hpp"

struct OneWay {
  template <class Channel>
  NEARLIGHT_DEVICE_FN void operator()(Channel& ch, int* data) const {
    if (ch.coop().thread_rank() == 0) {
      int answer = 0;
      if (ch.rank() == 0) {
        ch.send(1, 0, data[0]);
        ch.recv(1, 0, answer);  // the credit: rank 1 has read it
      } else {
        ch.recv(0, 0, data[0]);
        ch.send(0, 0, answer);
      }
    }
    ch.advance_epoch();
  }
};

int main() {
  const auto ranks = ladder::run<nearlight::device::LL>({.shape = {.slots = 1}},
                                                        std::vector<std::vector<int>>{{42}, {0}}, OneWay{});
  return ladder::expect("one way", ranks, {{42}, {42}});
}
