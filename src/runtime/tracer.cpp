#include "runtime/tracer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include <nearlight/detail/exec/host_space.hpp>
#include "base/log.hpp"
#include "base/unique_fd.hpp"
#include "base/variables.hpp"

namespace nearlight::runtime {

namespace {

std::int64_t clock_ns(clockid_t clock) {
  timespec time{};
  static_cast<void>(::clock_gettime(clock, &time));  // both clocks exist
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

Status write_all(int file, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t now = ::write(file, text.data() + done, text.size() - done);
    if (now < 0 && errno != EINTR) return system_failure("write", errno);
    if (now > 0) done += static_cast<std::size_t>(now);
  }
  return {};
}

Status write_file(const std::string& path, const std::string& text) {
  // Under another name until it is whole.
  const std::string draft = path + ".part";
  const UniqueFd file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return system_failure("open", errno);
  NL_TRY(write_all(file.get(), text));
  if (::rename(draft.c_str(), path.c_str()) != 0) return system_failure("rename", errno);
  return {};
}

}  // namespace

Result<std::optional<std::string>> trace_folder(std::optional<bool> wish) {
  if (wish == false) return std::optional<std::string>();
  auto folder = variables::read(variables::kTrace);
  if (!folder) return wish == true ? std::optional<std::string>("") : folder;
  struct stat facts {};
  if (::stat(folder->c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode) ||
      ::access(folder->c_str(), W_OK) != 0) {
    return failure(Code::invalid_argument, "%s is \"%s\": no folder that can be written to",
                   variables::kTrace.name, folder->c_str());
  }
  return folder;
}

Result<Tracer> Tracer::start(Exchange& exchange, std::string folder, const char* backend, Deadline deadline) {
  Tracer tracer;
  tracer.folder_ = std::move(folder);
  const std::uint64_t number = exec::HostSpace::now_ns() ^ static_cast<std::uint64_t>(::getpid()) << 44;
  NL_TRY_ASSIGN(const auto numbers, gather_values(exchange, number, deadline));
  tracer.trace_.group = numbers[0];
  tracer.trace_.rank = exchange.rank();
  tracer.trace_.nranks = exchange.nranks();
  tracer.trace_.process = ::getpid();
  tracer.trace_.backend = backend;
  return tracer;
}

Status check_span(const trace::RankTrace::Span& span, int rank, int nranks) {
  if (!trace::is_name(span.name)) {
    return failure(Code::invalid_argument,
                   "name: 1 to 63 printable ASCII characters, without quotes and backslashes");
  }
  if (span.end_ns < span.begin_ns)
    return failure(Code::invalid_argument, "end_ns: the span ends before it begins");
  if (span.track >= 1000) return failure(Code::invalid_argument, "track: %u is not below 1000", span.track);
  const std::uint32_t others = ((1u << nranks) - 1) & ~(1u << rank);
  for (const auto& [name, mask] : {std::pair("to", span.to), std::pair("from", span.from)}) {
    if ((mask & ~others) != 0)
      return failure(Code::invalid_argument, "%s: 0x%x has a bit that is no other rank's", name, mask);
  }
  return {};
}

Status Tracer::add(trace::RankTrace::Span span) {
  const std::lock_guard lock(*mutex_);
  if (trace_.spans.size() >= kMostSpans) {
    return failure(Code::invalid_usage, "span: %zu of a communicator are kept, and there are as many",
                   kMostSpans);
  }
  trace_.spans.push_back(std::move(span));
  return {};
}

void Tracer::write() {
  trace_.realtime_ns = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
  trace::sort(trace_);
  char name[128];
  std::snprintf(name, sizeof name, "/nearlight-trace-%llx-rank%d.json",
                static_cast<unsigned long long>(trace_.group), trace_.rank);
  const std::string path = folder_ + name;
  if (const Status written = write_file(path, trace::chrome_json(std::span(&trace_, 1))); !written.ok()) {
    log::warn("the trace " + path + " is not written: " + written.to_string());
  }
}

}  // namespace nearlight::runtime
