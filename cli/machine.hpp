// Describes the machine a result was measured on.
#pragma once

#include <string>
#include <vector>

#include "cli/results.hpp"
#include "probe/gpu_facts.hpp"

namespace nearlight::cli {

// Model name of the processor from /proc/cpuinfo, and how many this process may use: "AMD EPYC 9454, 96
// CPUs".
std::string cpu_name();

// `devices`: indices into facts.devices of those that took part, each once (empty: a CPU run). `nccl`:
// version that was used, "" for none.
Machine describe_machine(const probe::GpuFacts& facts, const std::vector<int>& devices,
                         const std::string& nccl);

}  // namespace nearlight::cli
