#include "tests/mp/rank_program.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bootstrap/job.hpp"
#include "bootstrap/process_group.hpp"
#include "runtime/create.hpp"

namespace nearlight::test {

namespace {

int failed(const char* where, const Status& status) {
  std::printf("%s: %s\n", where, status.to_string().c_str());
  return 3;
}

// Whole numbers, so that every order of adding gives the same.
template <class T>
Result<bool> reduce(runtime::Communicator& comm, DataType type, std::size_t count) {
  std::vector<T> data(count);
  for (std::size_t i = 0; i < count; ++i)
    data[i] = static_cast<T>(comm.rank() * 100) + static_cast<T>(i % 1000);
  NL_TRY(comm.all_reduce(data.data(), data.data(), count, type, ReduceOp::sum, nullptr));
  const int n = comm.nranks();
  for (std::size_t i = 0; i < count; ++i) {
    if (data[i] == static_cast<T>(n * (n - 1) / 2 * 100) + static_cast<T>(n) * static_cast<T>(i % 1000))
      continue;
    std::printf("element %zu of %zu is wrong\n", i, count);
    return false;
  }
  return true;
}

int reduce_some(runtime::Communicator& comm) {
  for (const std::size_t count : {1u, 7u, 1000u, 70'001u}) {
    for (const DataType type : {DataType::i32, DataType::f32}) {
      const auto right =
          type == DataType::i32 ? reduce<std::int32_t>(comm, type, count) : reduce<float>(comm, type, count);
      if (!right.ok()) return failed("all_reduce", right.status());
      if (!*right) return 4;
    }
  }
  return 0;
}

// Nothing holds the ranks together but the meetings: one is in the next while others still destroy the last.
int cycle(const bootstrap::Job& job, std::chrono::milliseconds limit) {
  std::mt19937 random(static_cast<unsigned>(job.rank));
  runtime::Options options;
  options.timeout = limit;
  options.create_timeout = limit;
  for (int i = 0; i < 50; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 4 == 0 ? random() % 40'000 : 0));
    auto exchange = bootstrap::join_process_group({job.rank, job.nranks, job.key}, Deadline::after(limit));
    if (!exchange.ok()) return failed("meeting", exchange.status());
    const auto comm = runtime::create_host(std::move(*exchange), options);
    if (!comm.ok()) return failed("create_host", comm.status());
    // Another value each time, so that what a late rank sends to the last group is not taken for this one's.
    std::int32_t value = 100 * i + job.rank;
    const Status status = (*comm)->all_reduce(&value, &value, 1, DataType::i32, ReduceOp::sum, nullptr);
    if (!status.ok()) return failed("all_reduce", status);
    if (value != job.nranks * 100 * i + job.nranks * (job.nranks - 1) / 2) return 4;
  }
  std::printf("all right\n");
  return 0;
}

}  // namespace

int rank_main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[2] : "";
  const auto milliseconds = [&](int at, long usual) {
    return std::chrono::milliseconds(argc > at ? std::atol(argv[at]) : usual);
  };
  ::alarm(180);  // should the test be killed
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::this_thread::sleep_for(milliseconds(4, 0));
  const auto job = bootstrap::find_job();
  if (!job.ok()) return failed("find_job", job.status());
  std::printf("rank %d of %d; %s\n", job->rank, job->nranks, job->source.c_str());
  const auto limit = milliseconds(3, 60'000);
  if (mode == "cycles") return cycle(*job, limit);
  const auto exchange =
      bootstrap::join_process_group({job->rank, job->nranks, job->key}, Deadline::after(limit));
  if (!exchange.ok()) return failed("meeting", exchange.status());
  if (mode == "meet") return 0;

  runtime::Options options;
  options.timeout = limit;
  options.create_timeout = limit;
  const auto comm = runtime::create_host(**exchange, options);
  if (!comm.ok()) return failed("create_host", comm.status());
  if (mode == "reduce") {
    if (const int bad = reduce_some(**comm); bad != 0) return bad;
    // Nobody leaves before all are done: a process that ends makes the others' communicators fail.
    if (const Status met = (*exchange)->barrier(Deadline::after(limit)); !met.ok())
      return failed("barrier", met);
    std::printf("all right\n");
    return 0;
  }
  for (std::int64_t call = 0;; ++call) {
    const auto right = reduce<std::int32_t>(**comm, DataType::i32, 1000);
    if (!right.ok()) return failed("all_reduce", right.status());
    if (!*right) return 4;
    if (call == 100) std::printf("going\n");
  }
}

}  // namespace nearlight::test
