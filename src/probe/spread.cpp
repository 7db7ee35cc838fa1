#include "probe/spread.hpp"

#include <algorithm>
#include <utility>

#include "trace/samples.hpp"

namespace nearlight::probe {

namespace {

// One quantity over all directions.
class Pool {
 public:
  explicit Pool(std::vector<Spread>& spreads) : spreads_(spreads) {}
  void add(std::string place, const std::vector<double>& values_us) {
    if (values_us.empty()) return;
    spreads_.push_back(spread_of(std::move(place), values_us));
    all_us_.insert(all_us_.end(), values_us.begin(), values_us.end());
  }
  std::optional<double> median() const {
    if (all_us_.empty()) return std::nullopt;
    return median_of(all_us_);
  }

 private:
  std::vector<Spread>& spreads_;
  std::vector<double> all_us_;
};

}  // namespace

Spread spread_of(std::string place, const std::vector<double>& values_us) {
  const auto [least, most] = std::minmax_element(values_us.begin(), values_us.end());
  return {std::move(place), *least, median_of(values_us), *most, static_cast<int>(values_us.size())};
}

double median_of(std::vector<double> values_us) {
  std::sort(values_us.begin(), values_us.end());
  return trace::nearest_rank(values_us, 50);
}

void fill_report(SolReport& report, const std::vector<Direction>& directions) {
  Pool l2rtt(report.l2rtt), one_way(report.one_way), sol(report.sol), remote_load(report.remote_load);
  for (const Direction& direction : directions) {
    const std::string way = direction.from + " -> " + direction.to;
    std::vector<double> sums_us;
    for (std::size_t line = 0; line < direction.one_way_us.size(); ++line) {
      sums_us.push_back(direction.l2rtt_us[line] + direction.one_way_us[line]);
    }
    l2rtt.add(direction.from, direction.l2rtt_us);
    one_way.add(way, direction.one_way_us);
    sol.add(way, sums_us);
    remote_load.add(way, direction.remote_load_us);
  }
  report.l2rtt_us = l2rtt.median().value_or(0);
  report.one_way_us = one_way.median().value_or(0);
  report.sol_us = sol.median().value_or(0);
  report.remote_load_us = remote_load.median();
}

}  // namespace nearlight::probe
