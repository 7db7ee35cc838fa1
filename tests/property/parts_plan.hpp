// The calls by parts that threads and processes are tested with.
#pragma once

#include <string>

#include "tests/support/ranks.hpp"

namespace nearlight::test {

// Every collective and type: counts around packs, vectors and rounds, every protocol, all roots, addresses
// that differ between the ranks, in place and not. "" when all is well.
std::string run_parts_matrix(Kind kind, int nranks);
// Reductions: every operator and type, with special values.
std::string run_parts_operators(Kind kind, int nranks);
// Bytes and halves whose parts meet inside a vector of 16 bytes, all lengths from 1 to some 40.
std::string run_parts_tails(Kind kind, int nranks);
// By parts, AllReduce and barriers take turns, with rounds of different numbers.
std::string run_parts_mixed(Kind kind, int nranks, int calls, std::uint64_t seed);

}  // namespace nearlight::test
