// NVSHMEM as a peer: one process a GPU, its own reductions on a stream.
#pragma once

#include <memory>

#include "base/exchange.hpp"
#include "base/status.hpp"
#include "cli/bench/contender.hpp"

namespace nearlight::peers {

// This process's part in NVSHMEM, which it leaves when the last that uses it is gone.
class Nvshmem;

// Collective; once a process, one rank on a GPU, the current device. Code::unsupported where it is not there.
Result<std::shared_ptr<Nvshmem>> join_nvshmem(Exchange& exchange);

std::unique_ptr<bench::Contender> make_nvshmem_contender(std::shared_ptr<Nvshmem> nvshmem);

}  // namespace nearlight::peers
