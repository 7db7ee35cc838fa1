// A route table in a file of its own, for as long as a test needs it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace nearlight::test {

// A file that is gone with this object.
class TableFile {
 public:
  explicit TableFile(const std::string& text) {
    const int file = ::mkstemp(path_.data());
    EXPECT_GE(file, 0);
    EXPECT_EQ(::write(file, text.data(), text.size()), static_cast<::ssize_t>(text.size()));
    ::close(file);
  }
  TableFile(const TableFile&) = delete;
  ~TableFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = testing::TempDir() + "nearlight_table_XXXXXX";
};

// The same, in force for the communicators that are made while it lives.
class TableInForce {
 public:
  explicit TableInForce(const std::string& text) : file_(text) {
    ::setenv("NEARLIGHT_ROUTE_TABLE", file_.path().c_str(), 1);
  }
  TableInForce(const TableInForce&) = delete;
  ~TableInForce() { ::unsetenv("NEARLIGHT_ROUTE_TABLE"); }

 private:
  TableFile file_;
};

}  // namespace nearlight::test
