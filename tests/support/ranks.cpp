#include "tests/support/ranks.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "bootstrap/fork_group.hpp"
#include "bootstrap/in_process.hpp"
#include "bootstrap/process_group.hpp"
#include "runtime/create.hpp"

namespace nearlight::test {

namespace {

struct Report {
  bool finished;
  char text[2048];
};

std::string join(std::span<const Report> reports, const bootstrap::ForkOutcome* outcome,
                 std::uint32_t may_die) {
  std::string all;
  const auto add = [&](std::size_t rank, const std::string& text) {
    all += "\n  rank " + std::to_string(rank) + ": " + text;
  };
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    if (reports[rank].text[0] != '\0') add(rank, reports[rank].text);
    const bool forgiven = (may_die >> rank & 1) != 0;
    if (outcome != nullptr && !outcome->ranks[rank].ok() && !forgiven)
      add(rank, outcome->ranks[rank].to_string());
    if (!reports[rank].finished && !forgiven && outcome == nullptr) add(rank, "did not finish");
  }
  return all;
}

void run_one(Exchange& exchange, const std::function<void(Exchange&, Problems&)>& body, Report& report) {
  Problems problems;
  body(exchange, problems);
  std::strncpy(report.text, problems.text().c_str(), sizeof report.text - 1);
  report.finished = true;
}

std::string run_met(int nranks, const std::function<void(Exchange&, Problems&)>& body) {
  std::vector<Report> reports(static_cast<std::size_t>(nranks));
  const std::string key = fresh_key();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nranks; ++rank) {
    threads.emplace_back([&, rank] {
      Report& report = reports[static_cast<std::size_t>(rank)];
      auto exchange = bootstrap::join_process_group({rank, nranks, key}, Deadline::after_ms(60'000));
      if (exchange.ok()) return run_one(**exchange, body, report);
      std::strncpy(report.text, exchange.status().to_string().c_str(), sizeof report.text - 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return join(reports, nullptr, 0);
}

std::string run_threads(int nranks, const std::function<void(Exchange&, Problems&)>& body) {
  std::vector<Report> reports(static_cast<std::size_t>(nranks));
  auto exchanges = bootstrap::make_in_process_group(nranks);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < exchanges.size(); ++rank) {
    threads.emplace_back([&, rank] { run_one(*exchanges[rank], body, reports[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  return join(reports, nullptr, 0);
}

std::string run_processes(int nranks, const std::function<void(Exchange&, Problems&)>& body,
                          const RunOptions& options, std::uint32_t may_die) {
  struct Reports {
    Report rank[bootstrap::kMaxForkRanks];
  };
  const Shared<Reports> reports;
  const auto outcome =
      bootstrap::run_forked(nranks,
                            [&](Exchange& exchange) {
                              run_one(exchange, body, reports->rank[exchange.rank()]);
                              return 0;
                            },
                            {.time_limit = options.time_limit, .on_started = options.on_started});
  if (!outcome.ok()) return "run_forked: " + outcome.status().to_string();
  return join(std::span(reports->rank, static_cast<std::size_t>(nranks)), &outcome.value(), may_die);
}

}  // namespace

std::string run_ranks(Kind kind, int nranks, const std::function<void(Exchange&, Problems&)>& body,
                      const RunOptions& options, std::uint32_t may_die) {
  switch (kind) {
    case Kind::threads:
      return run_threads(nranks, body);
    case Kind::processes:
      return run_processes(nranks, body, options, may_die);
    case Kind::met:
      return run_met(nranks, body);
  }
  return "no such kind of rank";
}

std::string run_communicators(Kind kind, int nranks, const runtime::Options& options,
                              const std::function<void(runtime::Communicator&, Exchange&, Problems&)>& body) {
  return run_ranks(kind, nranks, [&](Exchange& exchange, Problems& problems) {
    auto comm = runtime::create_host(exchange, options);
    if (!comm.ok()) return problems.add("create_host: %s", comm.status().to_string().c_str());
    body(**comm, exchange, problems);
    // Nobody leaves before all are done: a process that ends makes the others' communicators fail.
    meet(exchange, problems);
  });
}

std::string fresh_key() {
  static std::atomic<int> count{0};
  return "test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

runtime::Options patient() {
  runtime::Options options;
  options.timeout = std::chrono::seconds(120);
  options.create_timeout = std::chrono::seconds(120);
  return options;
}

void expect_failure(Problems& problems, std::string_view where, const Status& status, Code code,
                    std::initializer_list<std::string_view> words) {
  const int length = static_cast<int>(where.size());
  if (status.code() != code) {
    problems.add("%.*s: expected \"%s\", got \"%s\"", length, where.data(), code_name(code),
                 status.to_string().c_str());
  }
  for (const std::string_view word : words) {
    if (status.text().find(word) != std::string::npos) continue;
    problems.add("%.*s: no \"%.*s\" in \"%s\"", length, where.data(), static_cast<int>(word.size()),
                 word.data(), status.to_string().c_str());
  }
}

void meet(Exchange& exchange, Problems& problems) {
  const Status met = exchange.barrier(Deadline::after(std::chrono::seconds(120)));
  if (!met.ok()) problems.add("barrier of the test: %s", met.to_string().c_str());
}

bool wait_until(const std::function<bool()>& done, std::chrono::milliseconds limit) {
  const Deadline deadline = Deadline::after(limit);
  while (!done()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

std::int64_t clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace nearlight::test
