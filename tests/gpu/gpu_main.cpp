#include "tests/support/gpu_support.hpp"

int main(int argc, char** argv) { return nearlight::test::gpu_test_main(argc, argv); }
