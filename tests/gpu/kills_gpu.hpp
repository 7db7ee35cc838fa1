// The other side of the trials of kills_gpu_test.cpp.
#pragma once

namespace nearlight::test {

// A rank that is a process: PROGRAM --trial, with what it is to do in its environment.
int trial_main(int argc, char** argv);

}  // namespace nearlight::test
