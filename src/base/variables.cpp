#include "base/variables.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "base/log.hpp"

extern char** environ;

namespace nearlight::variables {

namespace {

constexpr std::string_view kPrefix = "NEARLIGHT_";

struct Elsewhere {
  Reader reader;
  const char *name, *takes, *unset, *meaning;
};

// Read by scripts and tests, not by the library; here so that they are documented and known.
constexpr Elsewhere kElsewhere[] = {
    {Reader::dev, "NEARLIGHT_JOBS", "a number", "by cores and memory",
     "Files that ./dev compiles at a time."},
    {Reader::dev, "NEARLIGHT_NO_INSTALL", "anything", "it installs",
     "./dev never installs a package; it names what is missing and stops."},
    {Reader::gpu_bundle, "NEARLIGHT_COMPUTE_SANITIZER", "a path", "it is looked for",
     "compute-sanitizer for run.sh --sanitize."},
    {Reader::gpu_bundle, "NEARLIGHT_LOG_DIR", "a folder", "logs/ beside run.sh",
     "Where run.sh writes its logs."},
    {Reader::gpu_bundle, "NEARLIGHT_NCCL_DIR", "a folder", "Python's package, else the system's",
     "Where run.sh finds libnccl.so.2."},
    {Reader::gpu_bundle, "NEARLIGHT_SANITIZE_FILTER", "a pattern of test names", "all tests",
     "Which tests run.sh --sanitize runs."},
    {Reader::gpu_bundle, "NEARLIGHT_SANITIZE_TOOLS", "names", "memcheck initcheck synccheck racecheck",
     "Which tools run.sh --sanitize runs them under."},
    {Reader::gpu_bundle, "NEARLIGHT_TEST_TIMEOUT", "seconds", "by the test's own limit",
     "Limit of run.sh for one test program."},
    {Reader::python, "NEARLIGHT_LIB", "a path", "the one beside the package, else the system's",
     "The libnearlight.so that the Python package loads."},
    {Reader::python, "NEARLIGHT_VLLM", "0 or 1", "1",
     "0: the plug-in for vLLM does nothing. The same on all ranks."},
    {Reader::tests, "NEARLIGHT_MODEL_TIER", "slow", "the quick ones",
     "How many executions the model checks look at."},
    {Reader::tests, "NEARLIGHT_REQUIRE_GPUS", "a number", "tests skip what is not there",
     "Tests that need no more GPUs than this must run or fail. run.sh sets it."},
    {Reader::tests, "NEARLIGHT_TORCH_PYTHON", "a path", "what needs PyTorch does not run",
     "The Python with PyTorch that runs the documents' commands."},
    {Reader::tests, "NEARLIGHT_TEST_SCALE", "a fraction", "1; 0.05 under a sanitizer",
     "Shortens loops of GPU tests."},
    {Reader::tests, "NEARLIGHT_UNDER_SANITIZER", "anything", "no sanitizer",
     "Tells GPU tests that they run under compute-sanitizer. run.sh sets it."},
};

std::string number(std::int64_t value) { return std::to_string(value); }

std::string takes(std::int64_t lowest, std::int64_t highest, const char* unit) {
  return "a whole number from " + number(lowest) + " to " + number(highest) +
         (*unit != '\0' ? std::string(" ") + unit : "");
}

Row row_of(const Text& variable) {
  return {variable.name, variable.takes, variable.unset, variable.meaning, Reader::library};
}
Row row_of(const Integer& variable) {
  return {variable.name, takes(variable.lowest, variable.highest, variable.unit), number(variable.unset),
          variable.meaning, Reader::library};
}
Row row_of(const OptionalInteger& variable) {
  return {variable.name, takes(variable.lowest, variable.highest, ""), variable.unset, variable.meaning,
          Reader::library};
}

// Letters to insert, delete or replace until one is the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

Result<std::int64_t> whole_number(const char* name, const char* text, std::int64_t lowest,
                                  std::int64_t highest, const char* unit) {
  const std::string_view view(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size() || value < lowest || value > highest) {
    return failure(Code::invalid_argument, "%s is \"%s\"; it takes %s", name, text,
                   takes(lowest, highest, unit).c_str());
  }
  return value;
}

Result<std::int64_t> read(const Integer& variable) {
  const char* const text = std::getenv(variable.name);
  if (text == nullptr) return variable.unset;
  return whole_number(variable.name, text, variable.lowest, variable.highest, variable.unit);
}

Result<bool> read(const Switch& variable) {
  const char* const text = std::getenv(variable.name);
  if (text == nullptr) return variable.unset;
  const std::string_view view(text);
  if (view == "0") return false;
  if (view == "1") return true;
  return failure(Code::invalid_argument, "%s is \"%s\"; it takes 0 or 1", variable.name, text);
}

Result<std::optional<std::int64_t>> read(const OptionalInteger& variable) {
  const char* const text = std::getenv(variable.name);
  if (text == nullptr) return std::optional<std::int64_t>();
  NL_TRY_ASSIGN(const std::int64_t value,
                whole_number(variable.name, text, variable.lowest, variable.highest));
  return std::optional<std::int64_t>(value);
}

std::optional<std::string> read(const Text& variable) {
  const char* const text = std::getenv(variable.name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return text;
}

std::vector<Row> all() {
  std::vector<Row> rows = {
      {kCalibrate.name, "0 or 1", kCalibrate.unset ? "1" : "0", kCalibrate.meaning, Reader::library},
      {kCheck.name, "0 or 1", kCheck.unset ? "1" : "0", kCheck.meaning, Reader::library},
      row_of(kDebug),
      {kDeterministic.name, "0 or 1", kDeterministic.unset ? "1" : "0", kDeterministic.meaning,
       Reader::library},
      {kDropIn.name, "0 or 1", kDropIn.unset ? "1" : "0", kDropIn.meaning, Reader::library},
      row_of(kDropInStats),
      row_of(kDropInTakes),
      {kDump.name, "0 or 1", kDump.unset ? "1" : "0", kDump.meaning, Reader::library},
      row_of(kDumpDir),
      row_of(kEarlyLaunch),
      row_of(kForcePath),
      row_of(kKey),
      row_of(kMaxCtas),
      row_of(kRetries),
      row_of(kNcclLib),
      row_of(kNcclMemory),
      row_of(kNranks),
      row_of(kRank),
      row_of(kRouteTable),
      row_of(kTimeoutMs),
      row_of(kTrace),
  };
  for (const Elsewhere& entry : kElsewhere) {
    rows.push_back({entry.name, entry.takes, entry.unset, entry.meaning, entry.reader});
  }
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.name < b.name; });
  return rows;
}

const char* name_of(Reader reader) {
  switch (reader) {
    case Reader::library:
      return "the library and its programs";
    case Reader::tests:
      return "the tests";
    case Reader::dev:
      return "./dev";
    case Reader::gpu_bundle:
      return "run.sh of the GPU bundle";
    case Reader::python:
      return "the Python package";
  }
  return "invalid";
}

std::vector<std::string> complaints_about(std::span<const std::string> names) {
  const std::vector<Row> rows = all();
  std::vector<std::string> complaints;
  for (const std::string& name : names) {
    if (!name.starts_with(kPrefix)) continue;
    const auto near = [&name](const Row& row) { return distance(name, row.name); };
    const auto nearest = std::min_element(rows.begin(), rows.end(),
                                          [&near](const Row& a, const Row& b) { return near(a) < near(b); });
    if (nearest->name == name) continue;
    complaints.push_back(name + " is no variable of this version and changes nothing; the nearest is " +
                         nearest->name);
  }
  return complaints;
}

void warn_about_unknown() {
  static std::atomic<bool> done{false};
  if (done.exchange(true)) return;
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    names.emplace_back(text.substr(0, text.find('=')));
  }
  std::sort(names.begin(), names.end());
  for (const std::string& complaint : complaints_about(names)) log::warn(complaint);
}

std::string reference_page() {
  std::string page =
      "# Environment variables\n\n"
      "Made by `nearlight info --variables` from the table in `src/base/variables.cpp`; a test compares the "
      "two. "
      "A value that a\nvariable does not take is an error that names the variable. A name that begins with "
      "`NEARLIGHT_` and is not in this\ntable gets one warning on stderr, with the nearest name that is.\n";
  for (const Reader reader :
       {Reader::library, Reader::python, Reader::dev, Reader::gpu_bundle, Reader::tests}) {
    page += std::string("\n## Read by ") + name_of(reader) +
            "\n\n| name | takes | when not set | meaning |\n|---|---|---|---|\n";
    for (const Row& row : all()) {
      if (row.reader != reader) continue;
      page += "| `" + row.name + "` | " + row.takes + " | " + row.unset + " | " + row.meaning + " |\n";
    }
  }
  return page;
}

}  // namespace nearlight::variables
