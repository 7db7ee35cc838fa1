#include "cli/bench/gemv_contender.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "bootstrap/in_process.hpp"
#include "runtime/create.hpp"
#include "runtime/cuda_call.hpp"
#include "runtime/device_memory.hpp"

namespace nearlight::bench {

namespace {

constexpr std::size_t kElement = 2;                    // bytes
constexpr std::size_t kPool = std::size_t{256} << 20;  // bytes of matrices
constexpr unsigned char kFinite = 0x3d;                // a byte of which half and bfloat16 are finite

// What all contenders of a rank share: nobody runs while another one's is prepared.
class Matrices {
 public:
  Matrices(const GemvShape& shape, int device) : shape_(shape), device_(device) {}

  // For messages up to so many bytes; once.
  Status allocate(std::size_t bytes) {
    if (pool_.get() != nullptr) return {};
    NL_TRY_CUDA(cudaSetDevice(device_));
    const std::size_t rows = bytes / kElement / shape_.tokens + 1;
    bytes_ = std::max(kPool, 2 * rows * shape_.in * kElement);
    NL_TRY(pool_.allocate(bytes_));
    NL_TRY(vectors_.allocate(shape_.tokens * shape_.in * kElement));
    NL_TRY(part_.allocate(bytes));
    NL_TRY_CUDA(cudaMemset(pool_.get(), kFinite, bytes_));
    NL_TRY_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
    return {};
  }
  // `message` into the first columns of all matrices, and the vectors. Waits for the stream.
  Status put(const void* message, const Operation& operation, cudaStream_t stream) {
    NL_TRY(check(operation));
    const std::size_t rows = operation.count / shape_.tokens, pitch = shape_.in * kElement;
    for (std::size_t copy = 0; copy < copies(rows); ++copy) {
      for (std::size_t token = 0; token < shape_.tokens; ++token) {
        NL_TRY_CUDA(cudaMemcpy2DAsync(matrix(rows, copy) + token * kElement, pitch,
                                      static_cast<const char*>(message) + token * rows * kElement, kElement,
                                      kElement, rows, cudaMemcpyDeviceToDevice, stream));
      }
    }
    std::vector<std::uint16_t> vectors(shape_.tokens * shape_.in, 0);
    const std::uint16_t one = operation.type == DataType::bf16 ? 0x3f80 : 0x3c00;
    for (std::size_t token = 0; token < shape_.tokens; ++token) vectors[token * shape_.in + token] = one;
    NL_TRY_CUDA(cudaMemcpyAsync(vectors_.get(), vectors.data(), vectors.size() * kElement,
                                cudaMemcpyHostToDevice, stream));
    NL_TRY_CUDA(cudaStreamSynchronize(stream));
    return {};
  }
  // The next call, to `output`.
  runtime::GemvCall next(const Operation& operation, void* output) {
    runtime::GemvCall call = sizes(operation.count, operation.type);
    call.input = vectors_.get();
    call.weight = matrix(call.out, turn_++ % copies(call.out));
    call.output = output;
    return call;
  }
  runtime::GemvCall sizes(std::size_t count, DataType type) const {
    runtime::GemvCall call;
    call.tokens = shape_.tokens;
    call.in = shape_.in;
    call.out = count / shape_.tokens;
    call.type = type;
    return call;
  }
  Status check(const Operation& operation) const {
    if (operation.op.op == ReduceOp::sum && operation.count % (shape_.tokens * runtime::kGemvStep) == 0)
      return {};
    return failure(Code::invalid_argument,
                   "--gemv: a message of %zu elements, %s, is no sum of %zu products of a multiple of 8 rows",
                   operation.count, name_of(operation.op.op), shape_.tokens);
  }
  void* part() const { return part_.get(); }
  std::string settings() const {
    return "in " + std::to_string(shape_.in) + ", tokens " + std::to_string(shape_.tokens);
  }

 private:
  std::size_t copies(std::size_t rows) const { return bytes_ / (rows * shape_.in * kElement); }
  char* matrix(std::size_t rows, std::size_t copy) const {
    return static_cast<char*>(pool_.get()) + copy * rows * shape_.in * kElement;
  }

  GemvShape shape_;
  int device_;
  std::size_t bytes_ = 0, turn_ = 0;
  runtime::DeviceMemory pool_, vectors_, part_;
};

// What the three have in common.
class Product : public Contender {
 public:
  Product(std::shared_ptr<Matrices> matrices, std::shared_ptr<runtime::Communicator> communicator)
      : matrices_(std::move(matrices)), communicator_(std::move(communicator)) {}

  Status failed() const override { return communicator_->status(); }
  void abandon() override { communicator_->abort(); }
  int roundings() const override { return 1; }
  std::string settings() const override { return matrices_->settings(); }
  Result<Buffers> own_buffers(std::size_t bytes) override {
    NL_TRY(matrices_->allocate(bytes));
    return Buffers{};
  }
  Status prepare(const Operation& operation, runtime::Stream stream) override {
    return matrices_->put(operation.send, operation, static_cast<cudaStream_t>(stream));
  }
  Result<Choice> choice(std::size_t count, DataType type, ReduceOp op, cli::Mode) const override {
    Operation operation;
    operation.count = count;
    operation.op = op;
    NL_TRY(matrices_->check(operation));
    NL_TRY_ASSIGN(const route::Route chosen,
                  communicator_->explain_gemv(matrices_->sizes(count, type), options_));
    return Choice{algorithm::name_of(chosen.algorithm), route::protocol_name(chosen),
                  static_cast<int>(chosen.grid), chosen.reason};
  }

