#include "cli/bench/fused_contender.hpp"

#include <string>
#include <utility>

#include "bootstrap/in_process.hpp"
#include "runtime/create.hpp"
#include "runtime/cuda_call.hpp"
#include "runtime/device_memory.hpp"

namespace nearlight::bench {

namespace {

// What a norm takes beside its input, for messages up to so many bytes.
class NormBuffers {
 public:
  NormBuffers(std::size_t hidden, int device) : hidden_(hidden), device_(device) {}

  Status allocate(std::size_t bytes) {
    NL_TRY_CUDA(cudaSetDevice(device_));
    for (runtime::DeviceMemory* const memory : {&residual_, &sum_, &output_}) NL_TRY(zeros(*memory, bytes));
    NL_TRY(zeros(weight_, hidden_ * 2));
    return {};
  }
  // recv = input + 0, and its norm.
  runtime::FusedCall call_of(const Operation& operation) const {
    runtime::FusedCall call;
    call.input = operation.send;
    call.residual = residual_.get();
    call.residual_out = operation.recv;
    call.weight = weight_.get();
    call.output = output_.get();
    call.hidden = hidden_;
    call.tokens = operation.count / hidden_;
    call.type = call.output_type = operation.type;
    return call;
  }
  // The norm of what operation.recv holds.
  runtime::FusedCall call_after(const Operation& operation) const {
    runtime::FusedCall call = call_of(operation);
    call.input = operation.recv;
    call.residual_out = sum_.get();
    return call;
  }
  Status check(const Operation& operation) const {
    if (operation.op.op == ReduceOp::sum && operation.count % hidden_ == 0) return {};
    return failure(Code::invalid_argument, "--fused: a message of %zu elements, %s, is no sum of rows of %zu",
                   operation.count, name_of(operation.op.op), hidden_);
  }

 private:
  static Status zeros(runtime::DeviceMemory& memory, std::size_t bytes) {
    NL_TRY(memory.allocate(bytes));
    NL_TRY_CUDA(cudaMemset(memory.get(), 0, bytes));
    NL_TRY_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
    return {};
  }
  std::size_t hidden_;
  int device_;
  runtime::DeviceMemory residual_, sum_, output_, weight_;
};

class FusedContender final : public Contender {
 public:
  FusedContender(std::shared_ptr<runtime::Communicator> communicator, const runtime::CallOptions& options,
                 std::size_t hidden, int device)
      : communicator_(std::move(communicator)), options_(options), buffers_(hidden, device) {}

  const char* impl() const override { return "nearlight_rms_norm"; }
  Status all_reduce(const Operation& operation, runtime::Stream stream) override {
    NL_TRY(buffers_.check(operation));
    return communicator_->fused(buffers_.call_of(operation), stream, options_);
  }
  Status failed() const override { return communicator_->status(); }
  void abandon() override { communicator_->abort(); }
  Result<Choice> choice(std::size_t count, DataType type, ReduceOp op, cli::Mode) const override {
    Operation operation;
    operation.count = count;
    operation.type = type;
    operation.op = op;
    NL_TRY(buffers_.check(operation));
    NL_TRY_ASSIGN(const route::FusedRoute chosen,
                  communicator_->explain_fused(buffers_.call_of(operation), options_));
    return Choice{algorithm::name_of(chosen.algorithm), route::protocol_name(chosen),
                  static_cast<int>(chosen.grid), chosen.reason,
                  options_.spread != 0 ? "spread=" + std::to_string(options_.spread) : ""};
  }
  int roundings() const override { return 1; }
  Result<Buffers> own_buffers(std::size_t bytes) override {
    NL_TRY(buffers_.allocate(bytes));
    return Buffers{};
  }

 private:
  std::shared_ptr<runtime::Communicator> communicator_;
  runtime::CallOptions options_;
  NormBuffers buffers_;
};

class ThenNorm final : public Contender {
 public:
  ThenNorm(std::unique_ptr<Contender> inner, std::unique_ptr<runtime::Communicator> alone, std::size_t hidden,
           int device)
      : inner_(std::move(inner)),
        alone_(std::move(alone)),
        impl_(std::string(inner_->impl()) + "_then_rms_norm"),
        buffers_(hidden, device) {}

  const char* impl() const override { return impl_.c_str(); }
  Status all_reduce(const Operation& operation, runtime::Stream stream) override {
    NL_TRY(buffers_.check(operation));
    NL_TRY(inner_->all_reduce(operation, stream));
    return alone_->fused(buffers_.call_after(operation), stream);
  }
  Status failed() const override { return inner_->failed(); }
  void abandon() override { inner_->abandon(); }
  Result<Choice> choice(std::size_t count, DataType type, ReduceOp op, cli::Mode mode) const override {
    return inner_->choice(count, type, op, mode);
  }
  int roundings() const override { return inner_->roundings(); }
  std::string settings() const override { return inner_->settings(); }
  Result<Buffers> own_buffers(std::size_t bytes) override {
    NL_TRY(buffers_.allocate(bytes));
    return inner_->own_buffers(bytes);
  }

 private:
  std::unique_ptr<Contender> inner_;
  std::unique_ptr<runtime::Communicator> alone_;
  std::string impl_;
  NormBuffers buffers_;
};

}  // namespace

std::unique_ptr<Contender> make_fused_contender(std::shared_ptr<runtime::Communicator> communicator,
                                                const runtime::CallOptions& options, std::size_t hidden,
                                                int device) {
  return std::make_unique<FusedContender>(std::move(communicator), options, hidden, device);
}

Result<std::unique_ptr<Contender>> make_then_norm_contender(std::unique_ptr<Contender> inner,
                                                            std::size_t hidden, int device) {
  auto alone = bootstrap::make_in_process_group(1);
  NL_TRY_ASSIGN(auto communicator, runtime::create_cuda_local(std::move(alone[0]), device));
  return std::unique_ptr<Contender>(
      std::make_unique<ThenNorm>(std::move(inner), std::move(communicator), hidden, device));
}

}  // namespace nearlight::bench
