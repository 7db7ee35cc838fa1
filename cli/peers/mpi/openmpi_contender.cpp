#include "cli/peers/mpi/openmpi_contender.hpp"

#include <mpi.h>

#include <climits>

#include "cli/peers/mpi/mpi_call.hpp"

namespace nearlight::peers {

namespace {

// What MPI calls them, null where it has nothing of the kind.
MPI_Datatype mpi_type(DataType type) {
  switch (type) {
    case DataType::i8:
      return MPI_INT8_T;
    case DataType::u8:
      return MPI_UINT8_T;
    case DataType::i32:
      return MPI_INT32_T;
    case DataType::u32:
      return MPI_UINT32_T;
    case DataType::i64:
      return MPI_INT64_T;
    case DataType::u64:
      return MPI_UINT64_T;
    case DataType::f32:
      return MPI_FLOAT;
    case DataType::f64:
      return MPI_DOUBLE;
    default:
      return MPI_DATATYPE_NULL;
  }
}
MPI_Op mpi_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::prod:
      return MPI_PROD;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::min:
      return MPI_MIN;
    default:
      return MPI_OP_NULL;
  }
}

class OpenMpiContender final : public bench::Contender {
 public:
  const char* impl() const override { return "openmpi"; }

  Status all_reduce(const bench::Operation& operation, runtime::Stream) override {
    if (operation.count > INT_MAX)
      return failure(Code::unsupported, "MPI_Allreduce takes at most %d elements", INT_MAX);
    const MPI_Datatype type = mpi_type(operation.type);
    const MPI_Op op = mpi_op(operation.op.op);
    if (type == MPI_DATATYPE_NULL || op == MPI_OP_NULL) {
      return failure(Code::unsupported, "MPI has no %s",
                     type == MPI_DATATYPE_NULL ? name_of(operation.type) : name_of(operation.op.op));
    }
    const void* const send = operation.send == operation.recv ? MPI_IN_PLACE : operation.send;
    return mpi_status(
        MPI_Allreduce(send, operation.recv, static_cast<int>(operation.count), type, op, MPI_COMM_WORLD),
        "MPI_Allreduce");
  }

  Result<bench::Choice> choice(std::size_t, DataType, ReduceOp, cli::Mode) const override {
    return bench::Choice{"", "", 0, "MPI does not tell", ""};
  }
  int roundings() const override { return 1; }
};

}  // namespace

std::unique_ptr<bench::Contender> make_openmpi_contender() { return std::make_unique<OpenMpiContender>(); }

}  // namespace nearlight::peers
