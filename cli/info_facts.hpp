// What `nearlight info` tells, as data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "probe/gpu_facts.hpp"

namespace nearlight::cli {

struct BackendFact {
  std::string name;  // "host", "cuda_vmm", "nccl_window", "openmpi"
  bool available = false;
  std::string why;  // what it needs or what is missing
};

struct RouteFact {
  std::size_t bytes = 0;
  std::string algorithm, protocol, reason;
  std::uint32_t grid = 0, threads = 0;
};

// The route table that two ranks would choose by.
struct TableFact {
  std::string source;   // where it is from
  std::string problem;  // "": none; else why a communicator could not be made
  std::vector<std::pair<std::string, std::uint64_t>> numbers;
};

struct InfoFacts {
  std::string version, commit, build_type, compiler;
  std::string cuda_compiler;  // "": built without CUDA
  std::string nccl_headers;   // "2.28.9", "no"
  std::string cpu;
  std::string place;          // which rank of which group this process would be
  std::string place_problem;  // "": none; else why it cannot be told
  std::vector<BackendFact> backends;
  probe::GpuFacts gpus;
  std::string lines;  // whether lines of 128 bytes arrive whole between GPUs, so that ll128 may be chosen
  std::string nccl_path, nccl_version;  // "": none would be used
  std::string nccl_faults;              // of this version, which hand-over avoids; "" for none known
  std::string nccl_problem;             // why none, or why it is refused
  TableFact host_table, gpu_table;
  std::vector<RouteFact> host_routes, gpu_routes;
  std::vector<std::pair<std::string, std::string>> limits;
};

// Never fails: what cannot be found out says why.
InfoFacts gather_info();
std::string info_json(const InfoFacts& facts);

}  // namespace nearlight::cli
