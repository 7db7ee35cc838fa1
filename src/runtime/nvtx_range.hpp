// Ranges that a profiler shows around calls, in the domain "nearlight". NVTX is headers only: without a tool
// that asks for it (NVTX_INJECTION64_PATH) nothing is loaded, and a range is one look at a pointer.
#pragma once

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define NEARLIGHT_HAS_NVTX 1
#include <nvtx3/nvToolsExt.h>
#endif
#endif
#ifndef NEARLIGHT_HAS_NVTX
#define NEARLIGHT_HAS_NVTX 0
#endif

#include <cstddef>

namespace nearlight::runtime {

class NvtxRange {
 public:
#if NEARLIGHT_HAS_NVTX
  // `payload`: a number to stand beside the name, as the bytes of a message.
  NvtxRange(const char* name, std::size_t payload) {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = name;
    attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    attributes.payload.ullValue = payload;
    static_cast<void>(nvtxDomainRangePushEx(domain(), &attributes));
  }
  ~NvtxRange() { static_cast<void>(nvtxDomainRangePop(domain())); }

 private:
  static nvtxDomainHandle_t domain() {
    static const nvtxDomainHandle_t one = nvtxDomainCreateA("nearlight");
    return one;
  }
#else
  NvtxRange(const char*, std::size_t) {}
  ~NvtxRange() {}
#endif

 public:
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace nearlight::runtime
