// Runs the built program as a user does.
#pragma once

#include <string>
#include <vector>

namespace nearlight::test {

struct Ran {
  int exit_code = -1;  // -1: it did not end by itself
  std::string out;
  std::string err;
};

// `arguments` are words of a shell. Ended by force after `limit_s`.
Ran run_program(const std::string& arguments, int limit_s = 120, const std::string& environment = "");

// A path in the test's own folder of temporary files.
std::string temporary_path(const std::string& name);

// Every number (also of several digits, with point) becomes '9', runs of blanks one blank: what is left is
// the shape.
std::string shape_of(const std::string& text);

std::vector<std::string> lines_of(const std::string& text);

}  // namespace nearlight::test
