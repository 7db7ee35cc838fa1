#include "route/flat_json.hpp"

#include <algorithm>
#include <utility>

namespace nearlight::route {

namespace {

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<std::vector<JsonMember>> object() {
    std::vector<JsonMember> members;
    NL_TRY(expect('{'));
    if (!take('}')) {
      do {
        JsonMember member;
        NL_TRY_ASSIGN(member.key, quoted());
        NL_TRY(expect(':'));
        const auto same = [&member](const JsonMember& other) { return other.key == member.key; };
        if (std::any_of(members.begin(), members.end(), same)) {
          return failure(Code::invalid_argument, "%s: is given twice", member.key.c_str());
        }
        NL_TRY(value(member));
        members.push_back(std::move(member));
      } while (take(','));
      NL_TRY(expect('}'));
    }
    skip_blanks();
    if (at_ != text_.size()) return wrong("there is something behind the object");
    return members;
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
      line_ += text_[at_++] == '\n';
    }
  }
  bool take(char c) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Status expect(char c) {
    if (take(c)) return {};
    return wrong(at_ == text_.size() ? "the text ends too early" : std::string("no '") + c + "' here");
  }
  Status wrong(const std::string& what) const {
    return failure(Code::invalid_argument, "line %d: %s", line_, what.c_str());
  }

  Status value(JsonMember& member) {
    skip_blanks();
    if (at_ < text_.size() && text_[at_] == '"') {
      member.is_text = true;
      NL_TRY_ASSIGN(member.value, quoted());
      return {};
    }
    const std::size_t end = std::min(text_.find_first_not_of("+-.0123456789eE", at_), text_.size());
    member.value = text_.substr(at_, end - at_);
    at_ = end;
    if (!member.value.empty()) return {};
    return failure(Code::invalid_argument, "%s: is neither a text nor a number", member.key.c_str());
  }

  Result<std::string> quoted() {
    NL_TRY(expect('"'));
    std::string out;
    while (at_ < text_.size()) {
      char c = text_[at_++];
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20) return wrong("a text must end on its line");
      if (c == '\\') {
        constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeaning = "\"\\/\b\f\n\r\t";
        const std::size_t which = at_ < text_.size() ? kEscapes.find(text_[at_++]) : std::string_view::npos;
        if (which == std::string_view::npos) return wrong("an escape that is not read");
        c = kMeaning[which];
      }
      out += c;
    }
    return wrong("the text ends too early");
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

Result<std::vector<JsonMember>> parse_flat_json(std::string_view text) { return Parser(text).object(); }

}  // namespace nearlight::route
