#include "cli/heap_pair.hpp"

#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "bootstrap/in_process.hpp"

namespace nearlight::cli {

Result<HeapPair> make_heap_pair(const MakeHeap& make) {
  const Deadline deadline = Deadline::after_ms(30'000);
  std::vector<std::unique_ptr<Exchange>> group = bootstrap::make_in_process_group(2);
  std::optional<Result<std::unique_ptr<memory::Heap>>> second;
  std::thread other;
  try {
    other = std::thread([&] { second = make(*group[1], deadline); });
  } catch (const std::system_error& error) {
    return system_failure("starting a thread", error.code().value());
  }
  Result<std::unique_ptr<memory::Heap>> first = make(*group[0], deadline);
  other.join();
  NL_TRY(first.status());
  NL_TRY(second->status());
  return HeapPair(std::move(*first), std::move(**second));
}

}  // namespace nearlight::cli
