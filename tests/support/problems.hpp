// What a rank has to complain about, as text: a forked rank cannot use GoogleTest's assertions.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>

namespace nearlight::test {

// Empty when all went well. Keeps the first few complaints.
class Problems {
 public:
  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    ++count_;
    if (text_.size() > kEnough) return;
    char line[512];
    std::va_list args;
    va_start(args, format);
    std::vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (!text_.empty()) text_ += "\n    ";
    text_ += line;
  }
  bool none() const { return count_ == 0; }
  std::string text() const {
    return text_.size() > kEnough ? text_ + "\n    ... " + std::to_string(count_) + " in all" : text_;
  }

 private:
  static constexpr std::size_t kEnough = 1000;
  std::string text_;
  std::size_t count_ = 0;
};

}  // namespace nearlight::test
