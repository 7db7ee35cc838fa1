#include "api/operators.hpp"

#include <limits>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "api/arguments.hpp"

namespace nearlight::api {

namespace {

struct Operator {
  nearlightComm_t comm;
  Reduction::Factor factor;
};

// One for all communicators, so that a number is never that of two operators.
struct Book {
  std::shared_mutex mutex;  // guards the two below
  std::unordered_map<int, Operator> operators;
  int last = kFirstOperator - 1;  // that was given out; in turn, so that a dead number stays dead for long
  Book* of_parent = nullptr;      // the parent process's, after a fork
};

// Never destroyed: communicators may be ended by destructors of other static objects.
Book*& the_book() {
  static Book* one = new Book;
  return one;
}
Book& book() { return *the_book(); }

Status not_made(nearlightRedOp_t op) {
  return failure(Code::invalid_argument, "op: %d is no operator: destroyed, or never made",
                 static_cast<int>(op));
}

// Under the lock.
Result<const Operator*> find(const Book& all, nearlightComm_t comm, nearlightRedOp_t op) {
  const auto found = all.operators.find(static_cast<int>(op));
  if (found == all.operators.end()) return not_made(op);
  if (found->second.comm == comm) return &found->second;
  return failure(Code::invalid_argument, "op: %d was made for another communicator", static_cast<int>(op));
}

}  // namespace

Result<nearlightRedOp_t> add_operator(nearlightComm_t comm, const Reduction::Factor& factor) {
  Book& all = book();
  const std::unique_lock lock(all.mutex);
  do {
    all.last = all.last == std::numeric_limits<int>::max() ? kFirstOperator : all.last + 1;
  } while (all.operators.contains(all.last));
  all.operators.emplace(all.last, Operator{comm, factor});
  return static_cast<nearlightRedOp_t>(all.last);
}

Status remove_operator(nearlightComm_t comm, nearlightRedOp_t op) {
  if (is_of_header(op)) {
    return failure(Code::invalid_argument, "op: %d was not made by nearlightRedOpCreatePreMulSum",
                   static_cast<int>(op));
  }
  Book& all = book();
  const std::unique_lock lock(all.mutex);
  NL_TRY(find(all, comm, op).status());
  all.operators.erase(static_cast<int>(op));
  return {};
}

void remove_operators_of(nearlightComm_t comm) {
  Book& all = book();
  const std::unique_lock lock(all.mutex);
  std::erase_if(all.operators, [comm](const auto& entry) { return entry.second.comm == comm; });
}

void forget_operators_of_parent() {
  auto* const fresh = new Book;
  fresh->last = book().last;
  fresh->of_parent = the_book();
  the_book() = fresh;
}

Result<Reduction> find_reduction(nearlightComm_t comm, nearlightRedOp_t op, DataType type) {
  if (is_of_header(op)) return Reduction(static_cast<ReduceOp>(op));
  Reduction reduction(ReduceOp::premul_sum);
  {
    Book& all = book();
    const std::shared_lock lock(all.mutex);
    NL_TRY_ASSIGN(const Operator* const found, find(all, comm, op));
    reduction.factor = found->factor;
  }
  if (reduction.factor->type == type) return reduction;
  return failure(Code::invalid_argument, "op: %d was made for %s, the elements are %s", static_cast<int>(op),
                 name_of(reduction.factor->type), name_of(type));
}

}  // namespace nearlight::api
