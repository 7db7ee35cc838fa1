#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "cli/compare.hpp"
#include "cli/exit_code.hpp"
#include "cli/report/report.hpp"
#include "cli/text_file.hpp"

namespace nearlight::report {

namespace {

Status write_report(const ReportOptions& options) {
  std::vector<NamedFile> files;
  for (const std::string& path : options.paths) {
    // A mistyped order of the arguments must not cost a result.
    std::error_code error;
    if (path == options.out || std::filesystem::equivalent(path, options.out, error)) {
      return failure(Code::invalid_argument, "-o: %s is one of the result files", options.out.c_str());
    }
    NL_TRY_ASSIGN(cli::ResultFile file, cli::read_comparable(path));
    const std::string name = std::filesystem::path(path).filename().string();
    const auto alike = std::count_if(files.begin(), files.end(), [&](const NamedFile& one) {
      return one.name == name || one.name.starts_with(name + " (");
    });
    files.push_back({alike == 0 ? name : name + " (" + std::to_string(alike + 1) + ")", std::move(file)});
  }
  return cli::write_text_file(options.out, html_of(files)).with_context("-o");
}

}  // namespace

int report_command(const ReportOptions& options) {
  const Status status = write_report(options);
  if (!status.ok()) std::fprintf(stderr, "nearlight: %s\n", status.to_string().c_str());
  return cli::exit_code_of(status);
}

}  // namespace nearlight::report
