// What the processes of a group say to each other while they meet (process_group.hpp): one form for all
// words.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include <nearlight/version.h>
#include "base/status.hpp"
#include "bootstrap/shared_board.hpp"

namespace nearlight::bootstrap {

inline constexpr std::size_t kMaxKeyBytes = 200;

// The first words of every message of every version, so that another build can be told by name.
struct MeetingHead {
  static constexpr char kMagic[8] = {'n', 'e', 'a', 'r', 'm', 'e', 'e', 't'};
  char magic[8];
  std::uint32_t layout;
  char version[36];  // of the library, with a NUL
};
static_assert(sizeof(MeetingHead) == 48);

struct MeetingWord {
  enum class Kind : std::uint32_t {
    // From the others to rank 0.
    hello = 1,   // rank, nranks, pid, key
    ready = 2,   // has everything that came with `welcome`
    leaves = 3,  // gives up: code, text
    // From rank 0 to the others.
    waiting = 4,  // `hello` or `ready` was taken; still to come, or to be ready: missing
    welcome = 5,  // all are there: pids; with it come the board, the lines and the pidfds
    go = 6,       // all are ready
    refused = 7,  // the meeting has failed: code, text
  };

  MeetingHead head;
  Kind kind;
  std::int32_t code;  // a Code, with `text`
  std::int32_t rank;
  std::int32_t nranks;
  std::int32_t pid;
  std::uint32_t unused;
  std::uint64_t missing;  // bit r: rank r is not there yet
  std::int32_t pids[kMaxBoardRanks];
  char key[kMaxKeyBytes + 8];
  char text[512];

  // Says nothing yet but who speaks.
  static MeetingWord of(Kind kind);
  static MeetingWord telling(Kind kind, const Status& why);
  Status status(const std::string& context) const;
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(this, 1)); }
};
static_assert(std::is_trivially_copyable_v<MeetingWord> && kMaxBoardRanks <= 64);

// Another number for every change of what processes share: this form, the board, the order of the descriptors
// (kForm is for changes that no size shows).
inline constexpr std::uint32_t kMeetingForm = 2;
inline constexpr std::uint32_t kMeetingLayout = static_cast<std::uint32_t>(
    (((std::uint64_t{kMeetingForm} * 1000003 + sizeof(MeetingWord)) * 1000003 + sizeof(BoardHeader)) *
         1000003 +
     sizeof(BoardRank)) *
        1000003 +
    sizeof(BoardSlot));

#define NL_MEETING_TEXT_1(a, b, c) #a "." #b "." #c
#define NL_MEETING_TEXT(a, b, c) NL_MEETING_TEXT_1(a, b, c)
inline constexpr char kMeetingVersion[] = NL_MEETING_TEXT(NEARLIGHT_MAJOR, NEARLIGHT_MINOR, NEARLIGHT_PATCH);
#undef NL_MEETING_TEXT
#undef NL_MEETING_TEXT_1
static_assert(sizeof kMeetingVersion <= sizeof MeetingHead::version);

template <std::size_t n>
void put_text(char (&to)[n], const std::string& text) {
  const std::size_t length = text.size() < n ? text.size() : n - 1;
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}
// Up to the first NUL, or all of it.
template <std::size_t n>
std::string text_of(const char (&from)[n]) {
  return std::string(from, ::strnlen(from, n));
}

inline MeetingWord MeetingWord::of(Kind kind) {
  MeetingWord word{};
  std::memcpy(word.head.magic, MeetingHead::kMagic, sizeof word.head.magic);
  word.head.layout = kMeetingLayout;
  put_text(word.head.version, kMeetingVersion);
  word.kind = kind;
  return word;
}
inline MeetingWord MeetingWord::telling(Kind kind, const Status& why) {
  MeetingWord word = of(kind);
  word.code = static_cast<std::int32_t>(why.code());
  put_text(word.text, why.text());
  return word;
}
inline Status MeetingWord::status(const std::string& context) const {
  const auto told = code == 0 ? Code::internal_error : static_cast<Code>(code);
  return failure(told, "%s%s", context.c_str(), text_of(text).c_str());
}

// How the first `bytes` bytes of a message that came in `word` look.
enum class Speaker {
  stranger,     // no process of nearlight
  other_build,  // one of another version or layout; only the head can be read
  same_build,
};
inline Speaker speaker_of(const MeetingWord& word, std::size_t bytes) {
  if (bytes < sizeof(MeetingHead) ||
      std::memcmp(word.head.magic, MeetingHead::kMagic, sizeof word.head.magic) != 0)
    return Speaker::stranger;
  const bool same = bytes == sizeof word && word.head.layout == kMeetingLayout &&
                    text_of(word.head.version) == kMeetingVersion;
  return same ? Speaker::same_build : Speaker::other_build;
}
// "nearlight 0.1.0 (layout 1a2b3c4d)".
inline std::string build_of(const MeetingHead& head) {
  char layout[16];
  std::snprintf(layout, sizeof layout, "%08x", head.layout);
  return "nearlight " + text_of(head.version) + " (layout " + layout + ")";
}

}  // namespace nearlight::bootstrap
