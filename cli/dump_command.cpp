#include "cli/dump_command.hpp"

#include <cstdio>

#include "cli/exit_code.hpp"
#include "runtime/dump_service.hpp"

namespace nearlight::cli {

int dump_command(const DumpOptions& options) {
  const auto texts = runtime::ask_for_dumps(options.pid, Deadline::after_ms(options.timeout_ms));
  if (!texts.ok()) {
    std::fprintf(stderr, "nearlight: %s\n", texts.status().text().c_str());
    return exit_code_of(texts.status());
  }
  for (std::size_t i = 0; i < texts.value().size(); ++i) {
    std::printf("%s%s", i == 0 ? "" : "\n", texts.value()[i].c_str());
  }
  return kExitOk;
}

}  // namespace nearlight::cli
