// The file of a route table: one JSON object of texts and whole numbers.
//
//   {"schema": 1, "backend": "cuda", "gpu": "NVIDIA H200", "nranks": 2, "ll_limit_bytes": 524288}
//
// A number of the table that is not given keeps its shipped value. docs/reference/route-table.md has all of
// them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.hpp"
#include "route/table.hpp"

namespace nearlight::route {

inline constexpr int kTableSchema = 1;
inline constexpr std::size_t kMaxTableFileBytes = 64 * 1024;

// Nothing: a good table for another number of ranks, where the shipped one stays in force. Otherwise
// Code::invalid_argument, and the text names `origin` and the field: no such JSON, another schema, another
// backend or GPU, an unknown field, a number out of its bounds.
Result<std::optional<Table>> parse_table(std::string_view text, const std::string& origin,
                                         const Target& target);
// The same of a regular file of at most kMaxTableFileBytes. Code::system_error where it cannot be read.
Result<std::optional<Table>> read_table_file(const std::string& path, const Target& target);

// What parse_table reads. `made_by`: who made it, for a person; without quotes and backslashes.
std::string table_text(const Table& table, const Target& target, std::string_view made_by);

}  // namespace nearlight::route
