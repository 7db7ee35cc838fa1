// `nearlight info`: what was built, what this machine offers, what would be chosen.
#pragma once

namespace nearlight::cli {

struct InfoOptions {
  bool json = false;
  bool variables = false;
};

// Returns the exit status.
int info_command(const InfoOptions& options);

}  // namespace nearlight::cli
