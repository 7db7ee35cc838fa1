// The table of types in docs/concepts/numerics.md against what calls do: every type stands there with its
// names and number, and what it says small floats are computed in they are computed in, by every algorithm
// and protocol that carries them. Report H7: 8 and 16 bits need no other way than the rest, and lose nothing
// on it that fp32 would have kept.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "algorithm/kinds.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/reference.hpp"

namespace nearlight::test {
namespace {

struct Row {
  std::vector<std::string> names;
  std::vector<int> numbers;
  std::string computed_in;
};

std::vector<std::string> pieces(const std::string& text, char between) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string piece; std::getline(stream, piece, between);) {
    const auto first = piece.find_first_not_of(' '), last = piece.find_last_not_of(' ');
    all.push_back(first == std::string::npos ? "" : piece.substr(first, last - first + 1));
  }
  return all;
}

// Rows of the table below "| type |".
std::vector<Row> rows_of_table() {
  std::ifstream page(NEARLIGHT_SOURCE_DIR "/docs/concepts/numerics.md");
  EXPECT_TRUE(page.good());
  std::vector<Row> rows;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.rfind("| type |", 0) == 0) inside = true;
    if (!inside) continue;
    if (line.empty()) break;
    const auto cells = pieces(line, '|');
    if (cells.size() < 5 || cells[1].empty() || cells[1][0] != '`') continue;
    Row row;
    const auto quoted = pieces(cells[1], '`');
    for (std::size_t i = 1; i < quoted.size(); i += 2) row.names.push_back(quoted[i]);
    for (const std::string& number : pieces(cells[2], ',')) row.numbers.push_back(std::stoi(number));
    row.computed_in = cells[3];
    rows.push_back(row);
  }
  return rows;
}

TEST(TypesTable, HasEveryTypeByNameAndNumber) {
  std::map<std::string, int> there;
  for (const Row& row : rows_of_table()) {
    ASSERT_EQ(row.names.size(), row.numbers.size());
    for (std::size_t i = 0; i < row.names.size(); ++i) there[row.names[i]] = row.numbers[i];
  }
  std::map<std::string, int> expected;
  for (const DataType type : kDataTypes) expected[name_of(type)] = static_cast<int>(type);
  EXPECT_EQ(there, expected);
}

// A number whose neighbour is 2 away, and then seven times a half: in the type itself they would vanish one
// by one.
double large_of(DataType type) {
  switch (type) {
    case DataType::f16:
      return 2048;
    case DataType::bf16:
      return 256;
    case DataType::f8e4m3:
      return 16;
    default:
      return 8;  // f8e5m2
  }
}

// Rank 0 has the large number, the others a half.
void sum_every_way(runtime::Communicator& comm, DataType type, double large, std::uint64_t expected,
                   Problems& problems) {
  constexpr std::uint64_t kCount = 33;
  int ways = 0;
  for (const auto protocol : algorithm::kProtocols) {
    for (const auto algorithm : {algorithm::Algorithm::one_shot, algorithm::Algorithm::two_shot}) {
      runtime::CallOptions options;
      options.protocol = protocol;
      options.algorithm = algorithm;
      if (!comm.explain_all_reduce(kCount, type, ReduceOp::sum, options).ok()) continue;
      ++ways;
      std::vector<std::byte> data(kCount * size_of(type));
      for (std::uint64_t i = 0; i < kCount; ++i)
        store_bits(type, data.data(), i, round_to(type, comm.rank() == 0 ? large : 0.5));
      const Status status =
          comm.all_reduce(data.data(), data.data(), kCount, type, ReduceOp::sum, nullptr, options);
      if (!status.ok()) problems.add("%s", status.to_string().c_str());
      for (std::uint64_t i = 0; i < kCount; ++i) {
        if (load_bits(type, data.data(), i) != expected)
          problems.add("%s by %s, %s", name_of(type), algorithm::name_of(algorithm), name_of(protocol));
      }
    }
  }
  if (ways < 6) problems.add("%d ways", ways);
}

TEST(TypesTable, SmallFloatsAreComputedInWhatItSays) {
  int checked = 0;
  for (const Row& row : rows_of_table()) {
    for (const int number : row.numbers) {
      const auto type = static_cast<DataType>(number);
      if (size_of(type) > 2 || type == DataType::i8 || type == DataType::u8) continue;
      EXPECT_EQ(row.computed_in, "fp32") << name_of(type);
      ++checked;
      const double large = large_of(type);
      ASSERT_EQ(round_to(type, large + 0.5), round_to(type, large)) << "a half does not vanish";
      const std::uint64_t expected = round_to(type, large + 3.5);
      ASSERT_NE(expected, round_to(type, large));
      EXPECT_EQ(run_communicators(Kind::threads, 8, patient(),
                                  [&](runtime::Communicator& comm, Exchange&, Problems& problems) {
                                    sum_every_way(comm, type, large, expected, problems);
                                  }),
                "");
    }
  }
  EXPECT_EQ(checked, 4);
}

}  // namespace
}  // namespace nearlight::test
