// NEARLIGHT_TRACE: what a communicator's rings hold goes into a file at its end.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/exchange.hpp"
#include "base/status.hpp"
#include "trace/rank_trace.hpp"

namespace nearlight::runtime {

// The folder, when tracing is on: `wish`, or unset by NEARLIGHT_TRACE; "": nothing is to be written at the
// end. Code::invalid_argument: nothing can be written there.
Result<std::optional<std::string>> trace_folder(std::optional<bool> wish);

// Code::invalid_argument names the field that cannot be.
Status check_span(const trace::RankTrace::Span& span, int rank, int nranks);

class Tracer {
 public:
  // Collective over ranks that all trace: they get one number for their group.
  static Result<Tracer> start(Exchange& exchange, std::string folder, const char* backend, Deadline deadline);

  trace::RankTrace& ranks() { return trace_; }
  // Whether there is a folder.
  bool writes() const { return !folder_.empty(); }
  // A span of the program's, checked. Any thread. Code::invalid_usage: there are kMostSpans.
  Status add(trace::RankTrace::Span span);
  static constexpr std::size_t kMostSpans = 1'000'000;
  // Writes the file. A failure is a warning: at the end of a communicator there is nobody to tell.
  void write();

 private:
  std::string folder_;
  trace::RankTrace trace_;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();  // of the spans
};

}  // namespace nearlight::runtime
