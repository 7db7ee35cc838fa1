// Making communicators.
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nearlight/detail/protocol/region.hpp>
#include "api/arguments.hpp"
#include "api/handles.hpp"
#include "api/host_exchange.hpp"
#include "api/result.hpp"
#include "base/variables.hpp"
#include "bootstrap/in_process.hpp"
#include "runtime/checks.hpp"
#include "runtime/create.hpp"

namespace nearlight::api {

namespace {

using Communicators = std::vector<std::unique_ptr<runtime::Communicator>>;
using Created = Result<std::unique_ptr<runtime::Communicator>>;
using CreateRank = std::function<Created(std::unique_ptr<Exchange> exchange, int rank)>;

constexpr std::size_t kLongestKey = 80;

Status check_nranks(int nranks) {
  if (nranks >= 1 && nranks <= protocol::kMaxRanks) return {};
  return failure(Code::invalid_argument, "nranks: %d is not between 1 and %d", nranks, protocol::kMaxRanks);
}

// No exception leaves a thread.
Created create_rank(const CreateRank& create, std::unique_ptr<Exchange> exchange, int rank) {
  try {
    return create(std::move(exchange), rank);
  } catch (const std::exception& error) {
    return failure(Code::system_error, "%s", error.what());
  }
}

// The failure that is a cause: a rank that only tells that another one gave up says less.
Status first_failure(const std::vector<Status>& statuses) {
  Status first;
  for (const Status& status : statuses) {
    if (status.ok()) continue;
    if (status.code() != Code::remote_error) return status;
    if (first.ok()) first = status;
  }
  return first;
}

// Creation is collective, so each rank of this process gets a thread for it.
Result<Communicators> create_group(int nranks, const CreateRank& create) {
  auto exchanges = bootstrap::make_in_process_group(nranks);
  const auto size = exchanges.size();
  Communicators communicators(size);
  std::vector<Status> statuses(size);
  const auto run = [&](std::size_t rank) {
    auto created = create_rank(create, std::move(exchanges[rank]), static_cast<int>(rank));
    if (created.ok()) communicators[rank] = std::move(*created);
    statuses[rank] = created.status();
  };
  std::vector<std::thread> threads;
  threads.reserve(size);
  try {
    for (std::size_t rank = 1; rank < size; ++rank) threads.emplace_back(run, rank);
  } catch (const std::exception& error) {
    statuses[0] = failure(Code::system_error, "starting a thread: %s", error.what());
    // Rank 0 leaves the group, which ends the creation of those that were started.
    exchanges[0].reset();
  }
  if (statuses[0].ok()) run(0);
  for (std::thread& thread : threads) thread.join();
  NL_TRY(first_failure(statuses));
  return communicators;
}

// All or none.
Status hand_out_handles(Communicators communicators, nearlightComm_t* comms) {
  std::vector<nearlightComm_t> handles;
  handles.reserve(communicators.size());
  for (auto& communicator : communicators) {
    auto handle = add_handle(std::move(communicator));
    if (!handle.ok()) {
      for (const nearlightComm_t done : handles) NL_TRY(remove_handle(done).status());
      return handle.status();
    }
    handles.push_back(*handle);
  }
  std::copy(handles.begin(), handles.end(), comms);
  return {};
}

Status create_all(nearlightComm_t* comms, int nranks, const CreateRank& create) {
  NL_TRY_ASSIGN(auto communicators, create_group(nranks, create));
  return hand_out_handles(std::move(communicators), comms);
}

Status hand_out_one(Created created, nearlightComm_t* comm) {
  NL_TRY(created.status());
  NL_TRY_ASSIGN(*comm, add_handle(std::move(*created)));
  return {};
}

Result<Place> to_place(int rank, int nranks, const char* key) {
  if (rank == -1 && nranks == -1) {
  } else if (nranks == -1 || rank == -1) {
    return failure(Code::invalid_argument, "rank is %d and nranks is %d: both or none come from the job",
                   rank, nranks);
  } else {
    NL_TRY(check_nranks(nranks));
    if (rank < 0 || rank >= nranks) {
      return failure(Code::invalid_argument, "rank: %d is not between 0 and %d", rank, nranks - 1);
    }
  }
  if (key != nullptr && (*key == '\0' || ::strnlen(key, kLongestKey + 1) > kLongestKey)) {
    return failure(Code::invalid_argument, "key: its length is not between 1 and %zu bytes", kLongestKey);
  }
  return Place{rank, nranks, key};
}

}  // namespace

}  // namespace nearlight::api

using namespace nearlight;       // NOLINT: the entry points below are C's
using namespace nearlight::api;  // NOLINT

nearlightResult_t nearlightCommCreateHostGroup(nearlightComm_t* comms, int nranks,
                                               const nearlightConfig_t* config) {
  return guarded(__func__, [=](Where&) -> Status {
    variables::warn_about_unknown();
    if (comms == nullptr) return failure(Code::invalid_argument, "comms is NULL");
    NL_TRY(check_nranks(nranks));
    NL_TRY_ASSIGN(const auto options, to_options(config));
    return create_all(comms, nranks, [&options](std::unique_ptr<Exchange> exchange, int) {
      return runtime::create_host(std::move(exchange), options);
    });
  });
}

nearlightResult_t nearlightCommCreateCudaGroup(nearlightComm_t* comms, int nranks, const int* devices,
                                               const nearlightConfig_t* config) {
  return guarded(__func__, [=](Where&) -> Status {
    variables::warn_about_unknown();
    if (comms == nullptr) return failure(Code::invalid_argument, "comms is NULL");
    NL_TRY(check_nranks(nranks));
    if (devices == nullptr) return failure(Code::invalid_argument, "devices is NULL");
    NL_TRY_ASSIGN(const auto options, to_options(config));
    return create_all(comms, nranks, [&options, devices](std::unique_ptr<Exchange> exchange, int rank) {
      return runtime::create_cuda_local(std::move(exchange), devices[rank], options);
    });
  });
}

nearlightResult_t nearlightCommCreateHost(nearlightComm_t* comm, int rank, int nranks, const char* key,
                                          const nearlightConfig_t* config) {
  return guarded(__func__, [=](Where& where) -> Status {
    variables::warn_about_unknown();
    if (comm == nullptr) return failure(Code::invalid_argument, "comm is NULL");
    NL_TRY_ASSIGN(const Place place, to_place(rank, nranks, key));
    where.rank = rank;
    NL_TRY_ASSIGN(const auto options, to_options(config));
    NL_TRY_ASSIGN(auto exchange, meet_processes(place, runtime::create_deadline(options)));
    return hand_out_one(runtime::create_host(std::move(exchange), options), comm);
  });
}

nearlightResult_t nearlightCommAttachNccl(nearlightComm_t* comm, struct ncclComm* nccl,
                                          const nearlightConfig_t* config) {
  return guarded(__func__, [=](Where&) -> Status {
    variables::warn_about_unknown();
    if (comm == nullptr) return failure(Code::invalid_argument, "comm is NULL");
    if (nccl == nullptr) return failure(Code::invalid_argument, "nccl is NULL");
    NL_TRY_ASSIGN(const auto options, to_options(config));
    return hand_out_one(runtime::create_cuda_nccl(nccl, options), comm);
  });
}
