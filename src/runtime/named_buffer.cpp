#include "runtime/named_buffer.hpp"

#include <cstdint>

namespace nearlight::runtime {

Status check_buffer(const NamedBuffer& buffer, std::size_t alignment, const char* size_name) {
  if (buffer.data == nullptr) return failure(Code::invalid_argument, "%s is null", buffer.name);
  const auto at = reinterpret_cast<std::uintptr_t>(buffer.data);
  if (at % alignment != 0) {
    return failure(Code::invalid_argument, "%s (%p) is not aligned to %zu bytes", buffer.name, buffer.data,
                   alignment);
  }
  if (at + buffer.bytes < at) {
    return failure(Code::invalid_argument, "%s: %zu bytes from %s (%p) reach past the last address",
                   size_name, buffer.bytes, buffer.name, buffer.data);
  }
  return {};
}

bool overlap(const NamedBuffer& a, const NamedBuffer& b) {
  const auto first = reinterpret_cast<std::uintptr_t>(a.data),
             second = reinterpret_cast<std::uintptr_t>(b.data);
  return a.data != nullptr && b.data != nullptr && first < second + b.bytes && second < first + a.bytes;
}

}  // namespace nearlight::runtime
