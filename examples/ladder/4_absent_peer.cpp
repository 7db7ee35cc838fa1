// Rung 4: something goes wrong. Rank 1 never comes: the wait of rank 0 ends at its limit, its number is as it
// was, and the communicator says whom it waited for.
#include "ladder/run.hpp"

struct WaitForPeer {
  template <class Channel>
  NEARLIGHT_DEVICE_FN void operator()(Channel& ch, int* data) const {
    if (ch.coop().thread_rank() == 0 && !ch.recv(1, 0, data[0])) data[1] = 1;
    if (!ch.advance_epoch()) data[2] = 1;  // fails as well, and waits for nothing
  }
};

int main() {
  const auto ranks = ladder::run<nearlight::device::LL>(
      {.shape = {.slots = 1}, .timeout = std::chrono::milliseconds(50), .absent = 1},
      std::vector<std::vector<int>>{{7, 0, 0}, {}}, WaitForPeer{});
  const auto& status = ranks[0].status;
  std::printf("absent peer: %s%s\n", ranks[0].error.c_str(), status.text.c_str());
  const bool right = ranks[0].data == std::vector<int>{7, 1, 1} && status.code == nearlight::Code::timeout &&
                     status.peer == 1;
  return right ? 0 : 1;
}
