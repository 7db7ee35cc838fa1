#include "cli/report/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <vector>

#include "cli/report/chart.hpp"
#include "tests/support/sample_results.hpp"

namespace nearlight::report {
namespace {

using test::sample_results;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

// What is wrong with the nesting of elements: every one is closed, by itself or by its own end.
std::string fault_of(const std::string& page) {
  static const std::regex tag("<(/?)([a-zA-Z0-9]+)((?:[^<>\"]|\"[^<>\"]*\")*)>");
  std::vector<std::string> open;
  const std::string body = page.substr(page.find("<html"));
  for (std::sregex_iterator at(body.begin(), body.end(), tag), end; at != end; ++at) {
    const std::smatch& part = *at;
    if (part[1].length() > 0) {
      if (open.empty() || open.back() != part[2]) return "</" + part[2].str() + "> ends nothing";
      open.pop_back();
    } else if (!part[3].str().ends_with('/')) {
      open.push_back(part[2]);
    }
  }
  if (!open.empty()) return "<" + open.back() + "> does not end";
  return std::regex_replace(body, tag, "").find_first_of("<>") == std::string::npos ? "" : "a bare < or >";
}

TEST(Fault, IsFound) {
  EXPECT_EQ(fault_of("<html><p a=\"b\">x<br/></p></html>"), "");
  for (const char* page : {"<html><p></html>", "<html></p></html>", "<html>a < b</html>", "<html><p>"}) {
    EXPECT_NE(fault_of(page), "") << page;
  }
}

TEST(Escaped, LeavesNothingThatAPageWouldTakeForItsOwn) {
  EXPECT_EQ(escaped("<a href=\"x\">'&\n"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;\n");
  EXPECT_EQ(escaped(std::string("\0\x1b", 2)), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

std::vector<double> numbers(const std::string& svg, const char* attribute) {
  const std::regex shape(std::string("<circle[^>]* ") + attribute + "=\"([0-9.]+)\" ?[^>]*><title>");
  std::vector<double> found;
  for (std::sregex_iterator at(svg.begin(), svg.end(), shape), end; at != end; ++at)
    found.push_back(std::stod((*at)[1]));
  return found;
}

TEST(Chart, BothAxesAreLogarithmic) {
  const std::string svg =
      svg_of({"t", "us", {{"line", {{8, 1, "a"}, {64, 10, "b"}, {512, 100, "c"}}, false}}});
  const auto x = numbers(svg, "cx"), y = numbers(svg, "cy");
  ASSERT_EQ(x.size(), 3u) << svg;
  ASSERT_EQ(y.size(), 3u);
  EXPECT_GT(x[1], x[0]);
  EXPECT_LT(y[1], y[0]);  // up is more
  EXPECT_NEAR(x[1] - x[0], x[2] - x[1], 0.2);
  EXPECT_NEAR(y[0] - y[1], y[1] - y[2], 0.2);
  EXPECT_THAT(svg, HasSubstr("<title>b</title>"));
  EXPECT_THAT(svg, HasSubstr(">512 B</text>"));
}

TEST(Chart, OnePointOrNone) {
  EXPECT_EQ(svg_of({"t", "us", {}}), "");
  EXPECT_EQ(svg_of({"t", "us", {{"line", {}, false}}}), "");
  const std::string svg = svg_of({"t", "us", {{"line", {{128, 0.9, ""}}, false}}});
  EXPECT_EQ(numbers(svg, "cx").size(), 1u);
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
}

TEST(Report, HasPlotsFactsAndCommandOfEachFile) {
  const std::string page = html_of({{"one.json", sample_results()}});
  EXPECT_EQ(fault_of(page), "");
  EXPECT_THAT(page, HasSubstr("<h2>one.json</h2>"));
  EXPECT_THAT(page, HasSubstr("2 x NVIDIA H200, link NVLink"));
  EXPECT_THAT(page, HasSubstr("580.159.04, 13.0, 2.28.9"));
  EXPECT_THAT(page, HasSubstr("<pre>nearlight bench all_reduce --json out.json</pre>"));
  EXPECT_THAT(page, HasSubstr("NCCL_NVLS_ENABLE"));
  // Latency, ratio, and percentiles of nearlight and of nccl.
  EXPECT_EQ(count_of(page, "<svg "), 4u);
  EXPECT_THAT(page, HasSubstr("Percentiles of nccl: all_reduce bf16 sum, 2 ranks, mode graph"));
  EXPECT_THAT(page, HasSubstr("<title>nearlight, 4 KiB: 1.6 us</title>"));
  EXPECT_THAT(page, HasSubstr("limit of this machine"));
  EXPECT_THAT(page, Not(HasSubstr("Across files")));
}

TEST(Report, NeedsNothingFromElsewhere) {
  const std::string page = html_of({{"one.json", sample_results()}});
  for (const char* word : {"http:", "https:", "<script", "<link", "src=", "url(", "@import"}) {
    EXPECT_THAT(page, Not(HasSubstr(word)));
  }
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

TEST(Report, EscapesEveryText) {
  const std::string evil = "<script>\"'&x</script>";
  cli::ResultFile file = sample_results();
  file.date = file.commit = file.command = evil;
  file.env = {{evil, evil}};
  file.machine = {evil, 2, evil, evil, evil, evil, evil};
  for (cli::ResultRow& row : file.rows) {
    row.collective = row.dtype = row.op = row.algorithm = row.protocol = row.forced = evil;
    row.impl += evil;
  }
  const std::string page = html_of({{evil, file}, {evil + "2", file}});
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_EQ(fault_of(page), "");
}

TEST(Report, PutsTogetherWhatSeveralFilesHaveMeasured) {
  cli::ResultFile other = sample_results();
  const std::string page = html_of({{"a.json", sample_results()}, {"b.json", other}});
  EXPECT_EQ(count_of(page, "<svg "), 10u);
  EXPECT_THAT(page, HasSubstr("Across files"));
  EXPECT_THAT(page, HasSubstr(">nearlight, b.json</text>"));
  for (cli::ResultRow& row : other.rows) row.mode = cli::Mode::kernel;
  EXPECT_EQ(count_of(html_of({{"a.json", sample_results()}, {"b.json", other}}), "<svg "), 8u);
}

TEST(Report, RowsOfOneKindShareALineAndTheirMedianStands) {
  cli::ResultFile file = sample_results();
  file.rows = {test::sample_row(file.floors, "nearlight", 1.0),
               test::sample_row(file.floors, "nearlight", 9.0),
               test::sample_row(file.floors, "nearlight", 2.0)};
  file.rows.push_back(file.rows[0]);
  file.rows.back().scratch = 512;
  file.rows.push_back(file.rows[0]);
  file.rows.back().jobs = 2;
  const std::string page = html_of({{"one.json", file}});
  EXPECT_THAT(page, HasSubstr("<title>nearlight, 2 jobs, 4 KiB: 1 us</title>"));
  EXPECT_THAT(page, HasSubstr("<title>nearlight, 4 KiB: 2 us</title>"));
  EXPECT_THAT(page, HasSubstr("nearlight (median of 3)"));
  EXPECT_THAT(page, HasSubstr("<title>nearlight, scratch 512, 4 KiB: 1 us</title>"));
}

}  // namespace
}  // namespace nearlight::report
