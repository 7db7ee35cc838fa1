// Companions that are nearlight's communicators, attached to NCCL's.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/exchange.hpp"
#include "dropin/async_status.hpp"
#include "dropin/companion.hpp"
#include "dropin/real_nccl.hpp"
#include "dropin/stream_chain.hpp"
#include "dropin/tails.hpp"
#include "dropin/takes.hpp"
#include "memory/nccl_api.hpp"
#include "memory/nccl_exchange.hpp"
#include "memory/nccl_window_heap.hpp"
#include "runtime/communicator.hpp"
#include "runtime/create.hpp"
#include "runtime/cuda_call.hpp"

namespace nearlight::dropin {

namespace {

using runtime::Communicator;

class Attachment final : public Companion {
 public:
  Attachment(std::unique_ptr<Communicator> communicator, std::shared_ptr<Exchange> exchange, Takes takes,
             ncclComm* nccl, int device)
      : communicator_(std::move(communicator)),
        exchange_(std::move(exchange)),
        takes_(takes),
        nccl_(nccl),
        device_(device) {}
  ~Attachment() override {
    // Its memory and its events are the device's; a device that cannot be made current has nothing to free.
    const runtime::DeviceGuard guard(device_);
    communicator_.reset();
  }

  Status begin() {
    const runtime::DeviceGuard guard(device_);
    NL_TRY(guard.status());
    return chain_.begin();
  }

  const Communicator& communicator() const { return *communicator_; }

  Verdict decide(const Operation& operation) const override {
    return dropin::decide(*communicator_, takes_, operation);
  }

  Status run(const Operation& operation) override {
    const runtime::DeviceGuard guard(device_);
    NL_TRY(guard.status());
    auto* const stream = static_cast<cudaStream_t>(operation.stream);
    NL_TRY(chain_.before(stream));
    NL_TRY(dropin::run(*communicator_, operation));
    tails::mark(operation.stream, device_);
    return chain_.after(stream);
  }

  Status run_together(std::span<const Operation> messages) override {
    const runtime::DeviceGuard guard(device_);
    NL_TRY(guard.status());
    auto* const stream = static_cast<cudaStream_t>(messages.front().stream);
    NL_TRY(chain_.before(stream));
    NL_TRY(dropin::run_together(*communicator_, messages));
    tails::mark(messages.front().stream, device_);
    return chain_.after(stream);
  }

  Status before_other(void* stream) override {
    const runtime::DeviceGuard guard(device_);
    NL_TRY(guard.status());
    return chain_.before(static_cast<cudaStream_t>(stream));
  }
  Status after_other(void* stream) override {
    const runtime::DeviceGuard guard(device_);
    NL_TRY(guard.status());
    return chain_.after(static_cast<cudaStream_t>(stream));
  }

  Status join(std::span<void* const> streams) override {
    const runtime::DeviceGuard guard(device_);
    NL_TRY(guard.status());
    return chain_.join(streams);
  }

  Status status() const override { return status_to_tell(communicator_->fault()); }
  void abort() override { communicator_->abort(); }

  Status drain(Deadline deadline) override {
    const runtime::DeviceGuard guard(device_);
    NL_TRY(guard.status());
    return chain_.drain(deadline);
  }

  void communicator_is_gone() override { memory::nccl_communicator_is_gone(nccl_); }

