#include <cuda_runtime.h>

#include <cstdio>
#include <fstream>

#include "probe/gpu_facts.hpp"

namespace nearlight::probe {

namespace {

std::string version_text(int number) {  // 13010 is 13.1
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ..."
std::string kernel_module_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    int major = 0, minor = 0;
    if (std::sscanf(word.c_str(), "%d.%d", &major, &minor) == 2 && major >= 100) return word;
  }
  return "";
}

Link link_between(int from, int to) {
  int access = 0, native_atomics = 0;
  if (from == to || cudaDeviceCanAccessPeer(&access, from, to) != cudaSuccess || access == 0)
    return Link::none;
  // The run time does not name the link. Of the two there are, NVLink alone carries every atomic natively.
  if (cudaDeviceGetP2PAttribute(&native_atomics, cudaDevP2PAttrNativeAtomicSupported, from, to) !=
      cudaSuccess) {
    native_atomics = 0;
  }
  return native_atomics != 0 ? Link::nvlink : Link::pcie;
}

}  // namespace

GpuFacts gpu_facts() {
  GpuFacts facts;
  int runtime = 0, driver = 0, count = 0;
  if (cudaRuntimeGetVersion(&runtime) == cudaSuccess) facts.cuda = version_text(runtime);
  facts.driver = kernel_module_version();
  if (facts.driver.empty() && cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) {
    facts.driver = "for CUDA " + version_text(driver);
  }
  cudaError_t error = cudaGetDeviceCount(&count);
  for (int device = 0; error == cudaSuccess && device < count; ++device) {
    cudaDeviceProp properties{};
    error = cudaGetDeviceProperties(&properties, device);
    if (error != cudaSuccess) break;
    GpuFacts::Device& entry = facts.devices.emplace_back();
    entry.name = properties.name;
    entry.sm_count = properties.multiProcessorCount;
    entry.compute_major = properties.major;
    entry.compute_minor = properties.minor;
    entry.memory_bytes = properties.totalGlobalMem;
    for (int other = 0; other < count; ++other) entry.links.push_back(link_between(device, other));
  }
  if (error != cudaSuccess) {
    facts.devices.clear();
    facts.problem = cudaGetErrorString(error);
  } else if (count == 0) {
    facts.problem = "no GPU is visible";
  }
  (void)cudaGetLastError();  // a failed question must not be found by the next launch check
  return facts;
}

}  // namespace nearlight::probe
