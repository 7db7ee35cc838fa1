#include "route/table.hpp"

#include <algorithm>

namespace nearlight::route {

namespace {

// Above these a number is a mistake, or would want more scratch than a GPU should lend.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30, kMostSentinelBytes = std::uint64_t{64} << 20;

constexpr TableField kCpuFields[] = {{"ll_limit_bytes", &Table::ll_limit_bytes, 0, kMostBytes, 1}};
constexpr TableField kGpuFields[] = {
    {"ll_limit_bytes", &Table::ll_limit_bytes, 0, kMostBytes, 1},
    {"sentinel_first_bytes", &Table::sentinel_first_bytes, 0, kMostBytes, 1},
    {"sentinel_limit_bytes", &Table::sentinel_limit_bytes, 0, kMostSentinelBytes, 1},
    {"sentinel_any_first_bytes", &Table::sentinel_any_first_bytes, 0, kMostBytes, 1},
    {"sentinel_any_limit_bytes", &Table::sentinel_any_limit_bytes, 0, kMostSentinelBytes, 1},
    {"ll128_first_bytes", &Table::ll128_first_bytes, 0, kMostBytes, 1},
    {"ll128_limit_bytes", &Table::ll128_limit_bytes, 0, kMostSentinelBytes, 1},
    {"two_shot_gain_bytes", &Table::two_shot_gain_bytes, 0, kMostBytes, 1},
    {"nccl_first_bytes", &Table::nccl_first_bytes, 0, kMostBytes, 1},
    {"few_ctas", &Table::few_ctas, 1, algorithm::kFewCtas, 1},
    {"ll_threads", &Table::ll_threads, 32, 512, 32},
    {"ll_large_threads", &Table::ll_large_threads, 32, 512, 32},
    {"simple_threads", &Table::simple_threads, 32, 512, 32},
    {"simple_cta_bytes", &Table::simple_cta_bytes, 1024, kMostBytes, 16},
};

}  // namespace

Table shipped_table(const Target& target) {
  if (!target.gpu) return kCpuTable;
  Table table = kH200Table;
  if (target.gpu_name != kMeasuredGpu) table.origin = Origin::assumed;
  return table;
}

std::uint32_t regions_of(int sms, int ranks_per_gpu) {
  constexpr int kLargeGpu = 132, kMostCtas = 128;
  if (ranks_per_gpu == 1 && sms >= kLargeGpu) return kMostCtas;
  return static_cast<std::uint32_t>(
      std::clamp(sms / (2 * std::max(1, ranks_per_gpu)), 1, static_cast<int>(algorithm::kFewCtas)));
}

std::uint32_t packets_for(const Table& table, int nranks, std::uint32_t regions) {
  const std::uint64_t limit = std::max(table.sentinel_limit_bytes, table.sentinel_any_limit_bytes);
  const std::uint64_t all = limit / 16 / regions;
  // Of two-shot, two halves for a part each.
  const std::uint64_t each = nranks <= 2 ? all : all * 2 / static_cast<std::uint64_t>(nranks);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>((each + 511) / 512 * 512, 512, kMostPackets));
}

std::uint32_t lines_for(const Table& table, int nranks, std::uint32_t regions) {
  const std::uint64_t groups = std::min<std::uint64_t>(regions, table.few_ctas);
  const std::uint64_t message = table.ll128_limit_bytes / static_cast<std::uint64_t>(std::max(nranks - 1, 1));
  // Every group has whole units of four lines.
  const std::uint64_t each = (message / 480 + groups) / groups * 4;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(each, 64, kMostLines));
}

std::span<const TableField> fields_of(bool gpu) {
  if (gpu) return kGpuFields;
  return kCpuFields;
}

std::uint64_t digest_of(const Table& table) {
  // FNV-1a, byte by byte.
  std::uint64_t digest = 0xcbf29ce484222325;
  const auto add = [&digest](std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) {
      digest = (digest ^ (value >> shift & 0xff)) * 0x100000001b3;
    }
  };
  // The origin counts too: it stands in the reason of a route, which is the same on all ranks.
  add(static_cast<std::uint64_t>(table.origin));
  for (const TableField& field : kGpuFields) add(table.*field.value);
  return digest;
}

std::string describe(const Table& table, const Target& target) {
  if (table.origin == Origin::file) return "from NEARLIGHT_ROUTE_TABLE";
  if (!target.gpu) return "shipped for CPU ranks";
  if (table.origin == Origin::measured) return std::string("shipped for ") + kMeasuredGpu;
  const std::string name = target.gpu_name.empty() ? "this GPU" : target.gpu_name;
  return std::string("shipped for ") + kMeasuredGpu + ", not measured on " + name;
}

}  // namespace nearlight::route
