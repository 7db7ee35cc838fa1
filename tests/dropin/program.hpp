// A program that uses NCCL and knows nothing of the drop-in: its cases, run by name.
#pragma once

#include <functional>
#include <span>
#include <string>

namespace nearlight::test {

// 0 when all was as it should be; else the problems stand on stderr.
int run_case(const std::string& name);

// Adds a problem.
void problem(const char* file, int line, const std::string& text);
#define CHECK(condition) ((condition) ? void() : ::nearlight::test::problem(__FILE__, __LINE__, #condition))
#define CHECK_LOG(expected) ::nearlight::test::check_log(__FILE__, __LINE__, expected)
// The stand-in's log since the last look, by lines sorted or not.
void check_log(const char* file, int line, const std::string& expected, bool sorted = false);

// body(rank) on a thread each.
void on_ranks(int nranks, const std::function<void(int)>& body);

struct Case {
  const char* name;
  void (*run)();
};
std::span<const Case> cases();
std::span<const Case> life_cases();
std::span<const Case> non_blocking_cases();

}  // namespace nearlight::test