 protected:
  std::shared_ptr<Matrices> matrices_;
  std::shared_ptr<runtime::Communicator> communicator_;
  runtime::CallOptions options_;
};

class Fused final : public Product {
 public:
  Fused(std::shared_ptr<Matrices> matrices, std::shared_ptr<runtime::Communicator> communicator,
        const runtime::CallOptions& options)
      : Product(std::move(matrices), std::move(communicator)) {
    options_ = options;
  }
  const char* impl() const override { return "nearlight_gemv_all_reduce"; }
  Status all_reduce(const Operation& operation, runtime::Stream stream) override {
    NL_TRY(matrices_->check(operation));
    return communicator_->gemv(matrices_->next(operation, operation.recv), stream, options_);
  }
};

// `communicator`: of this rank alone; `all`: of all.
class Alone final : public Product {
 public:
  Alone(std::shared_ptr<Matrices> matrices, std::shared_ptr<runtime::Communicator> communicator,
        std::shared_ptr<runtime::Communicator> all)
      : Product(std::move(matrices), std::move(communicator)), all_(std::move(all)) {}
  const char* impl() const override { return "nearlight_gemv"; }
  Status prepare(const Operation& operation, runtime::Stream stream) override {
    NL_TRY(all_->all_reduce(operation.send, matrices_->part(), operation.count, operation.type, operation.op,
                            stream));
    return matrices_->put(matrices_->part(), operation, static_cast<cudaStream_t>(stream));
  }
  Status all_reduce(const Operation& operation, runtime::Stream stream) override {
    NL_TRY(matrices_->check(operation));
    return communicator_->gemv(matrices_->next(operation, operation.recv), stream);
  }
  Status failed() const override {
    const Status status = all_->status();
    return status.ok() ? Product::failed() : status;
  }
  void abandon() override {
    all_->abort();
    Product::abandon();
  }

 private:
  std::shared_ptr<runtime::Communicator> all_;
};

class OneAfterTheOther final : public Product {
 public:
  OneAfterTheOther(std::shared_ptr<Matrices> matrices, std::shared_ptr<runtime::Communicator> alone,
                   std::unique_ptr<Contender> inner)
      : Product(std::move(matrices), std::move(alone)),
        inner_(std::move(inner)),
        impl_(std::string(inner_->impl()) + "_after_gemv") {}
  const char* impl() const override { return impl_.c_str(); }
  Status all_reduce(const Operation& operation, runtime::Stream stream) override {
    NL_TRY(matrices_->check(operation));
    // In place, and in the memory that the all-reduce wants.
    Operation second = operation;
    second.send = operation.recv;
    NL_TRY(communicator_->gemv(matrices_->next(operation, operation.recv), stream));
    return inner_->all_reduce(second, stream);
  }
  Status failed() const override {
    const Status status = inner_->failed();
    return status.ok() ? Product::failed() : status;
  }
  void abandon() override {
    inner_->abandon();
    Product::abandon();
  }
  Result<Choice> choice(std::size_t count, DataType type, ReduceOp op, cli::Mode mode) const override {
    return inner_->choice(count, type, op, mode);
  }
  int roundings() const override { return inner_->roundings(); }
  Result<Buffers> own_buffers(std::size_t bytes) override {
    NL_TRY(matrices_->allocate(bytes));
    return inner_->own_buffers(bytes);
  }

 private:
  std::unique_ptr<Contender> inner_;
  std::string impl_;
};

}  // namespace

Result<std::vector<std::unique_ptr<Contender>>> make_gemv_contenders(
    const std::shared_ptr<runtime::Communicator>& communicator, const runtime::CallOptions& options,
    const GemvShape& shape, int device, std::vector<std::unique_ptr<Contender>> inner) {
  auto group = bootstrap::make_in_process_group(1);
  // No more CTAs than of all ranks together: they could fill a GPU that several ranks share, and keep out the
  // all-reduce that another one waits in.
  runtime::GemvCall largest;
  largest.tokens = shape.tokens;
  largest.in = shape.in;
  largest.out = runtime::kMostGemvOut;
  NL_TRY_ASSIGN(const route::Route together, communicator->explain_gemv(largest, options));
  runtime::Options few;
  few.max_ctas = together.grid;
  NL_TRY_ASSIGN(auto made, runtime::create_cuda_local(std::move(group[0]), device, few));
  const std::shared_ptr<runtime::Communicator> alone = std::move(made);
  const auto matrices = std::make_shared<Matrices>(shape, device);
  std::vector<std::unique_ptr<Contender>> all;
  all.push_back(std::make_unique<Alone>(matrices, alone, communicator));
  all.push_back(std::make_unique<Fused>(matrices, communicator, options));
  for (auto& one : inner) all.push_back(std::make_unique<OneAfterTheOther>(matrices, alone, std::move(one)));
  return all;
}

}  // namespace nearlight::bench
