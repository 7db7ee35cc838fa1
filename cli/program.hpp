// The program `nearlight`.
#pragma once

namespace nearlight::cli {

// What main() does. Returns the exit status.
int program(int argc, char** argv);

}  // namespace nearlight::cli
