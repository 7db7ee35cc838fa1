#include "runtime/steering.hpp"

#include "base/variables.hpp"

namespace nearlight::runtime {

namespace {

Result<std::optional<route::Protocol>> read_forced() {
  const auto text = variables::read(variables::kForcePath);
  if (!text) return std::optional<route::Protocol>();
  std::string known;
  for (const route::Protocol protocol : algorithm::kProtocols) {
    if (*text == algorithm::name_of(protocol)) return std::optional(protocol);
    known += (known.empty() ? "" : ", ") + std::string(algorithm::name_of(protocol));
  }
  return failure(Code::invalid_argument, "%s is \"%s\"; it takes one of %s", variables::kForcePath.name,
                 text->c_str(), known.c_str());
}

Result<bool> read_log() {
  const auto text = variables::read(variables::kDebug);
  if (!text) return false;
  if (*text == "route") return true;
  return failure(Code::invalid_argument, "%s is \"%s\"; it takes route", variables::kDebug.name,
                 text->c_str());
}

}  // namespace

Result<Steering> read_steering() {
  Steering steering;
  NL_TRY_ASSIGN(steering.forced, read_forced());
  NL_TRY_ASSIGN(steering.log, read_log());
  return steering;
}

std::uint64_t number_of(const std::optional<route::Protocol>& forced) {
  return forced ? 1 + static_cast<std::uint64_t>(*forced) : 0;
}

std::string forced_in_words(std::uint64_t number) {
  return number == 0 ? "not set" : algorithm::name_of(static_cast<route::Protocol>(number - 1));
}

}  // namespace nearlight::runtime
