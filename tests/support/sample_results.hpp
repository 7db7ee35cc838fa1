// A result file without a fault, to plant faults in.
#pragma once

#include "cli/results.hpp"

namespace nearlight::test {

inline cli::ResultRow sample_row(const cli::Floors& floors, const std::string& impl, double p50_us) {
  cli::ResultRow row;
  row.bytes = 4096;
  row.dtype = "bf16";
  row.op = "sum";
  row.ranks = 2;
  row.mode = cli::Mode::graph;
  row.chain = 100;
  row.impl = impl;
  if (impl == cli::kOwnImpl) {
    row.algorithm = "one_shot";
    row.protocol = "ll";
    row.grid = 16;
  }
  trace::Summary summary;
  summary.count = 20'000;
  summary.min_us = p50_us * 0.9;
  summary.p50_us = p50_us;
  summary.p95_us = p50_us * 1.1;
  summary.p99_us = p50_us * 1.2;
  summary.p999_us = p50_us * 1.5;
  summary.max_us = p50_us * 3;
  cli::set_times(row, summary, floors);
  return row;
}

inline cli::ResultFile sample_results() {
  cli::ResultFile file;
  file.date = "2026-11-30T10:20:30Z";
  file.commit = "0123456789abcdef0123456789abcdef01234567";
  file.command = "nearlight bench all_reduce --json out.json";
  file.env = {{"CUDA_DEVICE_MAX_CONNECTIONS", "32"}, {"NCCL_NVLS_ENABLE", "0"}};
  file.machine = {"NVIDIA H200", 2, "NVLink", "580.159.04", "13.0", "2.28.9", "some processor"};
  file.floors.l2rtt_us = 0.14;
  file.floors.one_way_us = 0.68;
  file.floors.sol_us = 0.82;
  file.floors.store_gbs = 340;
  file.floors.launch_floor_us = 0.53;
  file.floors.launch_floor_pdl_us = 0.44;
  file.rows = {sample_row(file.floors, "nearlight", 1.6), sample_row(file.floors, "nccl", 5.9)};
  return file;
}

}  // namespace nearlight::test
