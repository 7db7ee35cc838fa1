#include "cli/bench/gemv_contender.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "bootstrap/in_process.hpp"
#include "cli/bench/gemv_window.hpp"
#include "runtime/create.hpp"
#include "runtime/cuda_call.hpp"
#include "runtime/device_memory.hpp"

namespace nearlight::bench {

namespace {

using runtime::GemvCall;

constexpr std::size_t kElement = 2;                    // bytes
constexpr std::size_t kPool = std::size_t{256} << 20;  // bytes of matrices
constexpr unsigned char kFinite = 0x3d;                // a byte of which half and bfloat16 are finite
constexpr unsigned char kPoison = 0xff;                // and one of which they are NaNs

std::uint16_t one_of(DataType type) { return type == DataType::bf16 ? 0x3f80 : 0x3c00; }

enum class Kind { fused, alone, with_inner };

// What all contenders of a rank share, as nobody runs while another one's is prepared: the matrices, and how
// the engine's operation stands in a product.
class Layer {
 public:
  Layer(const GemvShape& shape, int device) : shape_(shape), device_(device) {}
  virtual ~Layer() = default;

  const GemvShape& shape() const { return shape_; }
  // For messages up to so many bytes; once.
  Status allocate(std::size_t bytes) {
    if (pool_.get() != nullptr) return {};
    NL_TRY_CUDA(cudaSetDevice(device_));
    bytes_ = std::max(kPool, 2 * most_elements(bytes) * kElement);
    NL_TRY(pool_.allocate(bytes_));
    NL_TRY_CUDA(cudaMemset(pool_.get(), kFinite, bytes_));
    NL_TRY_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
    return allocate_rest(bytes);
  }
  // An operation that can be made a product of.
  virtual Status check(const Operation& operation) const = 0;
  // Of the call that makes it.
  virtual GemvCall sizes(const Operation& operation, Kind kind) const = 0;
  // Before calls on what `operation.send` holds; the `turn`-th time of whoever asks. Waits for the stream.
  virtual Status prepare(const Operation& operation, Kind kind, runtime::Communicator& all, std::size_t turn,
                         cudaStream_t stream) = 0;
  // The next call.
  GemvCall next(const Operation& operation, Kind kind) {
    GemvCall call = sizes(operation, kind);
    set_buffers(call, operation, kind);
    const std::size_t elements = call.out * columns_of(operation);
    call.weight = matrix(elements, turn_++ % copies(elements));
    return call;
  }
  // What calls have written, where the engine looks for it. Waits for the stream.
  virtual Status finish(const Operation&, Kind, cudaStream_t) { return {}; }
  std::string settings() const {
    return (shape_.gathers ? "out " : "in ") + std::to_string(shape_.size) + ", tokens " +
           std::to_string(shape_.tokens);
  }

 protected:
  // Of a matrix.
  virtual std::size_t most_elements(std::size_t bytes) const = 0;
  virtual std::size_t columns_of(const Operation& operation) const = 0;
  virtual Status allocate_rest(std::size_t bytes) = 0;
  // Input and output of a call.
  virtual void set_buffers(GemvCall& call, const Operation& operation, Kind kind) = 0;

  std::size_t copies(std::size_t elements) const {
    return std::min(bytes_ / (elements * kElement), kMostCopies);
  }
  char* matrix(std::size_t elements, std::size_t copy) const {
    return static_cast<char*>(pool_.get()) + copy * elements * kElement;
  }

  GemvShape shape_;
  int device_;
  std::size_t bytes_ = 0;
  runtime::DeviceMemory pool_;

 private:
  static constexpr std::size_t kMostCopies = 4096;  // each is made ready by itself
  std::size_t turn_ = 0;
};

class Summed final : public Layer {
 public:
  using Layer::Layer;

