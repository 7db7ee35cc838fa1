#include "runtime/steering.hpp"

#include <cinttypes>
#include <cstdio>

#include "base/variables.hpp"
#include "route/table_file.hpp"

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

std::uint64_t number_of(const std::optional<route::Protocol>& forced) {
  return forced ? 1 + static_cast<std::uint64_t>(*forced) : 0;
}

std::string forced_in_words(std::uint64_t number) {
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
