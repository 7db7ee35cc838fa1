// `nearlight` where the benchmark's library lies beside it, as in the GPU bundle: the kernels are carried
// once.
#include <dlfcn.h>

#include <cstdio>
#include <string>

#include "cli/exit_code.hpp"
#include "cli/peers/beside.hpp"

int main(int argc, char** argv) {
  const std::string path = nearlight::peers::beside_this_program("libnearlight_bench.so");
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  auto* const program =
      library != nullptr ? reinterpret_cast<int (*)(int, char**)>(dlsym(library, "nearlightMain")) : nullptr;
  if (program != nullptr) return program(argc, argv);
  std::fprintf(stderr, "nearlight: %s\n", dlerror());
  return nearlight::cli::kExitUnfit;
}
