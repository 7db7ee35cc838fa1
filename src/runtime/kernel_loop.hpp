// Kernel mode: many all-reduces inside one kernel (on the CPU: one loop), each timed by the clock of the
// place it runs on.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/communicator.hpp"

namespace nearlight::runtime {

// `samples` readings of the clock with `chain` operations between two of them.
struct LoopPlan {
  std::uint32_t samples = 0;
  std::uint32_t chain = 1;
  // GPU, one CTA: the SM that runs it (SMs differ in how far they are from the other GPU). Unset: where the
  // GPU puts it.
  std::optional<std::uint32_t> sm = {};
};

// Runs samples * chain all-reduces back to back and waits for them. All ranks call it at the same time, each
// from its own thread. op_ns[i]: nanoseconds an operation took in sample i, on the slowest CTA of this rank
// (GPU: SM cycles, scaled by the time of the whole loop). The caller takes the slowest rank.
//
// Successive operations use different banks, whose lines may differ in speed, and the ranks fall into step so
// that one rank's slow operation is another's fast one. With chain 1 the slowest rank of each sample is
// therefore always the slow one, and the samples add up to more than the time that passed. An even chain
// measures what passes.
//
// On a GPU only where there is code made for the operator (algorithm::has_own_code()); else
// Code::unsupported.
Status run_all_reduce_loop(Communicator& communicator, const void* send, void* recv, std::size_t count,
                           DataType type, const Reduction& op, const LoopPlan& plan,
                           std::vector<double>& op_ns, Stream stream, const CallOptions& options = {});

// What each of them runs: where no kernel with a loop has the protocol that a single call would take,
// another.
Result<route::Route> explain_all_reduce_loop(const Communicator& communicator, std::size_t count,
                                             DataType type, ReduceOp op, const CallOptions& options = {});

}  // namespace nearlight::runtime
