#include "cli/program.hpp"

int main(int argc, char** argv) { return nearlight::cli::program(argc, argv); }
