#include "api/place.hpp"

#include <utility>

#include <nearlight/detail/protocol/region.hpp>
#include "bootstrap/job.hpp"

namespace nearlight::api {

Status check_nranks(int nranks) {
  if (nranks >= 1 && nranks <= protocol::kMaxRanks) return {};
  return failure(Code::invalid_argument, "nranks: %d is not between 1 and %d", nranks, protocol::kMaxRanks);
}

Result<Place> find_place(int rank, int nranks, const char* key) {
  bootstrap::JobRequest request;
  if (key != nullptr) {
    if (*key == '\0') return failure(Code::invalid_argument, "key is empty; NULL takes the job's");
    request.key = key;
  }
  if (rank == -1 && nranks == -1) {
  } else if (rank == -1 || nranks == -1) {
    return failure(Code::invalid_argument, "rank is %d and nranks is %d: both or none come from the job",
                   rank, nranks);
  } else {
    NL_TRY(check_nranks(nranks));
    if (rank < 0 || rank >= nranks) {
      return failure(Code::invalid_argument, "rank: %d is not between 0 and %d", rank, nranks - 1);
    }
    request.rank = rank;
    request.nranks = nranks;
  }
  NL_TRY_ASSIGN(bootstrap::Job job, bootstrap::find_job(request));
  const Status fits = check_nranks(job.nranks);
  if (!fits.ok()) return fits.with_context(job.source);
  return Place{job.rank, job.nranks, std::move(job.key)};
}

}  // namespace nearlight::api
