// The program that the tests of separately started ranks run as a rank.
#pragma once

namespace nearlight::test {

// argv: PROGRAM --rank MODE [LIMIT_MS [START_AFTER_MS]]. Rank, size and key come from the environment. MODE:
//   meet     meets the others and leaves
//   reduce   meets, creates a communicator, checks some all-reduces
//   cycles   meets, creates, reduces and destroys 50 times under the one key, at its own pace
//   endless  the same as reduce, but goes on until a call fails; says "going" once it goes
// Prints what it found and how it went. 0: well; 3: a call failed, and its Status is printed; 4: a wrong
// result.
int rank_main(int argc, char** argv);

}  // namespace nearlight::test
