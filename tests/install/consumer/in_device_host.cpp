// What a kernel does, run by threads: three ranks add their values.
#include <nearlight/device_host.hpp>

#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

namespace device = nearlight::device;

template <class Channel>
NEARLIGHT_DEVICE_FN bool sum_of_ranks(Channel& ch, float& value) {
  const float own = value;
  return ch.bcast(0, own) && ch.recv_reduce(0, own, std::plus<float>{}, value);
}

int main() {
  device::host::LocalRanks ranks({.nranks = 3, .slots = 1});
  std::vector<float> results(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      device::host::Channel<device::LL> ch(ranks.memory(rank));
      float value = static_cast<float>(rank) + 1;
      if (sum_of_ranks(ch, value)) results[static_cast<std::size_t>(rank)] = value;
    });
  }
  for (auto& thread : threads) thread.join();
  for (const float result : results) {
    if (result != 6) return 1;
  }
  std::printf("device API on a CPU: ok\n");
  return 0;
}
