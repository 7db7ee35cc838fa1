#include "probe/lines.hpp"

#include <cinttypes>
#include <cstdio>

namespace nearlight::probe {

namespace {

// The part before the first '/', of a place that is known.
std::string root_of(const std::string& place) { return place.substr(0, place.find('/')); }

// Whether the two have a bridge in common below the root.
bool share_a_bridge(const std::string& a, const std::string& b) {
  const auto second = [](const std::string& place) {
    const auto first_end = place.find('/');
    return first_end == std::string::npos ? "" : place.substr(0, place.find('/', first_end + 1));
  };
  return root_of(a) == root_of(b) && !second(a).empty() && second(a) == second(b);
}

std::string in_words(LineVerdict verdict, const LineCounts& counts) {
  if (verdict == LineVerdict::not_run) return name_of(verdict);
  char text[120];
  std::snprintf(text, sizeof text, "%s (%" PRIu64 " lines, %" PRIu64 " torn, %" PRIu64 " missing)",
                name_of(verdict), counts.lines, counts.torn, counts.missing);
  return text;
}

}  // namespace

const char* name_of(PathType path) {
  switch (path) {
    case PathType::nvl:
      return "NVLink";
    case PathType::pxb:
      return "PCIe bridges";
    case PathType::phb:
      return "a PCIe host bridge";
    case PathType::sys:
      return "several CPUs or unconnected";
    case PathType::c2c:
      return "CPUs with C2C";
    case PathType::same_gpu:
      return "one GPU";
    case PathType::unknown:
      return "unknown";
  }
  return "invalid";
}

PathType path_of(const PathFacts& facts) {
  if (facts.same_gpu) return PathType::same_gpu;
  if (!facts.seen) return PathType::unknown;
  // Native atomics do not tell NVLink there: C2C has them.
  if (facts.coherent_cpu) return PathType::c2c;
  if (facts.peer_access && facts.native_atomics) return PathType::nvl;
  if (!facts.peer_access) return PathType::sys;
  if (facts.place.empty() || facts.other_place.empty()) return PathType::sys;
  if (share_a_bridge(facts.place, facts.other_place)) return PathType::pxb;
  const bool one_node = facts.node == facts.other_node;
  return one_node || root_of(facts.place) == root_of(facts.other_place) ? PathType::phb : PathType::sys;
}

const char* name_of(LineVerdict verdict) {
  switch (verdict) {
    case LineVerdict::not_run:
      return "not tested";
    case LineVerdict::torn:
      return "torn";
    case LineVerdict::late:
      return "late";
    case LineVerdict::whole:
      return "whole";
  }
  return "invalid";
}

LineVerdict verdict_of(const LineCounts& counts, std::uint64_t wanted) {
  if (counts.torn > 0) return LineVerdict::torn;
  return counts.missing > 0 || counts.lines < wanted ? LineVerdict::late : LineVerdict::whole;
}

std::string describe(const LineReport& report) {
  return std::string("between GPUs: ") + name_of(report.path) +
         "; stores of lines: " + in_words(report.stores, report.of_stores) +
         "; adds to lines: " + in_words(report.adds, report.of_adds);
}

}  // namespace nearlight::probe
