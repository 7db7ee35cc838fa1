// Check mode: the ranks tell each other what they are about to run, and run it only when all mean the same.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>

#include "base/collective.hpp"
#include "base/exchange.hpp"
#include "base/status.hpp"
#include "base/types.hpp"
#include "runtime/collective_call.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::runtime {

// What must be the same on all ranks.
struct Call {
  Collective collective;
  std::size_t count;
  DataType type;
  ReduceOp op;
  std::uint64_t path = 0;  // the forced path, as number_of() in steering.hpp has it
  CallOptions options = {};
  bool captured = false;  // into a CUDA graph
  int root = 0;
  // Of calls in which each rank has its own, which all ranks must give alike; else zeros.
  std::array<std::uint64_t, protocol::kMaxRanks> counts = {};
  // Of a fused call; else zeros.
  struct Rows {
    std::size_t hidden = 0;
    DataType output_type = DataType::i8;
    std::uint32_t eps_bits = 0;
    bool has_residual = false;
  };
  Rows rows = {};
  // Of a product, as far as all ranks must have the same; else 0.
  std::size_t out_size = 0;
};
// Of a fused call and of a product.
Call to_compare(const FusedCall& call);
Call to_compare(const GemvCall& call);
// Those of a call by parts.
std::array<std::uint64_t, protocol::kMaxRanks> counts_of(const CollectiveCall& call, int nranks);

// Collective. `number`: how many calls of this communicator were compared before. A difference is
// Code::invalid_usage on every rank, and names the first field that differs with both values and the rank;
// the exchange stays usable. Any other failure is the exchange's: a rank that does not come is named.
Status check_calls_agree(Exchange& exchange, const Call& call, std::uint64_t number, Deadline deadline);

// The same for ranks of one process whose calls must not wait for each other, since one thread may make them
// all: whoever comes second to a call finds the difference, and it ends the waits of the others. Any thread.
class CallLedger {
 public:
  // Ends the waits of a rank, for a reason; called under the ledger's lock.
  using Stop = std::function<void(const Status&)>;

  explicit CallLedger(int nranks) : nranks_(nranks) {}
  void join(int rank, Stop stop);
  // Afterwards its `stop` is not called any more.
  void leave(int rank);
  // Rank `rank` is about to make its call `number`. Code::invalid_usage names the field, both values and both
  // ranks; the others have then been stopped with the same.
  Status post(int rank, std::uint64_t number, const Call& call);
  // Calls begin at number 0 again.
  void clear();

 private:
  struct Entry {
    Call call;
    int rank;        // who came first
    int passed = 1;  // ranks that have come
  };
  // Calls of a rank that is so far ahead of another are not compared any more.
  static constexpr std::size_t kMost = 65536;

  const int nranks_;
  std::mutex mutex_;
  std::map<int, Stop> stops_;
  std::deque<Entry> entries_;
  std::uint64_t first_ = 0;  // number of the first entry
};

}  // namespace nearlight::runtime
