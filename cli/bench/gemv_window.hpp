// What a product takes over of a gathered message, so that it can be looked at (gemv_contender.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace nearlight::bench {

// Columns of a matrix with `rows` rows, which has a 1 in each of them and nothing else: output r of a token
// is its element `first` + r.
struct Window {
  std::size_t first, width;
};
// The next ones with each turn, until all `columns` have had theirs.
constexpr Window window_of(std::size_t turn, std::size_t rows, std::size_t columns) {
  const std::size_t width = std::min(rows, columns), windows = (columns + width - 1) / width;
  return {std::min(turn % windows * width, columns - width), width};
}

// A rectangle of elements, a row for each token, that goes from the output into the message.
struct WindowBlock {
  std::size_t to, to_pitch, from, from_pitch, width;
};
// The message is `parts` ranks' parts one behind the other, each with `part` elements of each token; a token
// has them side by side. One part: the message is the tokens, one behind the other.
inline std::vector<WindowBlock> blocks_of(const Window& window, std::size_t rows, std::size_t tokens,
                                          std::size_t part, std::size_t parts) {
  std::vector<WindowBlock> blocks;
  for (std::size_t source = 0; source < parts; ++source) {
    const std::size_t begin = std::max(window.first, source * part),
                      end = std::min(window.first + window.width, (source + 1) * part);
    if (begin >= end) continue;
    blocks.push_back(
        {source * tokens * part + begin - source * part, part, begin - window.first, rows, end - begin});
  }
  return blocks;
}

}  // namespace nearlight::bench
