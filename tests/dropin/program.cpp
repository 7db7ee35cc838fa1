#include "tests/dropin/program.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#include "tests/dropin/fake_nccl.hpp"

namespace nearlight::test {

namespace {
std::atomic<int> problems{0};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}
std::string together(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}
}  // namespace

void problem(const char* file, int line, const std::string& text) {
  std::fprintf(stderr, "%s:%d: not so: %s\n", file, line, text.c_str());
  ++problems;
}

void check_log(const char* file, int line, const std::string& expected, bool sorted) {
  auto seen = lines_of(fakeNcclLogText());
  auto wanted = lines_of(expected);
  fakeNcclLogClear();
  if (sorted) {
    std::sort(seen.begin(), seen.end());
    std::sort(wanted.begin(), wanted.end());
  }
  if (seen != wanted) problem(file, line, "expected\n" + together(wanted) + "seen\n" + together(seen));
}

void on_ranks(int nranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < nranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

int run_case(const std::string& name) {
  for (const auto all : {cases(), life_cases(), non_blocking_cases()}) {
    for (const Case& one : all) {
      if (name != one.name) continue;
      one.run();
      return problems == 0 ? 0 : 1;
    }
  }
  std::fprintf(stderr, "no case %s\n", name.c_str());
  return 2;
}

}  // namespace nearlight::test

int main(int argc, char** argv) { return argc == 2 ? nearlight::test::run_case(argv[1]) : 2; }
