// Line charts as SVG that stands inside an HTML page: no scripts, no fonts, nothing from elsewhere.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nearlight::report {

// Text for HTML: & < > " ' as entities, control characters as U+FFFD.
std::string escaped(std::string_view text);

struct Point {
  double x = 0, y = 0;  // above 0
  std::string hint;     // shown when the pointer rests on it
};

struct Series {
  std::string name;
  std::vector<Point> points;  // x ascending
  bool dashed = false;        // a limit, without marks
};

// Both axes are logarithmic; x is a size in bytes.
struct Chart {
  std::string title;
  std::string y_label;
  std::vector<Series> series;
};

// "" for a chart without points.
std::string svg_of(const Chart& chart);

}  // namespace nearlight::report
