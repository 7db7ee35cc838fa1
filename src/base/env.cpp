#include "base/env.hpp"

#include <charconv>
#include <cinttypes>
#include <cstdlib>
#include <string_view>

namespace nearlight {

Result<std::int64_t> env_integer_of(const char* name, const char* text, std::int64_t lowest,
                                    std::int64_t highest) {
  const std::string_view view(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size() || value < lowest || value > highest) {
    return failure(Code::invalid_argument,
                   "%s is \"%s\"; it takes a whole number from %" PRId64 " to %" PRId64, name, text, lowest,
                   highest);
  }
  return value;
}

Result<std::optional<std::int64_t>> env_integer(const char* name, std::int64_t lowest, std::int64_t highest) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return std::optional<std::int64_t>();
  NL_TRY_ASSIGN(const std::int64_t value, env_integer_of(name, text, lowest, highest));
  return std::optional<std::int64_t>(value);
}

}  // namespace nearlight