 private:
  std::unique_ptr<Communicator> communicator_;
  // Has memory of the GPU, which is not freed while another rank of this process may already have a kernel
  // that waits for this one's.
  std::shared_ptr<Exchange> exchange_;
  Takes takes_;
  ncclComm* nccl_;
  int device_;
  StreamChain chain_;
};

// What each rank tells the others before a companion is made. Its size is part of what the ranks must have in
// common, so it stays as it is.
struct Hello {
  std::uint32_t magic = 0x6e6c6469;  // "nldi"
  std::uint32_t version = 2;
  std::uint32_t takes = 0;
  char refusal[116] = {};  // "": it wants a companion
};

// Nearlight asks NCCL through the copy that made the communicator.
Status pin_copy(const RealNccl& nccl) {
  static const Status pinned = memory::Nccl::pin(nccl.library, nccl.path);
  return pinned;
}

// The first refusal, with the rank; "" where all want one.
std::string refusal_of(const std::vector<Hello>& hellos) {
  for (std::size_t rank = 0; rank < hellos.size(); ++rank) {
    const Hello& hello = hellos[rank];
    if (hello.magic != Hello().magic || hello.version != Hello().version)
      return "rank " + std::to_string(rank) + " has a drop-in of another version";
    if (hello.refusal[0] != '\0') return hello.refusal;
    if (hello.takes != hellos[0].takes)
      return "NEARLIGHT_DROPIN_TAKES differs between rank 0 and rank " + std::to_string(rank);
  }
  return "";
}

std::string in_words(const Communicator& communicator) {
  return "attached: " + std::to_string(communicator.nranks()) + " ranks, " + communicator.memory() + ", " +
         std::to_string(communicator.scratch_bytes() >> 20) + " MiB of scratch (" +
         communicator.memory_reason() + ")";
}

}  // namespace

// As long as nearlight's own creation may take. The ranks have just met inside NCCL.
std::int64_t attach_limit_ms() { return 60'000; }

Result<Attached> attach(ncclComm* comm, const Wish& wish, Deadline deadline) {
  const RealNccl* const nccl = real_nccl();
  // The same on all ranks: NCCL does not connect those of different versions.
  if (nccl->ncclMemAlloc == nullptr) return Attached{nullptr, "this NCCL is older than 2.19"};
  NL_TRY(pin_copy(*nccl));
  // From here to the first exchange a failure is this rank's alone, and the others learn of it by waiting.
  NL_TRY_ASSIGN(const std::shared_ptr<Exchange> exchange,
                memory::create_nccl_exchange(comm, deadline, memory::NcclTopic::companion));
  Hello mine;
  mine.takes = wish.takes;
  if (wish.refusal != nullptr) std::snprintf(mine.refusal, sizeof mine.refusal, "%s", wish.refusal);
  NL_TRY_ASSIGN(const auto hellos, gather_values(*exchange, mine, deadline));
  if (std::string refusal = refusal_of(hellos); !refusal.empty()) return Attached{nullptr, refusal};

  std::unique_ptr<Attachment> attachment;
  const auto make = [&]() -> Status {
    runtime::Options options;
    // There is time left for the last meeting, also when creation takes all that it has.
    options.create_timeout = std::max(deadline.left_or_1_ms() * 3 / 4, std::chrono::milliseconds(1));
    NL_TRY_ASSIGN(const memory::Nccl* const table, memory::Nccl::attached());
    NL_TRY_ASSIGN(const int device, table->comm_device(comm));
    NL_TRY_ASSIGN(auto communicator, runtime::create_cuda_nccl(comm, options));
    attachment = std::make_unique<Attachment>(std::move(communicator), exchange, wish.takes, comm, device);
    return attachment->begin();
  };
  const Status made = make();
  // All or none. Creation itself ends alike on all ranks unless a rank is late or NCCL fails, and then this
  // meeting fails, too.
  NL_TRY_ASSIGN(const auto codes, gather_values(*exchange, static_cast<int>(made.code()), deadline));
  for (std::size_t rank = 0; rank < codes.size(); ++rank) {
    if (codes[rank] == static_cast<int>(Code::ok)) continue;
    if (!made.ok()) return Attached{nullptr, made.text()};
    return Attached{nullptr, "rank " + std::to_string(rank) +
                                 " could not attach: " + code_name(static_cast<Code>(codes[rank]))};
  }
  std::string words = in_words(attachment->communicator());
  return Attached{std::move(attachment), std::move(words)};
}

}  // namespace nearlight::dropin