  Status check(const Operation& operation) const override {
    if (operation.op.op == ReduceOp::sum && operation.count % (shape_.tokens * runtime::kGemvStep) == 0)
      return {};
    return failure(Code::invalid_argument,
                   "--gemv: a message of %zu elements, %s, is no sum of %zu products of a multiple of 8 rows",
                   operation.count, name_of(operation.op.op), shape_.tokens);
  }
  GemvCall sizes(const Operation& operation, Kind) const override {
    GemvCall call;
    call.tokens = shape_.tokens;
    call.in = shape_.size;
    call.out = operation.count / shape_.tokens;
    call.type = operation.type;
    return call;
  }
  Status prepare(const Operation& operation, Kind kind, runtime::Communicator& all, std::size_t,
                 cudaStream_t stream) override {
    NL_TRY(check(operation));
    std::vector<std::uint16_t> vectors(shape_.tokens * shape_.size, 0);
    for (std::size_t token = 0; token < shape_.tokens; ++token)
      vectors[token * shape_.size + token] = one_of(operation.type);
    NL_TRY_CUDA(cudaMemcpyAsync(vectors_.get(), vectors.data(), vectors.size() * kElement,
                                cudaMemcpyHostToDevice, stream));
    const void* message = operation.send;
    if (kind == Kind::alone) {
      NL_TRY(
          all.all_reduce(operation.send, part_.get(), operation.count, operation.type, operation.op, stream));
      // Nothing may stand behind it. Copies that cannot begin fill the GPU's copy queue, and keep out those
      // of a rank on the same GPU that has not come to it yet; a large one of plain memory waits for what is
      // in front of it.
      NL_TRY_CUDA(cudaStreamSynchronize(stream));
      message = part_.get();
    }
    // The message into the first columns of all matrices.
    const std::size_t rows = operation.count / shape_.tokens, pitch = shape_.size * kElement;
    for (std::size_t copy = 0; copy < copies(rows * shape_.size); ++copy) {
      for (std::size_t token = 0; token < shape_.tokens; ++token) {
        NL_TRY_CUDA(cudaMemcpy2DAsync(matrix(rows * shape_.size, copy) + token * kElement, pitch,
                                      static_cast<const char*>(message) + token * rows * kElement, kElement,
                                      kElement, rows, cudaMemcpyDeviceToDevice, stream));
      }
    }
    NL_TRY_CUDA(cudaStreamSynchronize(stream));
    return {};
  }

 private:
  std::size_t most_elements(std::size_t bytes) const override {
    return (bytes / kElement / shape_.tokens + 1) * shape_.size;
  }
  std::size_t columns_of(const Operation&) const override { return shape_.size; }
  Status allocate_rest(std::size_t bytes) override {
    NL_TRY(vectors_.allocate(shape_.tokens * shape_.size * kElement));
    return part_.allocate(bytes);
  }
  void set_buffers(GemvCall& call, const Operation& operation, Kind) override {
    call.input = vectors_.get();
    call.output = operation.recv;
  }

  runtime::DeviceMemory vectors_, part_;
};

class Gathered final : public Layer {
 public:
  Gathered(const GemvShape& shape, int device, int nranks)
      : Layer(shape, device), nranks_(static_cast<std::size_t>(nranks)) {}

  Status check(const Operation& operation) const override {
    if (operation.count != 0 && operation.count % (shape_.tokens * runtime::kGemvStep) == 0) return {};
    return failure(Code::invalid_argument,
                   "--gemv: %zu elements of a rank are no parts of %zu vectors, of a multiple of 8 each",
                   operation.count, shape_.tokens);
  }
  GemvCall sizes(const Operation& operation, Kind kind) const override {
    GemvCall call;
    call.collective = kind == Kind::fused ? Collective::all_gather_gemv : Collective::gemv_all_reduce;
    call.tokens = shape_.tokens;
    call.in = kind == Kind::fused ? part_of(operation) : columns_of(operation);
    call.out = shape_.size;
    call.type = operation.type;
    return call;
  }
  Status prepare(const Operation& operation, Kind kind, runtime::Communicator& all, std::size_t turn,
                 cudaStream_t stream) override {
    NL_TRY(check(operation));
    const std::size_t columns = columns_of(operation);
    window_ = window_of(turn, shape_.size, columns);
    NL_TRY_CUDA(cudaMemsetAsync(pool_.get(), 0, bytes_, stream));
    NL_TRY_CUDA(cudaMemsetAsync(output_.get(), kPoison, output_bytes(), stream));
    const std::vector<std::uint16_t> ones(window_.width, one_of(operation.type));
    NL_TRY_CUDA(
        cudaMemcpyAsync(ones_.get(), ones.data(), ones.size() * kElement, cudaMemcpyHostToDevice, stream));
    for (std::size_t copy = 0; copy < copies(shape_.size * columns); ++copy) {
      NL_TRY_CUDA(cudaMemcpy2DAsync(matrix(shape_.size * columns, copy) + window_.first * kElement,
                                    (columns + 1) * kElement, ones_.get(), kElement, kElement, window_.width,
                                    cudaMemcpyDeviceToDevice, stream));
    }
    if (kind != Kind::with_inner) {
      runtime::CollectiveCall plain;
      plain.collective = Collective::all_gather;
      plain.send = operation.send;
      plain.recv = operation.recv;
      plain.count = operation.count;
      plain.type = operation.type;
      NL_TRY(all.collective(plain, stream));
      NL_TRY_CUDA(cudaStreamSynchronize(stream));  // as above
    }
    if (kind == Kind::alone) {
      NL_TRY_CUDA(cudaMemcpyAsync(vectors_.get(), operation.recv, operation.count * nranks_ * kElement,
                                  cudaMemcpyDeviceToDevice, stream));
    }
    NL_TRY_CUDA(cudaStreamSynchronize(stream));
    return {};
  }
  Status finish(const Operation& operation, Kind kind, cudaStream_t stream) override {
    const std::size_t parts = kind == Kind::fused ? nranks_ : 1, part = columns_of(operation) / parts;
    for (const WindowBlock& block : blocks_of(window_, shape_.size, shape_.tokens, part, parts)) {
      NL_TRY_CUDA(cudaMemcpy2DAsync(
          static_cast<char*>(operation.recv) + block.to * kElement, block.to_pitch * kElement,
          static_cast<const char*>(output_.get()) + block.from * kElement, block.from_pitch * kElement,
          block.width * kElement, shape_.tokens, cudaMemcpyDeviceToDevice, stream));
    }
    NL_TRY_CUDA(cudaStreamSynchronize(stream));
    return {};
  }

