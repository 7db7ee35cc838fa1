#include "cli/machine.hpp"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <utility>

namespace nearlight::cli {

namespace {

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t");
  const std::size_t last = text.find_last_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

// The value of the first of these keys in /proc/cpuinfo's "key : value" lines.
std::string cpuinfo_value(std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    std::ifstream cpuinfo("/proc/cpuinfo");
    for (std::string line; std::getline(cpuinfo, line);) {
      const std::size_t colon = line.find(':');
      if (colon == std::string::npos || trimmed(line.substr(0, colon)) != key) continue;
      const std::string value = trimmed(line.substr(colon + 1));
      if (!value.empty()) return value;
    }
  }
  return "unknown processor";
}

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

}  // namespace

std::string cpu_name() {
  std::string name = cpuinfo_value({"model name", "CPU part", "cpu"});  // x86, Arm, others
  const int cpus = usable_cpus();
  if (cpus > 0) name += ", " + std::to_string(cpus) + (cpus == 1 ? " CPU" : " CPUs");
  return name;
}

Machine describe_machine(const probe::GpuFacts& facts, const std::vector<int>& devices,
                         const std::string& nccl) {
  Machine machine;
  machine.gpu = "none";
  machine.link = "shm";
  machine.driver = or_none(facts.driver);
  machine.cuda = or_none(facts.cuda);
  machine.nccl = or_none(nccl);
  machine.cpu = cpu_name();
  if (devices.empty()) return machine;

  machine.gpus = static_cast<int>(devices.size());
  machine.gpu = "";
  // The slowest link of any two that took part; GPUs of several kinds are all named.
  probe::Link slowest = probe::Link::nvlink;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::string& name = facts.devices[static_cast<std::size_t>(devices[i])].name;
    if (machine.gpu.find(name) == std::string::npos) machine.gpu += (machine.gpu.empty() ? "" : " + ") + name;
    for (std::size_t j = 0; j < i; ++j) slowest = std::min(slowest, facts.between(devices[j], devices[i]));
  }
  machine.link = probe::name_of(devices.size() == 1 ? probe::Link::none : slowest);
  return machine;
}

}  // namespace nearlight::cli
