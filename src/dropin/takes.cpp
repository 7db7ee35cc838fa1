#include "dropin/takes.hpp"

#include <vector>

#include "runtime/collective_call.hpp"

namespace nearlight::dropin {

namespace {

// ncclRedOp_t from here on (ncclNumOps) is an operator that a program has made.
constexpr int kBuiltInOps = 5;

// One collective of nearlight for one of NCCL's. A new one is a row.
struct Row {
  Function function;
  Collective collective;
};
constexpr Row kRows[] = {
    {Function::all_reduce, Collective::all_reduce},
    {Function::all_gather, Collective::all_gather},
    {Function::reduce_scatter, Collective::reduce_scatter},
    {Function::broadcast, Collective::broadcast},
    {Function::reduce, Collective::reduce},
    {Function::all_to_all, Collective::all_to_all},
    {Function::send, Collective::send_recv},
    {Function::recv, Collective::send_recv},
};

const Row* row_of(Function function) {
  for (const Row& row : kRows) {
    if (row.function == function) return &row;
  }
  return nullptr;
}

Takes bit_of(Function function) { return Takes{1} << static_cast<int>(function); }

runtime::CollectiveCall call_of(const Row& row, const Operation& operation) {
  runtime::CollectiveCall call{row.collective, operation.send, operation.recv, operation.count,
                               static_cast<DataType>(operation.type)};
  if (is_reduction(row.collective)) call.op = static_cast<ReduceOp>(operation.op);
  if (has_root(row.collective)) call.root = operation.root;
  return call;
}

runtime::MessageCall message_of(const Operation& operation) {
  const bool sends = operation.function == Function::send;
  return {sends, sends ? const_cast<void*>(operation.send) : operation.recv, operation.count,
          static_cast<DataType>(operation.type), operation.root};
}

Result<route::Route> route_of(const runtime::Communicator& communicator, const Row& row,
                              const Operation& operation) {
  if (row.collective == Collective::all_reduce) {
    return communicator.explain_all_reduce(operation.count, static_cast<DataType>(operation.type),
                                           static_cast<ReduceOp>(operation.op));
  }
  if (operation.is_message()) return communicator.explain_message(message_of(operation));
  return communicator.explain(call_of(row, operation));
}

// Memory that a program reads and writes in one call is no error to NCCL.
constexpr runtime::CallOptions as_nccl() {
  runtime::CallOptions options;
  options.may_overlap = true;
  return options;
}

}  // namespace

Takes all_takes() {
  Takes takes = 0;
  for (const Row& row : kRows) takes |= bit_of(row.function);
  return takes;
}

Result<Takes> parse_takes(std::string_view text) {
  if (text == "all") return all_takes();
  Takes takes = 0;
  std::string known;
  for (const Row& row : kRows) {
    if (row.function == Function::recv) continue;  // send_recv's second
    known += std::string(known.empty() ? "" : ", ") + name_of(row.collective);
  }
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    Takes found = 0;
    for (const Row& row : kRows) {
      if (word == name_of(row.collective)) found |= bit_of(row.function);
    }
    if (found == 0) {
      return failure(Code::invalid_argument,
                     "NEARLIGHT_DROPIN_TAKES: there is no \"%.*s\"; it takes all, or of %s",
                     static_cast<int>(word.size()), word.data(), known.c_str());
    }
    takes |= found;
  }
  return takes;
}

Verdict decide(const runtime::Communicator& communicator, Takes takes, const Operation& operation) {
  const Row* const row = row_of(operation.function);
  if (row == nullptr) return {false, "nearlight does not take this function"};
  if ((takes & bit_of(operation.function)) == 0)
    return {false, "NEARLIGHT_DROPIN_TAKES leaves this function to NCCL"};
  if (is_reduction(row->collective) && (operation.op < 0 || operation.op >= kBuiltInOps))
    return {false, "an operator that the program has made"};
  const auto route = route_of(communicator, *row, operation);
  // By what is the same on all ranks, as a route is.
  if (!route.ok()) return {false, for_ever(route.status().text().c_str())};
  return {route.value().algorithm != route::Algorithm::nccl, route.value().reason};
}

Status run(runtime::Communicator& communicator, const Operation& operation) {
  const Row* const row = row_of(operation.function);
  if (row == nullptr) return failure(Code::internal_error, "no code for %s", name_of(operation.function));
  if (row->collective == Collective::all_reduce) {
    return communicator.all_reduce(operation.send, operation.recv, operation.count,
                                   static_cast<DataType>(operation.type), static_cast<ReduceOp>(operation.op),
                                   operation.stream, as_nccl());
  }
  if (operation.is_message()) return run_together(communicator, {&operation, 1});
  return communicator.collective(call_of(*row, operation), operation.stream, as_nccl());
}

Status run_together(runtime::Communicator& communicator, std::span<const Operation> messages) {
  std::vector<runtime::MessageCall> calls;
  calls.reserve(messages.size());
  for (const Operation& message : messages) calls.push_back(message_of(message));
  return communicator.messages(calls, messages.front().stream, as_nccl());
}

}  // namespace nearlight::dropin
