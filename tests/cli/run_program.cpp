#include "tests/cli/run_program.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>

namespace nearlight::test {

namespace {

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::string temporary_path(const std::string& name) {
  return testing::TempDir() + "nearlight-" + std::to_string(getpid()) + "-" + name;
}

Ran run_program(const std::string& arguments, int limit_s, const std::string& environment) {
  const std::string out = temporary_path("out"), err = temporary_path("err");
  const std::string command = environment + " timeout -k 5 " + std::to_string(limit_s) +
                              " '" NEARLIGHT_PROGRAM "' " + arguments + " >'" + out + "' 2>'" + err +
                              "' </dev/null";
  const int status = std::system(command.c_str());
  Ran ran;
  if (WIFEXITED(status) && WEXITSTATUS(status) != 124 && WEXITSTATUS(status) < 128)
    ran.exit_code = WEXITSTATUS(status);
  ran.out = read_file(out);
  ran.err = read_file(err);
  unlink(out.c_str());
  unlink(err.c_str());
  return ran;
}

std::string shape_of(const std::string& text) {
  const std::string numbers = std::regex_replace(text, std::regex("[0-9]+(\\.[0-9]+)?(e[+-][0-9]+)?"), "9");
  return std::regex_replace(numbers, std::regex(" +"), " ");
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace nearlight::test
