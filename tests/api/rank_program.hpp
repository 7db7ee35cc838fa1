// The program that the tests of separate processes run as a rank, a user of the C and C++ API.
#pragma once

namespace nearlight::test {

// argv: PROGRAM --rank HOW RANK NRANKS KEY LIMIT_MS. HOW: "c" calls nearlightCommCreateHost with the three
// ("-" as KEY: NULL), "cpp" Communicator::host, "job" Communicator::host_of_job. Checks some all-reduces,
// prints "all right" and goes on reducing until a call fails or it is told to stop by SIGTERM. 0: it was
// told; 3: a call failed, whose code and text are printed; 4: a wrong result.
int rank_main(int argc, char** argv);

}  // namespace nearlight::test
