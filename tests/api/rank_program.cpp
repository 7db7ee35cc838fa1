#include "tests/api/rank_program.hpp"

#include <signal.h>
#include <unistd.h>
#include <nearlight/device_host.hpp>
#include <nearlight/device_memory.hpp>
#include <nearlight/nearlight.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace nearlight::test {

namespace {

volatile sig_atomic_t told = 0;

Communicator create(const std::string& how, int rank, int nranks, const std::string& key,
                    const Config& config) {
  if (how == "cpp") return Communicator::host(rank, nranks, key, config);
  if (how == "job") return Communicator::host_of_job(config);
  const nearlightConfig_t c_config = config.to_c();
  nearlightComm_t comm = nullptr;
  const nearlightResult_t result =
      nearlightCommCreateHost(&comm, rank, nranks, key == "-" ? nullptr : key.c_str(), &c_config);
  if (result != nearlightSuccess) throw Error(static_cast<Code>(result), nearlightGetLastError());
  return Communicator(comm);
}

// Whole numbers, so that every order of adding gives the same.
bool reduce(Communicator& comm, std::size_t count) {
  const int rank = comm.rank(), nranks = comm.nranks();
  std::vector<float> data(count, static_cast<float>(rank + 1));
  comm.all_reduce(data.data(), data.data(), count, f32, sum);
  for (const float value : data) {
    if (value != static_cast<float>(nranks * (nranks + 1) / 2)) return false;
  }
  // Each rank multiplies by a factor of its own: 1 * 10 + 2 * 20 + ...
  const std::int64_t factor = 10 * (rank + 1);
  const Operator scaled = comm.premul_sum(i64, &factor);
  std::int64_t value = rank + 1, expected = 0;
  comm.all_reduce(&value, &value, 1, i64, scaled);
  for (int i = 1; i <= nranks; ++i) expected += 10 * i * i;
  return value == expected;
}

// On channels, whose memory the processes share as they share the collectives'.
bool exchange_messages(const Communicator& comm) {
  const device::Channels channels(comm, {.slots = 2});
  device::host::Channel<device::LL, device::host::Thread, true> ch(channels.memory());
  const int n = ch.nranks();
  for (int epoch = 0; epoch < 200; ++epoch) {
    int total = 0;
    const int own = epoch * 100 + ch.rank();
    if (!ch.bcast(1, own) || !ch.recv_reduce(1, own, std::plus<int>{}, total)) return false;
    if (total != n * epoch * 100 + n * (n - 1) / 2) return false;
    if (!ch.advance_epoch()) return false;
  }
  return true;
}

}  // namespace

int rank_main(int argc, char** argv) {
  if (argc < 7) return 5;
  ::alarm(180);  // should the test be killed
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  ::signal(SIGTERM, [](int) { told = 1; });
  Config config;
  config.create_timeout = std::chrono::milliseconds(std::atol(argv[6]));
  config.timeout = std::chrono::seconds(100);
  try {
    Communicator comm = create(argv[2], std::atoi(argv[3]), std::atoi(argv[4]), argv[5], config);
    std::printf("rank %d of %d\n", comm.rank(), comm.nranks());
    for (const std::size_t count : {1u, 1000u, 70'001u}) {
      if (!reduce(comm, count)) return 4;
    }
    if (!exchange_messages(comm)) {
      std::printf("messages: %s\n", comm.status().text.c_str());
      return 4;
    }
    std::printf("all right\n");
    // All stop after the same call: who leaves early makes the others' calls fail.
    for (std::int32_t stop = 0; stop == 0;) {
      stop = told;
      comm.all_reduce(&stop, &stop, 1, i32, max);
    }
  } catch (const Error& error) {
    std::printf("code %d: %s\n", static_cast<int>(error.code()), error.what());
    return 3;
  }
  return 0;
}

}  // namespace nearlight::test
