#include "cli/bench/gemv_window.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace nearlight::bench {
namespace {

// What a product takes over, window by window, is the whole message, whose parts lie one behind the other
// while a token has them side by side; and likewise where they are taken for the tokens.
TEST(GemvWindow, TakesOverTheWholeMessage) {
  constexpr std::size_t kTokens = 3, kPart = 8;
  for (const std::size_t ranks : {1u, 3u}) {
    for (const std::size_t rows : {5u, 24u, 40u}) {
      const std::size_t columns = kPart * ranks;
      std::vector<int> message(columns * kTokens), vectors(message.size()), taken(message.size(), -1);
      for (std::size_t i = 0; i < message.size(); ++i) message[i] = static_cast<int>(i);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        for (std::size_t token = 0; token < kTokens; ++token) {
          for (std::size_t k = 0; k < kPart; ++k)
            vectors[token * columns + rank * kPart + k] = message[(rank * kTokens + token) * kPart + k];
        }
      }
      for (const bool in_order : {true, false}) {
        const auto& tokens = in_order ? vectors : message;
        std::fill(taken.begin(), taken.end(), -1);
        for (std::size_t turn = 0; turn * rows < columns; ++turn) {
          const Window window = window_of(turn, rows, columns);
          std::vector<int> output(rows * kTokens, -1);
          for (std::size_t token = 0; token < kTokens; ++token) {
            for (std::size_t row = 0; row < window.width; ++row)
              output[token * rows + row] = tokens[token * columns + window.first + row];
          }
          for (const WindowBlock& block :
               blocks_of(window, rows, kTokens, in_order ? kPart : columns, in_order ? ranks : 1)) {
            for (std::size_t token = 0; token < kTokens; ++token) {
              for (std::size_t i = 0; i < block.width; ++i)
                taken.at(block.to + token * block.to_pitch + i) =
                    output.at(block.from + token * block.from_pitch + i);
            }
          }
        }
        EXPECT_EQ(taken, message) << ranks << " ranks, " << rows << " rows, " << in_order;
      }
    }
  }
}

}  // namespace
}  // namespace nearlight::bench
