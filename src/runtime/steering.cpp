#include "runtime/steering.hpp"

#include <cinttypes>
#include <cstdio>

#include "base/variables.hpp"
#include "route/table_file.hpp"

namespace nearlight::runtime {

namespace {

constexpr std::uint64_t kFallback = 900, kFirstAlgorithm = 1000;  // no protocol's
constexpr const char* kFallbackName = "fallback";
// What can be forced beside the protocols, which are one-shot's.
constexpr route::Algorithm kForcible[] = {route::Algorithm::two_shot, route::Algorithm::two_shot_atomic,
                                          route::Algorithm::nccl, route::Algorithm::staged};

Status unknown_path(const std::string& text, const char* what) {
  std::string known;
  for (const route::Protocol protocol : algorithm::kProtocols)
    known += std::string(algorithm::name_of(protocol)) + ", ";
  for (const route::Algorithm algorithm : kForcible)
    known += std::string(algorithm::name_of(algorithm)) + ", ";
  return failure(Code::invalid_argument, "%s is \"%s\"; it takes one of %s%s", what, text.c_str(),
                 known.c_str(), kFallbackName);
}

Result<route::Forced> read_forced() {
  const auto text = variables::read(variables::kForcePath);
  if (!text) return route::Forced();
  if (text->empty()) return unknown_path(*text, variables::kForcePath.name);
  return forced_of(*text, variables::kForcePath.name);
}

Result<bool> read_log() {
  const auto text = variables::read(variables::kDebug);
  if (!text) return false;
  if (*text == "route") return true;
  return failure(Code::invalid_argument, "%s is \"%s\"; it takes route", variables::kDebug.name,
                 text->c_str());
}

}  // namespace

Result<std::optional<route::Table>> read_route_table(const route::Target& target) {
  const auto path = variables::read(variables::kRouteTable);
  if (!path) return std::optional<route::Table>();
  auto table = route::read_table_file(*path, target);
  NL_TRY(table.status().with_context(variables::kRouteTable.name));
  return table;
}

Result<Steering> read_steering(const route::Target& target, bool known) {
  Steering steering;
  NL_TRY_ASSIGN(steering.forced, read_forced());
  NL_TRY_ASSIGN(steering.log, read_log());
  if (known) {
    NL_TRY_ASSIGN(steering.table, read_route_table(target));
    steering.left_aside = !steering.table && variables::read(variables::kRouteTable);
  }
  return steering;
}

Status check_forced(const route::Forced& forced, bool attached, const char* what) {
  if (forced.algorithm == route::Algorithm::staged && attached) {
    return failure(Code::invalid_argument, "%s is \"%s\", but these ranks have an NCCL to go to: %s or %s",
                   what, algorithm::name_of(route::Algorithm::staged),
                   algorithm::name_of(route::Algorithm::nccl), kFallbackName);
  }
  if (forced.algorithm != route::Algorithm::nccl || attached) return {};
  return failure(Code::invalid_argument, "%s is \"%s\", but no NCCL communicator is attached to this one",
                 what, algorithm::name_of(route::Algorithm::nccl));
}

Result<route::Forced> forced_of(const std::string& text, const char* what) {
  if (text.empty()) return route::Forced();
  if (text == kFallbackName) return route::Forced{{}, {}, true};
  for (const route::Algorithm algorithm : kForcible) {
    if (text == algorithm::name_of(algorithm)) return route::Forced{algorithm, {}};
  }
  for (const route::Protocol protocol : algorithm::kProtocols) {
    if (text == algorithm::name_of(protocol)) return route::Forced{{}, protocol};
  }
  return unknown_path(text, what);
}

route::Forced forced_of(std::uint64_t number) {
  if (number >= kFirstAlgorithm) return {static_cast<route::Algorithm>(number - kFirstAlgorithm), {}};
  if (number == 0) return {};
  if (number == kFallback) return {{}, {}, true};
  return {{}, static_cast<route::Protocol>(number - 1)};
}

std::uint64_t number_of(const route::Forced& forced) {
  if (forced.algorithm) return kFirstAlgorithm + static_cast<std::uint64_t>(*forced.algorithm);
  if (forced.fallback) return kFallback;
  return forced.protocol ? 1 + static_cast<std::uint64_t>(*forced.protocol) : 0;
}

std::string forced_in_words(std::uint64_t number) {
  if (number >= kFirstAlgorithm)
    return algorithm::name_of(static_cast<route::Algorithm>(number - kFirstAlgorithm));
  if (number == kFallback) return kFallbackName;
  return number == 0 ? "not set" : algorithm::name_of(static_cast<route::Protocol>(number - 1));
}

std::uint64_t number_of(const std::optional<route::Table>& table) {
  return table ? route::digest_of(*table) : 0;
}

std::string table_in_words(std::uint64_t number) {
  if (number == 0) return "not in use";
  char text[40];
  std::snprintf(text, sizeof text, "a table of digest %016" PRIx64, number);
  return text;
}

}  // namespace nearlight::runtime