 private:
  std::size_t part_of(const Operation& operation) const { return operation.count / shape_.tokens; }
  std::size_t columns_of(const Operation& operation) const override { return part_of(operation) * nranks_; }
  std::size_t output_bytes() const { return shape_.tokens * shape_.size * kElement; }
  std::size_t most_elements(std::size_t bytes) const override {
    // A vector that is longer is refused when it is run.
    return shape_.size * std::min(bytes / kElement / shape_.tokens + 1, runtime::kMostGemvIn);
  }
  Status allocate_rest(std::size_t bytes) override {
    NL_TRY(vectors_.allocate(bytes));
    NL_TRY(ones_.allocate(shape_.size * kElement));
    return output_.allocate(output_bytes());
  }
  void set_buffers(GemvCall& call, const Operation& operation, Kind kind) override {
    call.input = kind == Kind::fused ? operation.send : kind == Kind::alone ? vectors_.get() : operation.recv;
    call.output = output_.get();
  }

  std::size_t nranks_;
  Window window_{};  // the columns that are taken over
  runtime::DeviceMemory vectors_, ones_, output_;
};

class Product final : public Contender {
 public:
  // `all`, `alone`: communicators of all ranks, and of this one alone. `inner`: of Kind::with_inner.
  Product(Kind kind, std::shared_ptr<Layer> layer, std::shared_ptr<runtime::Communicator> all,
          std::shared_ptr<runtime::Communicator> alone, const runtime::CallOptions& options,
          std::unique_ptr<Contender> inner = nullptr)
      : kind_(kind),
        layer_(std::move(layer)),
        all_(std::move(all)),
        alone_(std::move(alone)),
        options_(options),
        inner_(std::move(inner)) {
    const bool gathers = layer_->shape().gathers;
    impl_ = kind == Kind::alone   ? "nearlight_gemv"
            : kind == Kind::fused ? gathers ? "nearlight_all_gather_gemv" : "nearlight_gemv_all_reduce"
                                  : inner_->impl() + std::string(gathers ? "_then_gemv" : "_after_gemv");
  }

