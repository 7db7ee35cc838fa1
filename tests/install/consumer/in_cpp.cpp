// Two CPU ranks, each a thread, in C++.
#include <nearlight/nearlight.hpp>

#include <cstdio>
#include <thread>

int main() {
  try {
    auto comms = nearlight::Communicator::host_group(2);
    std::vector<double> results(2);
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        float value = static_cast<float>(rank) + 1;
        comms[rank].all_reduce(&value, &value, 1, nearlight::f32, nearlight::sum);
        results[rank] = value;
      });
    }
    for (auto& thread : threads) thread.join();
    if (results[0] != 3 || results[1] != 3) return 1;
    comms[0].all_reduce(nullptr, nullptr, 1, nearlight::f32, nearlight::sum);
  } catch (const nearlight::Error& error) {
    // The last call, and nothing else, is meant to fail.
    if (error.code() != nearlight::Code::invalid_argument) {
      std::fprintf(stderr, "%s\n", error.what());
      return 1;
    }
    std::printf("C++: ok\n");
    return 0;
  }
  return 1;
}
