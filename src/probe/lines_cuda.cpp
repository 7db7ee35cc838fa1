#include <cuda_runtime.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "probe/line_test.hpp"

namespace nearlight::probe {

namespace {

// "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0" without the first two folders; "" where it is not
// known.
std::string pci_place(int device, int& node) {
  char id[32] = {};
  if (cudaDeviceGetPCIBusId(id, sizeof id, device) != cudaSuccess) return "";
  for (char& letter : id)
    letter = static_cast<char>(letter >= 'A' && letter <= 'F' ? letter - 'A' + 'a' : letter);
  const std::filesystem::path entry = std::string("/sys/bus/pci/devices/") + id;
  std::ifstream(entry / "numa_node") >> node;
  std::error_code error;
  const std::string place = std::filesystem::canonical(entry, error).string();
  const std::string devices = "/sys/devices/";
  return !error && place.starts_with(devices) ? place.substr(devices.size()) : "";
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, which, device) == cudaSuccess ? value : 0;
}

// A CPU whose page tables the GPU shares and in whose memory its atomics are native: C2C.
bool has_coherent_cpu(int device) {
  return attribute(cudaDevAttrPageableMemoryAccessUsesHostPageTables, device) != 0 &&
         attribute(cudaDevAttrHostNativeAtomicSupported, device) != 0;
}

// By its id; -1 where this process does not see it.
int device_of(const char (&uuid)[16]) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return -1;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) continue;
    if (std::memcmp(properties.uuid.bytes, uuid, sizeof uuid) == 0) return device;
  }
  return -1;
}

}  // namespace

PathFacts path_facts(int device, const char (&other_uuid)[16]) {
  PathFacts facts;
  const int other = device_of(other_uuid);
  facts.same_gpu = other == device;
  facts.seen = other >= 0;
  if (facts.seen && !facts.same_gpu) {
    int access = 0, atomics = 0;
    facts.peer_access = cudaDeviceCanAccessPeer(&access, device, other) == cudaSuccess && access != 0;
    facts.native_atomics = cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, device,
                                                     other) == cudaSuccess &&
                           atomics != 0;
    facts.coherent_cpu = has_coherent_cpu(device) || has_coherent_cpu(other);
    facts.place = pci_place(device, facts.node);
    facts.other_place = pci_place(other, facts.other_node);
  }
  (void)cudaGetLastError();  // a failed question must not be found by the next launch check
  return facts;
}

}  // namespace nearlight::probe
