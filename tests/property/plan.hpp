// A group of ranks and the calls it makes, one after the other without a barrier in between.
#pragma once

#include <iosfwd>
#include <vector>

#include "tests/support/checked_call.hpp"
#include "tests/support/ranks.hpp"

namespace nearlight::test {

struct PlannedCall {
  Call call;
  int times = 2;             // odd and even numbers: buffers alternate with every use
  std::vector<Place> place;  // one a rank
};

struct Plan {
  int nranks = 2;
  std::uint32_t slots = 32, chunk_bytes = 256, packets = 16, lines = 4;  // small: many rounds
  std::vector<PlannedCall> calls;
};

std::ostream& operator<<(std::ostream& out, const Plan& plan);

// Makes each call twice with everything about it checked: all ranks must have the same bits, and the same
// bits again.
// "" when all is well.
std::string run_plan(Kind kind, const Plan& plan);

// Every type and operator with code of its own, every protocol and count, at addresses that differ between
// the ranks.
Plan matrix(int nranks);
// All types and operators with small counts, some with larger ones, special values among the data.
Plan all_types(int nranks);
// All of them with 65537 elements, and 2^20 + 3 of each type.
Plan all_types_large(int nranks);
// Each of them with each count, offset and place, by the route and by one of the protocols in turn.
Plan product(int nranks, DataType type);
// bf16 messages of every length around a few packs, vectors and rounds, and around powers of two.
Plan tails(int nranks);
// An odd number of elements in the millions.
Plan millions();

}  // namespace nearlight::test
