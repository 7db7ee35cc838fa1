// All-reduces with the RMSNorm that follows them in a model: fused into one kernel, and one after the other.
//
// To the engine they are all-reduces: what is added is zero, so that the sum, which is what recv gets, can be
// checked like any other; the normalised rows go into memory of their own.
#pragma once

#include <memory>

#include "cli/bench/contender.hpp"
#include "runtime/communicator.hpp"

namespace nearlight::bench {

// "nearlight_rms_norm": Communicator::fused of rows of `hidden` elements. On `device`, of a GPU.
std::unique_ptr<Contender> make_fused_contender(std::shared_ptr<runtime::Communicator> communicator,
                                                const runtime::CallOptions& options, std::size_t hidden,
                                                int device);

// `inner` and then a kernel that adds and normalises (nearlight's own, as one rank alone runs it); called
// `inner`'s name and "_then_rms_norm". Code::cuda_error and those of create_cuda_local().
Result<std::unique_ptr<Contender>> make_then_norm_contender(std::unique_ptr<Contender> inner,
                                                            std::size_t hidden, int device);

}  // namespace nearlight::bench
