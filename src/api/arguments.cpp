#include "api/arguments.hpp"

#include <cinttypes>
#include <cstdint>
#include <limits>
#include <optional>

namespace nearlight::api {

namespace {

// A struct of a later header is taken as long as it asks for nothing that this library does not know.
constexpr std::size_t kLongestStruct = 4096;

Result<std::optional<std::chrono::milliseconds>> to_ms(const char* field, std::int64_t ms) {
  if (ms == 0) return std::optional<std::chrono::milliseconds>();
  if (ms < 0) return failure(Code::invalid_argument, "config->%s is %" PRId64 " ms", field, ms);
  return std::optional(std::chrono::milliseconds(ms));
}

}  // namespace

Result<DataType> to_type(nearlightDataType_t type) {
  if (is_of_header(type)) return static_cast<DataType>(type);
  return failure(Code::invalid_argument, "type: %d is no data type", static_cast<int>(type));
}

Status check_bytes(std::size_t count, DataType type) {
  const std::size_t most = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max());
  if (count <= most / size_of(type)) return {};
  return failure(Code::invalid_argument, "count: %zu elements of %zu bytes do not fit an address space",
                 count, size_of(type));
}

Result<runtime::Options> to_options(const nearlightConfig_t* config) {
  runtime::Options options;
  if (config == nullptr) return options;
  NL_TRY(check_sized("config", config, kFirstConfigBytes));
  const auto* const bytes = reinterpret_cast<const unsigned char*>(config);
  for (std::size_t i = sizeof(nearlightConfig_t); i < config->size; ++i) {
    if (bytes[i] != 0) {
      return failure(Code::unsupported,
                     "config: byte %zu of %zu is set, which is a field that this version does not know", i,
                     config->size);
    }
  }
  nearlightConfig_t mine{};
  std::memcpy(&mine, config, std::min(config->size, sizeof mine));
  NL_TRY_ASSIGN(options.timeout, to_ms("timeout_ms", mine.timeout_ms));
  NL_TRY_ASSIGN(const auto create_timeout, to_ms("create_timeout_ms", mine.create_timeout_ms));
  options.create_timeout = create_timeout.value_or(options.create_timeout);
  if (mine.check < -1 || mine.check > 1) {
    return failure(Code::invalid_argument, "config->check is %d; it takes -1, 0 or 1", mine.check);
  }
  if (mine.check != 0) options.check = mine.check == 1;
  options.regions = mine.regions;
  options.slots = mine.slots;
  options.chunk_bytes = mine.chunk_bytes;
  options.packets = mine.packets;
  options.max_ctas = mine.max_ctas;
  if (mine.deterministic < -1 || mine.deterministic > 1) {
    return failure(Code::invalid_argument, "config->deterministic is %d; it takes -1, 0 or 1",
                   mine.deterministic);
  }
  if (mine.deterministic != 0) options.deterministic = mine.deterministic == 1;
  options.lines = mine.lines;
  if (mine.early_launch < -1 || mine.early_launch > 1) {
    return failure(Code::invalid_argument, "config->early_launch is %d; it takes -1, 0 or 1",
                   mine.early_launch);
  }
  if (mine.early_launch != 0) options.early_launch = mine.early_launch == 1;
  if (mine.reserved != 0)
    return failure(Code::invalid_argument, "config->reserved is %u; it takes 0", mine.reserved);
  return options;
}

Status check_sized(const char* name, const void* given, std::size_t least) {
  if (given == nullptr) return failure(Code::invalid_argument, "%s is NULL", name);
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size >= least && size <= kLongestStruct) return {};
  return failure(Code::invalid_argument,
                 "%s->size is %zu, which is no size of this struct: begin with its initializer", name, size);
}

}  // namespace nearlight::api
