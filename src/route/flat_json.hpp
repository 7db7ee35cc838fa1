// Reads the little JSON that a route table needs: one object whose members are texts or numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"

namespace nearlight::route {

struct JsonMember {
  std::string key;
  bool is_text = false;
  std::string value;  // a text without its escapes, or a number as it stands there
};

// In the file's order. Code::invalid_argument tells the line, or the key: of a member of another kind, or one
// that is given twice. \u escapes are not read.
Result<std::vector<JsonMember>> parse_flat_json(std::string_view text);

}  // namespace nearlight::route
