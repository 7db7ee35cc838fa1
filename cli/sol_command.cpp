#include "cli/sol_command.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nearlight/build_info.hpp>
#include <optional>

#include "base/status.hpp"
#include "cli/append.hpp"
#include "cli/exit_code.hpp"
#include "cli/machine.hpp"
#include "cli/results.hpp"
#include "cli/sol_heaps.hpp"
#include "probe/gpu_facts.hpp"

namespace nearlight::cli {

namespace {

struct SolOptions {
  std::string device;  // "", "cpu", "i", "i,j"
  std::string json;
  int lines = probe::kDefaultLines;
};

// What is measured: two devices, one, or (empty) the CPU.
using Devices = std::vector<int>;

std::optional<int> parse_index(const std::string& text) {
  if (text.empty() || text.size() > 4 || text.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoi(text);
}

Result<Devices> choose_devices(const std::string& text, const probe::GpuFacts& facts) {
  const auto count = static_cast<int>(facts.devices.size());
  if (text == "cpu") return Devices{};
  if (text.empty()) {
    const auto [a, b] = facts.first_pair();
    if (a >= 0) return Devices{a, b};
    return count > 0 ? Devices{0} : Devices{};
  }
  Devices devices;
  const std::size_t comma = text.find(',');
  std::vector<std::string> parts = {text.substr(0, comma)};
  if (comma != std::string::npos) parts.push_back(text.substr(comma + 1));
  for (const std::string& part : parts) {
    const std::optional<int> index = parse_index(part);
    if (!index)
      return failure(Code::invalid_argument, "--device: '%s' is none of i,j and i and cpu", text.c_str());
    devices.push_back(*index);
  }
  if (count == 0)
    return failure(Code::unsupported, "--device %s: no GPU: %s", text.c_str(), facts.problem.c_str());
  for (const int device : devices) {
    if (device >= count)
      return failure(Code::invalid_argument, "--device: %d, but this machine has %d", device, count);
  }
  if (devices.size() == 2 && devices[0] == devices[1]) devices.pop_back();
  if (devices.size() == 2 && facts.between(devices[0], devices[1]) == probe::Link::none) {
    return failure(Code::unsupported, "--device: GPU %d and GPU %d do not reach each other's memory",
                   devices[0], devices[1]);
  }
  return devices;
}

void append_spreads(std::string& text, const char* name, const char* meaning,
                    const std::vector<probe::Spread>& spreads, std::optional<double> median_us) {
  if (spreads.empty()) return;
  append(text, "\n%s: %s\n", name, meaning);
  for (const probe::Spread& spread : spreads) {
    append(text, "  %-32s %9.4f %9.4f %9.4f  us\n", spread.place.c_str(), spread.min_us, spread.p50_us,
           spread.max_us);
  }
  if (median_us)
    append(text, "  %-32s %9s %9.4f %9s  us\n", "median of all lines and places", "", *median_us, "");
}

void append_value(std::string& text, const char* name, std::optional<double> value, const char* unit,
                  const char* meaning) {
  if (value) append(text, "  %-32s %9.4g %-5s %s\n", name, *value, unit, meaning);
}

}  // namespace

std::string sol_table(const Machine& machine, const probe::SolReport& report) {
  const bool gpu = report.backend != "cpu";
  std::string text;
  append(text, "The least times of this machine (%s)\n",
         report.backend == "gpu"          ? "two GPUs"
         : report.backend == "gpu_single" ? "one GPU: two streams of it, on different SMs"
                                          : "CPU: two threads");
  if (gpu) {
    append(text, "  GPU      %s x %d, link %s\n", machine.gpu.c_str(), machine.gpus, machine.link.c_str());
    append(text, "  driver   %s, CUDA %s\n", machine.driver.c_str(), machine.cuda.c_str());
  }
  append(text, "  CPU      %s\n", machine.cpu.c_str());
  append(text, "  %d lines, taken in %.0f ms\n\n", report.lines, report.took_ms);
  append(text, "  %-32s %9s %9s %9s\n", "over the lines", "min", "p50", "max");
  append_spreads(text, gpu ? "L2 round trip" : "local load",
                 gpu ? "a load of a line of the GPU's own memory, each waiting for the one before"
                     : "a load of a line in the core's own cache, each waiting for the one before",
                 report.l2rtt, report.l2rtt_us);
  append_spreads(text, "one way",
                 "from a store until the other side's polling load sees it (half a ping-pong)",
                 report.one_way, report.one_way_us);
  append_spreads(text, "remote load", "a load of a line of the other side, there and back",
                 report.remote_load, report.remote_load_us);
  append_spreads(
      text, "speed of light",
      gpu ? "L2 round trip + one way, line by line: the least an all-reduce inside a kernel can take"
          : "local load + one way, line by line: the least an all-reduce can take",
      report.sol, report.sol_us);
  text += "\n";
  append_value(text, "store bandwidth", report.store_gbs, "GB/s",
               "into the other side's memory, per direction, both directions busy");
  append_value(text, "one way, relaxed polls", report.arrival_relaxed_us, "us",
               "as above, on the first SM in one direction");
  append_value(text, "one way, every poll acquires", report.arrival_acquire_us, "us",
               "what a flag costs whose data lies elsewhere");
  append_value(text, "one way, polls and one fence", report.arrival_fence_us, "us",
               "the same, ordered by a fence behind relaxed polls");
  append_value(text, "launch floor, graph", report.launch_floor_us, "us",
               "an empty kernel in a chain of a CUDA graph");
  append_value(text, "launch floor, dependent launch", report.launch_floor_pdl_us, "us",
               "the same with programmatic dependent launch");
  append_value(text, "launch floor, eager", report.eager_floor_us, "us",
               "an empty kernel from the call to its end seen by the host");
  append_value(text, "sol_us", report.sol_us, "us", "what ratio_sol in results divides by");
  return text;
}

namespace {

Status measure(const SolOptions& options, const std::string& command) {
  const probe::GpuFacts facts = options.device == "cpu" ? probe::GpuFacts{} : probe::gpu_facts();
  NL_TRY_ASSIGN(const Devices devices, choose_devices(options.device, facts));
  if (devices.empty() && options.device.empty()) {
    std::fprintf(stderr, "nearlight sol: measuring the CPU: %s\n", facts.problem.c_str());
  }
  NL_TRY_ASSIGN(const probe::SolReport report,
                devices.empty() ? measure_sol_on_cpu(options.lines)
                                : measure_sol_on_gpus(devices.front(), devices.back(), options.lines));
  ResultFile file;
  file.date = now_utc();
  file.commit = build_info::commit;
  file.command = command;
  file.env = recorded_environment();
  file.machine = describe_machine(facts, devices, "");
  file.floors = floors_of(report);
  std::fputs(sol_table(file.machine, report).c_str(), stdout);
  std::fflush(stdout);
  if (!options.json.empty()) NL_TRY(write_results(file, options.json));
  return {};
}

}  // namespace

int sol_command(const std::vector<std::string>& arguments) {
  SolOptions options;
  CLI::App app(
      "Measures what this machine cannot do faster: round trip, one way, bandwidth, launch floors.\n"
      "Takes two GPUs that reach each other's memory, else one GPU (between two of its SMs), else two CPU "
      "cores.",
      "nearlight sol");
  app.add_option("--device", options.device,
                 "GPUs i,j to measure between; i for one GPU; cpu [the first that fit]")
      ->type_name("i,j|i|cpu");
  app.add_option("--json", options.json, "also write a result file, without rows")->type_name("FILE");
  app.add_option("--lines", options.lines, "cache lines to measure on")
      ->check(CLI::Range(1, probe::kMaxLines))
      ->capture_default_str()
      ->type_name("N");
  std::string command = "nearlight sol";
  for (const std::string& argument : arguments) command.append(1, ' ').append(without_folder(argument));
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 takes them last first
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "nearlight sol: %s\n(--help tells more)\n", error.what());
    return kExitUsage;
  }
  const Status status = measure(options, command);
  if (!status.ok()) std::fprintf(stderr, "nearlight sol: %s\n", status.to_string().c_str());
  return exit_code_of(status);
}

}  // namespace nearlight::cli
