// What is built on top of an exchange, whichever it is.
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "base/exchange.hpp"
#include "bootstrap/in_process.hpp"

namespace nearlight {
namespace {

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

std::vector<Status> on_ranks(int nranks, const std::function<Status(Exchange&)>& body) {
  auto exchanges = bootstrap::make_in_process_group(nranks);
  std::vector<Status> results(exchanges.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < exchanges.size(); ++rank) {
    threads.emplace_back([&, rank] { results[rank] = body(*exchanges[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(GatherValues, InRankOrder) {
  struct Value {
    int rank;
    double square;
  };
  const auto results = on_ranks(5, [](Exchange& exchange) -> Status {
    const int rank = exchange.rank();
    NL_TRY_ASSIGN(const auto all, gather_values(exchange, Value{rank, 1.0 * rank * rank}, soon()));
    for (int peer = 0; peer < 5; ++peer) {
      const Value& value = all[static_cast<std::size_t>(peer)];
      if (value.rank != peer || value.square != 1.0 * peer * peer)
        return failure(Code::internal_error, "value of rank %d", peer);
    }
    return {};
  });
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result.to_string();
}

TEST(Agree, AllGoOnWhenAllAreWell) {
  for (const Status& result :
       on_ranks(3, [](Exchange& exchange) { return agree(exchange, Status(), soon()); })) {
    EXPECT_TRUE(result.ok()) << result.to_string();
  }
}

TEST(Agree, AllStopWhenOneIsNot) {
  const auto results = on_ranks(3, [](Exchange& exchange) {
    return agree(exchange,
                 exchange.rank() == 1 ? failure(Code::cuda_error, "cudaMalloc: out of memory") : Status(),
                 soon());
  });
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].code(), Code::cuda_error);
    EXPECT_EQ(results[rank].text(),
              rank == 1 ? "cudaMalloc: out of memory" : "rank 1: cudaMalloc: out of memory");
  }
}

// The lowest rank's failure counts for those who are well; who fails keeps its own.
TEST(Agree, TheLowestRankIsHeard) {
  const auto results = on_ranks(4, [](Exchange& exchange) {
    const int rank = exchange.rank();
    return agree(exchange, rank >= 2 ? failure(Code::system_error, "reason %d", rank) : Status(), soon());
  });
  EXPECT_EQ(results[0].text(), "rank 2: reason 2");
  EXPECT_EQ(results[1].text(), "rank 2: reason 2");
  EXPECT_EQ(results[2].text(), "reason 2");
  EXPECT_EQ(results[3].text(), "reason 3");
}

TEST(Agree, LongTextsAreCutForTheOthers) {
  const std::string text(1000, 'y');
  const auto results = on_ranks(2, [&](Exchange& exchange) {
    return agree(exchange, exchange.rank() == 0 ? Status(Code::timeout, text) : Status(), soon());
  });
  EXPECT_EQ(results[0].text(), text);
  EXPECT_EQ(results[1].text(), "rank 0: " + text.substr(0, 200));
}

TEST(Agree, WhoIsMissingIsNamed) {
  const auto results = on_ranks(2, [](Exchange& exchange) -> Status {
    if (exchange.rank() == 1) return {};
    return agree(exchange, Status(), Deadline::after_ms(50));
  });
  EXPECT_TRUE(results[0].code() == Code::timeout || results[0].code() == Code::remote_error)
      << results[0].to_string();
  EXPECT_NE(results[0].text().find('1'), std::string::npos);
}

}  // namespace
}  // namespace nearlight