  const char* impl() const override { return impl_.c_str(); }
  Status all_reduce(const Operation& operation, runtime::Stream stream) override {
    return make(operation, stream);
  }
  Status by_parts(const Operation& operation, runtime::Stream stream) override {
    return make(operation, stream);
  }
  Status prepare(const Operation& operation, runtime::Stream stream) override {
    return layer_->prepare(operation, kind_, *all_, turn_++, static_cast<cudaStream_t>(stream));
  }
  Status finish(const Operation& operation, runtime::Stream stream) override {
    return layer_->finish(operation, kind_, static_cast<cudaStream_t>(stream));
  }
  Status failed() const override {
    Status status = inner_ != nullptr ? inner_->failed() : Status();
    if (status.ok()) status = all_->status();
    return status.ok() ? alone_->status() : status;
  }
  void abandon() override {
    if (inner_ != nullptr) inner_->abandon();
    all_->abort();
    alone_->abort();
  }
  Result<Choice> choice(std::size_t count, DataType type, ReduceOp op, cli::Mode mode) const override {
    Operation operation;
    operation.count = count;
    operation.type = type;
    operation.op = op;
    operation.collective = layer_->shape().gathers ? Collective::all_gather : Collective::all_reduce;
    return choice_of(operation, mode);
  }
  Result<Choice> choice_of(const Operation& operation, cli::Mode mode) const override {
    NL_TRY(layer_->check(operation));
    if (inner_ != nullptr) return inner_->choice_of(operation, mode);
    NL_TRY_ASSIGN(const route::Route chosen,
                  kind_ == Kind::fused ? all_->explain_gemv(layer_->sizes(operation, kind_), options_)
                                       : alone_->explain_gemv(layer_->sizes(operation, kind_)));
    return Choice{algorithm::name_of(chosen.algorithm), route::protocol_name(chosen),
                  static_cast<int>(chosen.grid), chosen.reason};
  }
  int roundings() const override { return inner_ != nullptr ? inner_->roundings() : 1; }
  std::string settings() const override { return layer_->settings(); }
  Result<Buffers> own_buffers(std::size_t bytes) override {
    NL_TRY(layer_->allocate(bytes));
    return inner_ != nullptr ? inner_->own_buffers(bytes) : Result<Buffers>(Buffers{});
  }

 private:
  Status make(const Operation& operation, runtime::Stream stream) {
    NL_TRY(layer_->check(operation));
    if (kind_ == Kind::fused) return all_->gemv(layer_->next(operation, kind_), stream, options_);
    if (kind_ == Kind::with_inner && layer_->shape().gathers) NL_TRY(inner_->run(operation, stream));
    NL_TRY(alone_->gemv(layer_->next(operation, kind_), stream));
    if (kind_ == Kind::alone || layer_->shape().gathers) return {};
    // In place, and in the memory that the all-reduce wants.
    Operation second = operation;
    second.send = operation.recv;
    return inner_->run(second, stream);
  }

  Kind kind_;
  std::shared_ptr<Layer> layer_;
  std::shared_ptr<runtime::Communicator> all_, alone_;
  runtime::CallOptions options_;
  std::unique_ptr<Contender> inner_;
  std::string impl_;
  std::size_t turn_ = 0;
};

}  // namespace

Result<std::vector<std::unique_ptr<Contender>>> make_gemv_contenders(
    const std::shared_ptr<runtime::Communicator>& communicator, const runtime::CallOptions& options,
    const GemvShape& shape, int device, std::vector<std::unique_ptr<Contender>> inner) {
  auto group = bootstrap::make_in_process_group(1);
  // As many CTAs as with its exchange, which is what it is compared with.
  GemvCall largest;
  largest.collective = shape.gathers ? Collective::all_gather_gemv : Collective::gemv_all_reduce;
  largest.tokens = shape.tokens;
  largest.in = shape.gathers ? runtime::kGemvStep : shape.size;
  largest.out = runtime::kMostGemvOut;
  NL_TRY_ASSIGN(const route::Route together, communicator->explain_gemv(largest, options));
  runtime::Options few;
  few.max_ctas = together.grid;
  NL_TRY_ASSIGN(auto made, runtime::create_cuda_local(std::move(group[0]), device, few));
  const std::shared_ptr<runtime::Communicator> alone = std::move(made);
  std::shared_ptr<Layer> layer;
  if (shape.gathers) {
    layer = std::make_shared<Gathered>(shape, device, communicator->nranks());
  } else {
    layer = std::make_shared<Summed>(shape, device);
  }
  std::vector<std::unique_ptr<Contender>> all;
  const auto add = [&](Kind kind, std::unique_ptr<Contender> with) {
    all.push_back(std::make_unique<Product>(kind, layer, communicator, alone, options, std::move(with)));
  };
  add(Kind::alone, nullptr);
  add(Kind::fused, nullptr);
  for (auto& one : inner) add(Kind::with_inner, std::move(one));
  return all;
}

}  // namespace nearlight::bench
