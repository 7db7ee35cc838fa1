// Result files as one HTML page for a browser: plots, tables, machines and commands, all in the file itself.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"
#include "cli/results.hpp"

namespace nearlight::report {

struct NamedFile {
  std::string name;  // as it is shown
  cli::ResultFile file;
};

// First what several files have measured alike, then each file in order.
std::string html_of(const std::vector<NamedFile>& files);

struct ReportOptions {
  std::vector<std::string> paths;
  std::string out;
};
// `nearlight report`. Returns the exit status.
int report_command(const ReportOptions& options);

}  // namespace nearlight::report
