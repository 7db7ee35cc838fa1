// Messages between ranks whose every byte is known: the memory of one rank's part of them, what it must hold
// afterwards, and that nothing beside them was written. They go together, in one group of each rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/types.hpp"
#include "runtime/messages.hpp"
#include "tests/support/problems.hpp"

namespace nearlight::test {

// One message of a pattern that all ranks know.
struct Sent {
  int from, to;
  std::size_t count;
  DataType type = DataType::u8;
  std::size_t offset = 0;  // elements from an address aligned to 64
};

inline std::vector<Sent> ring(int nranks, std::size_t count, DataType type = DataType::u8) {
  std::vector<Sent> pattern;
  for (int rank = 0; rank < nranks; ++rank) pattern.push_back({rank, (rank + 1) % nranks, count, type});
  return pattern;
}

class MessageImage {
 public:
  // `round`: what the bytes depend on.
  MessageImage(const std::vector<Sent>& pattern, int rank, std::uint64_t round)
      : pattern_(pattern), rank_(rank), round_(round) {
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      const std::size_t element = size_of(pattern[i].type);
      for (const bool sends : {true, false}) {
        if ((sends ? pattern[i].from : pattern[i].to) != rank) continue;
        const std::size_t at = (bytes_.size() + 64 + 63) / 64 * 64 + pattern[i].offset * element;
        pieces_.push_back({i, at, pattern[i].count * element, sends});
        bytes_.resize(at + pieces_.back().bytes, kGuard);
        for (std::size_t k = 0; sends && k < pieces_.back().bytes; ++k) bytes_[at + k] = byte_of(i, k);
      }
    }
    bytes_.resize(bytes_.size() + 64, kGuard);
  }

  // What the memory holds at first. It is to lie at a multiple of 64.
  const std::vector<std::uint8_t>& bytes() const { return bytes_; }

  // In an order that is each rank's own; messages of a pair keep theirs.
  std::vector<runtime::MessageCall> calls(void* memory) const {
    std::vector<runtime::MessageCall> calls;
    for (const Piece& piece : pieces_) {
      const Sent& sent = pattern_[piece.message];
      calls.push_back({piece.sends, static_cast<std::uint8_t*>(memory) + piece.at, sent.count, sent.type,
                       piece.sends ? sent.to : sent.from});
    }
    std::mt19937 random(static_cast<unsigned>(round_ * 8 + static_cast<unsigned>(rank_)));
    for (std::size_t i = 0; i + 1 < calls.size(); ++i) {
      if (random() % 2 == 0) continue;
      if (calls[i].peer != calls[i + 1].peer || calls[i].sends != calls[i + 1].sends)
        std::swap(calls[i], calls[i + 1]);
    }
    return calls;
  }

  // "" when `memory` (as long as bytes()) is as it must be afterwards.
  std::string wrong(const std::uint8_t* memory) const {
    std::vector<std::uint8_t> wanted = bytes_;
    for (const Piece& piece : pieces_) {
      for (std::size_t k = 0; k < piece.bytes; ++k) wanted[piece.at + k] = byte_of(piece.message, k);
    }
    const auto [now, good] = std::mismatch(memory, memory + wanted.size(), wanted.begin());
    if (good == wanted.end()) return "";
    const auto place = static_cast<std::size_t>(good - wanted.begin());
    std::string text = "rank " + std::to_string(rank_) + ": " + std::to_string(*now) + " instead of " +
                       std::to_string(*good);
    for (const Piece& piece : pieces_) {
      if (place + 64 < piece.at || place >= piece.at + piece.bytes + 64) continue;
      text += ", byte " + std::to_string(static_cast<std::ptrdiff_t>(place - piece.at)) + " of " +
              std::to_string(piece.bytes) + (piece.sends ? " sent, message " : " received, message ") +
              std::to_string(piece.message);
    }
    return text;
  }

 private:
  static constexpr std::uint8_t kGuard = 0;
  struct Piece {
    std::size_t message, at, bytes;
    bool sends;
  };
  std::uint8_t byte_of(std::size_t message, std::size_t index) const {
    return static_cast<std::uint8_t>(1 + (message * 31 + index * 7 + index / 251 + round_ * 13) % 255);
  }

  const std::vector<Sent>& pattern_;
  int rank_;
  std::uint64_t round_;
  std::vector<Piece> pieces_;
  std::vector<std::uint8_t> bytes_;
};

// A rank's part of a pattern, in memory of its own.
class MessagePart {
 public:
  MessagePart(const std::vector<Sent>& pattern, int rank, std::uint64_t round)
      : image_(pattern, rank, round), memory_(image_.bytes().size() + 64) {
    const auto base = reinterpret_cast<std::uintptr_t>(memory_.data());
    at_ = memory_.data() + ((base + 63) / 64 * 64 - base);
    std::copy(image_.bytes().begin(), image_.bytes().end(), at_);
  }
  std::vector<runtime::MessageCall> calls() { return image_.calls(at_); }
  void check(Problems& problems) const {
    if (const std::string wrong = image_.wrong(at_); !wrong.empty()) problems.add("%s", wrong.c_str());
  }

 private:
  MessageImage image_;
  std::vector<std::uint8_t> memory_;
  std::uint8_t* at_;
};

}  // namespace nearlight::test
