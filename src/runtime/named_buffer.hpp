// The buffers of a call, by name: what is wrong with one, and whether two overlap.
#pragma once

#include <cstddef>

#include "base/status.hpp"

namespace nearlight::runtime {

// `name` null: there is none such.
struct NamedBuffer {
  const char* name;
  const char* end_name;
  const void* data;
  std::size_t bytes;
};

// Not null, at a multiple of `alignment` bytes, and within the addresses there are; `size_name`: the argument
// that its size follows from. Code::invalid_argument names the buffer or that.
Status check_buffer(const NamedBuffer& buffer, std::size_t alignment, const char* size_name);
// Of two that are not null.
bool overlap(const NamedBuffer& a, const NamedBuffer& b);

}  // namespace nearlight::runtime
