#include "dropin/operation.hpp"

#include <mutex>
#include <set>
#include <string>

namespace nearlight::dropin {

const char* for_ever(const char* text) {
  static std::mutex mutex;
  static auto& texts = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return texts.insert(text).first->c_str();
}

}  // namespace nearlight::dropin
