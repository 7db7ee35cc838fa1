#include "cli/report/chart.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "cli/append.hpp"
#include "cli/demo_table.hpp"

namespace nearlight::report {

namespace {

using cli::append;

// The plot within the picture; the legend stands below it.
constexpr double kWidth = 720, kLeft = 64, kRight = 16, kTop = 32, kPlotHeight = 280, kFoot = 40;
constexpr double kLegendRow = 18, kLegendColumn = 320;
// Told apart by readers who see colours differently (Okabe and Ito); the mark differs too.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#56b4e9", "#8a8a00", "#7f7f7f"};

// One axis: values from `low` to `high`, both above 0, onto places from `begin` to `end`.
class Axis {
 public:
  Axis(double low, double high, double begin, double end)
      : low_(std::log(low)), high_(std::log(high)), begin_(begin), end_(end) {}
  double at(double value) const {
    return begin_ + (std::log(value) - low_) / (high_ - low_) * (end_ - begin_);
  }

 private:
  double low_, high_, begin_, end_;
};

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

// 1, 2 and 5 times powers of ten; of a narrow range, steps of a tenth.
std::vector<double> ticks_of(const Range& range) {
  std::vector<double> ticks;
  const int first = static_cast<int>(std::floor(std::log10(range.low)));
  const int last = static_cast<int>(std::ceil(std::log10(range.high)));
  const bool narrow = range.high / range.low < 4;
  for (int power = first; power <= last; ++power) {
    for (int tenth = 10; tenth < 100; tenth += narrow ? 1 : 10) {
      if (!narrow && last - first > 3 && tenth != 10) continue;
      if (!narrow && tenth != 10 && tenth != 20 && tenth != 50) continue;
      const double tick = tenth * 0.1 * std::pow(10.0, power);
      if (tick >= range.low * 0.9999 && tick <= range.high * 1.0001) ticks.push_back(tick);
    }
  }
  // Not more than there is room for.
  const std::size_t step = ticks.size() / 9 + 1;
  std::vector<double> kept;
  for (std::size_t i = 0; i < ticks.size(); i += step) kept.push_back(ticks[i]);
  return kept;
}

std::vector<double> sizes_of(const Chart& chart) {
  std::vector<double> sizes;
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) sizes.push_back(point.x);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

void append_mark(std::string& text, std::size_t kind, double x, double y, const char* colour) {
  switch (kind % 3) {
    case 0:
      append(text, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\">", x, y, colour);
      break;
    case 1:
      append(text, "<rect x=\"%.1f\" y=\"%.1f\" width=\"6\" height=\"6\" fill=\"%s\">", x - 3, y - 3, colour);
      break;
    default:
      append(text, "<path d=\"M%.1f %.1f l4 7 h-8 z\" fill=\"%s\">", x, y - 4, colour);
  }
}

const char* mark_end(std::size_t kind) {
  return kind % 3 == 0 ? "</circle>" : kind % 3 == 1 ? "</rect>" : "</path>";
}

void append_series(std::string& text, const Series& series, std::size_t index, const Axis& x, const Axis& y) {
  const char* const colour = series.dashed ? "currentColor" : kColours[index % std::size(kColours)];
  append(text, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%s\"%s points=\"", colour,
         series.dashed ? "1" : "2", series.dashed ? " stroke-dasharray=\"5 4\"" : "");
  for (const Point& point : series.points) append(text, "%.1f,%.1f ", x.at(point.x), y.at(point.y));
  text += "\"/>\n";
  if (series.dashed) return;
  for (const Point& point : series.points) {
    append_mark(text, index, x.at(point.x), y.at(point.y), colour);
    text += "<title>" + escaped(point.hint) + "</title>" + mark_end(index) + "\n";
  }
}

void append_legend(std::string& text, const Chart& chart, double top) {
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const Series& series = chart.series[i];
    const char* const colour = series.dashed ? "currentColor" : kColours[i % std::size(kColours)];
    const double left = kLeft + static_cast<double>(i % 2) * kLegendColumn;
    const double middle = top + static_cast<double>(i / 2) * kLegendRow;
    append(text, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"2\"%s/>",
           left, middle, left + 22, middle, colour, series.dashed ? " stroke-dasharray=\"5 4\"" : "");
    if (!series.dashed) {
      append_mark(text, i, left + 11, middle, colour);
      text += mark_end(i);
    }
    append(text, "<text x=\"%.1f\" y=\"%.1f\">", left + 28, middle + 4);
    text += escaped(series.name) + "</text>\n";
  }
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
          out += "\xEF\xBF\xBD";
        } else {
          out += c;
        }
    }
  }
  return out;
}

std::string svg_of(const Chart& chart) {
  Range x_range, y_range;
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      x_range.take(point.x);
      y_range.take(point.y);
    }
  }
  if (x_range.high == 0) return "";
  // A single size or value still needs an axis with some length.
  if (x_range.low == x_range.high) x_range = {x_range.low / 2, x_range.high * 2};
  y_range = {y_range.low / 1.1, y_range.high * 1.1};

  const double right = kWidth - kRight, bottom = kTop + kPlotHeight;
  const auto legend_rows = static_cast<double>((chart.series.size() + 1) / 2);
  const double height = bottom + kFoot + legend_rows * kLegendRow + 8;
  const Axis x(x_range.low, x_range.high, kLeft + 8, right - 8), y(y_range.low, y_range.high, bottom, kTop);
  std::string text;
  append(text, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", kWidth, height);
  text += escaped(chart.title) + "\">\n";
  append(text, "<text x=\"%.1f\" y=\"18\" font-weight=\"bold\">", kLeft);
  text += escaped(chart.title) + "</text>\n";
  for (const double tick : ticks_of(y_range)) {
    append(text,
           "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"currentColor\" opacity=\"0.15\"/>"
           "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
           kLeft, y.at(tick), right, y.at(tick), kLeft - 6, y.at(tick) + 4, tick);
  }
  double last = -kWidth;
  for (const double size : sizes_of(chart)) {
    if (x.at(size) - last < 60) continue;
    last = x.at(size);
    append(text, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"currentColor\"/>", last,
           bottom, last, bottom + 4);
    append(text, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", last, bottom + 18,
           cli::size_text(static_cast<std::size_t>(size)).c_str());
  }
  append(text, "<path d=\"M%.1f %.1f V%.1f H%.1f\" fill=\"none\" stroke=\"currentColor\"/>\n", kLeft, kTop,
         bottom, right);
  append(text, "<text transform=\"translate(14 %.1f) rotate(-90)\" text-anchor=\"middle\">",
         kTop + kPlotHeight / 2);
  text += escaped(chart.y_label) + "</text>\n";
  for (std::size_t i = 0; i < chart.series.size(); ++i) append_series(text, chart.series[i], i, x, y);
  append_legend(text, chart, bottom + kFoot);
  return text + "</svg>\n";
}

}  // namespace nearlight::report
