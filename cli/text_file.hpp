// Small text files, whole.
#pragma once

#include <string>
#include <string_view>

#include "base/status.hpp"

namespace nearlight::cli {

inline constexpr std::size_t kMaxTextFileBytes = std::size_t{64} << 20;

// system_error names the call and the path; invalid_argument for a file above kMaxTextFileBytes.
Result<std::string> read_text_file(const std::string& path);

// Writes a neighbour first and renames it over `path`, so that nobody sees half a file.
Status write_text_file(const std::string& path, std::string_view text);

}  // namespace nearlight::cli
