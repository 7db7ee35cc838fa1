// The file of a route table: what is read, and how everything else is refused.
#include "route/table_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <string_view>

namespace nearlight::route {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

const Target kCpu{false, "", 2}, kGpu{true, "NVIDIA H200", 2};

std::string gpu_file(const std::string& rest) {
  return R"({"schema": 1, "backend": "cuda", "gpu": "NVIDIA H200", "nranks": 2)" + rest + "}";
}

TEST(TableFile, NumbersThatAreGivenReplaceTheShippedOnes) {
  const auto table = parse_table(gpu_file(
                                     R"(, "ll_limit_bytes":65536,"few_ctas" : 32 ,
              "simple_threads":256, "made_by": "a \"tool\" \\ \/ caf)"
                                     "\xc3\xa9"
                                     R"("  )"),
                                 "f", kGpu);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  ASSERT_TRUE(table->has_value());
  Table expected = kH200Table;
  expected.origin = Origin::file;
  expected.ll_limit_bytes = 65536;
  expected.few_ctas = 32;
  expected.simple_threads = 256;
  EXPECT_EQ(digest_of(**table), digest_of(expected));
}

TEST(TableFile, WhatIsWrittenIsRead) {
  for (const Target& target : {kCpu, kGpu}) {
    Table table = shipped_table(target);
    table.origin = Origin::file;
    for (const TableField& field : fields_of(target.gpu)) table.*field.value += field.step;
    for (const TableField& field : fields_of(target.gpu)) {
      table.*field.value = std::min(table.*field.value, field.highest);
    }
    const auto read = parse_table(table_text(table, target, "a test"), "f", target);
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    EXPECT_EQ(digest_of(**read), digest_of(table));
  }
}

TEST(TableFile, AnotherNumberOfRanksKeepsTheShippedTable) {
  const auto table = parse_table(gpu_file(R"(, "ll_limit_bytes": 1)"), "f", {true, "NVIDIA H200", 4});
  ASSERT_TRUE(table.ok());
  EXPECT_FALSE(table->has_value());
  // But it is looked at.
  EXPECT_FALSE(parse_table(gpu_file(R"(, "ll_limit_bytes": -1)"), "f", {true, "NVIDIA H200", 4}).ok());
}

struct Bad {
  std::string text;
  const char *field, *why;
};

TEST(TableFile, WhatIsRefusedNamesFileAndField) {
  const std::string host = R"("backend": "host", "nranks": 2)";
  const Bad files[] = {
      {"", "line 1", "ends too early"},
      {"[]", "line 1", "no '{'"},
      {"{\n\"schema\": 1,\n}", "line 3", "no '\"'"},
      {gpu_file("") + " x", "line 1", "behind"},
      {gpu_file(R"(, "nranks": 2)"), "nranks", "twice"},
      {gpu_file(R"(, "few_ctas": null)"), "few_ctas", "neither"},
      {gpu_file(R"(, "few_ctas": [1])"), "few_ctas", "neither"},
      {gpu_file(R"(, "few_ctas": true)"), "few_ctas", "neither"},
      {gpu_file(R"(, "made_by": "\u0041")"), "line 1", "escape"},
      {gpu_file(", \"made_by\": \"a\nb\""), "line 1", "its line"},
      {"{" + host + "}", "schema", "missing"},
      {R"({"schema": 2, "anything": 1})", "schema", "is 2; this version reads 1"},
      {R"({"schema": "1", )" + host + "}", "schema", "is \"1\""},
      {R"({"schema": 1, "nranks": 2})", "backend", "missing"},
      {R"({"schema": 1, "backend": "tpu", "nranks": 2})", "backend", "cuda or host"},
      {R"({"schema": 1, "backend": 3, "nranks": 2})", "backend", "takes a text"},
      {R"({"schema": 1, )" + host + "}", "backend", "made for host, these are ranks of cuda"},
      {R"({"schema": 1, "backend": "cuda", "nranks": 2})", "gpu", "missing"},
      {R"({"schema": 1, "backend": "cuda", "gpu": "NVIDIA L4", "nranks": 2})", "gpu",
       R"(made for "NVIDIA L4", this is "NVIDIA H200")"},
      {R"({"schema": 1, "backend": "cuda", "gpu": "NVIDIA H200"})", "nranks", "missing"},
      {R"({"schema": 1, "backend": "cuda", "gpu": "NVIDIA H200", "nranks": 1})", "nranks", "2 to 64"},
      {gpu_file(R"(, "made_by": 7)"), "made_by", "takes a text"},
      {gpu_file(R"(, "ll_limit": 7)"), "ll_limit", "is no field of a table for cuda"},
      {gpu_file(R"(, "ll_threads": 48)"), "ll_threads", "32 to 512, a multiple of 32"},
      {gpu_file(R"(, "few_ctas": "64")"), "few_ctas", "is \"64\"; it takes a whole number from 1 to 1024"},
      {gpu_file(R"(, "few_ctas": 064)"), "few_ctas", "is 064"},
      {gpu_file(R"(, "few_ctas": 1.5)"), "few_ctas", "is 1.5"},
      {gpu_file(R"(, "few_ctas": 1e1)"), "few_ctas", "is 1e1"},
      {gpu_file(R"(, "few_ctas": 18446744073709551617)"), "few_ctas", "1 to 1024"},
  };
  for (const Bad& bad : files) {
    const auto table = parse_table(bad.text, "a/file.json", kGpu);
    ASSERT_FALSE(table.ok()) << bad.text;
    EXPECT_EQ(table.status().code(), Code::invalid_argument);
    EXPECT_THAT(table.status().text(),
                AllOf(StartsWith(std::string("a/file.json: ") + bad.field + ": "), HasSubstr(bad.why)))
        << bad.text;
  }
  EXPECT_THAT(parse_table(R"({"schema": 1, "gpu": "x", )" + host + "}", "f", kCpu).status().text(),
              HasSubstr("gpu: is no field of a table for host"));
}

TEST(TableFile, EveryFieldHasItsBounds) {
  for (const Target& target : {kCpu, kGpu}) {
    for (const TableField& field : fields_of(target.gpu)) {
      const auto with = [&](const std::string& value) {
        const std::string head = target.gpu ? gpu_file("") : R"({"schema":1,"backend":"host","nranks":2})";
        return parse_table(head.substr(0, head.size() - 1) + ", \"" + field.name + "\": " + value + "}", "f",
                           target);
      };
      EXPECT_TRUE(with(std::to_string(field.lowest)).ok()) << field.name;
      EXPECT_TRUE(with(std::to_string(field.highest)).ok()) << field.name;
      for (const std::string& value :
           {field.lowest == 0 ? std::string("-1") : std::to_string(field.lowest - 1),
            std::to_string(field.highest + 1)}) {
        EXPECT_THAT(with(value).status().text(),
                    StartsWith(std::string("f: ") + field.name + ": is " + value));
      }
    }
  }
}

// A file that was cut off is never taken for a whole one.
TEST(TableFile, EveryPartOfAFileIsRefused) {
  const std::string whole = table_text(kH200Table, kGpu, "a test");
  const std::size_t end = whole.rfind('}');
  for (std::size_t size = 0; size <= end; ++size) {
    EXPECT_FALSE(parse_table(whole.substr(0, size), "f", kGpu).ok()) << size;
  }
  EXPECT_TRUE(parse_table(whole.substr(0, end + 1), "f", kGpu).ok());
}

// Whatever stands in the file: a table within its bounds, or an error that names the file.
TEST(TableFile, NothingElseComesOfSpoiltFiles) {
  const std::string whole = table_text(kH200Table, kGpu, "a test");
  constexpr std::string_view kLikely = "{}[]\",:\\0123456789.-+eE \n\0\xff";
  std::mt19937 random(1);
  const auto below = [&random](std::size_t limit) { return random() % limit; };
  std::size_t good = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = whole;
    for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
      const char c = kLikely[below(kLikely.size())];
      const std::size_t at = below(text.size());
      switch (below(3)) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.insert(at, 1, c);
          break;
        default:
          text.erase(at, 1 + below(4));
      }
    }
    const auto table = parse_table(text, "f", kGpu);
    if (!table.ok()) {
      ASSERT_EQ(table.status().code(), Code::invalid_argument);
      ASSERT_THAT(table.status().text(), StartsWith("f: "));
      continue;
    }
    ++good;
    if (!table->has_value()) continue;
    for (const TableField& field : fields_of(true)) {
      ASSERT_GE((**table).*field.value, field.lowest) << text;
      ASSERT_LE((**table).*field.value, field.highest) << text;
      ASSERT_EQ((**table).*field.value % field.step, 0u) << text;
    }
  }
  EXPECT_GT(good, 100u);
  EXPECT_LT(good, 15'000u);
}

TEST(TableFile, IsAFileOfSomeKilobytes) {
  std::string folder = testing::TempDir() + "nearlight_table_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const auto error = [&](const std::string& path) {
    const Status status = read_table_file(path, kGpu).status();
    EXPECT_THAT(status.text(), HasSubstr(path));
    return status;
  };
  const std::string good = folder + "/good", large = folder + "/large", pipe = folder + "/pipe";
  std::ofstream(good) << table_text(kH200Table, kGpu, "a test");
  EXPECT_TRUE(read_table_file(good, kGpu).ok());
  EXPECT_EQ(error(folder + "/none").code(), Code::system_error);
  EXPECT_THAT(error(folder).text(), HasSubstr("no regular file"));
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error(pipe).text(), HasSubstr("no regular file"));
  std::ofstream(large) << std::string(kMaxTableFileBytes + 1, ' ');
  EXPECT_THAT(error(large).text(), HasSubstr("more than 65536 bytes"));
  for (const std::string& path : {good, large, pipe}) ::unlink(path.c_str());
  ::rmdir(folder.c_str());
}

}  // namespace
}  // namespace nearlight::route
