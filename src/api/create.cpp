// Making communicators.
#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/arguments.hpp"
#include "api/handles.hpp"
#include "api/place.hpp"
#include "api/result.hpp"
#include "base/variables.hpp"
#include "bootstrap/in_process.hpp"
#include "bootstrap/process_group.hpp"
#include "runtime/checks.hpp"
#include "runtime/create.hpp"

namespace nearlight::api {

namespace {

using Communicators = std::vector<std::unique_ptr<runtime::Communicator>>;
using Created = Result<std::unique_ptr<runtime::Communicator>>;
using CreateRank = std::function<Created(std::unique_ptr<Exchange> exchange, int rank)>;

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

using CreateHere = Created (*)(std::unique_ptr<Exchange> exchange, int device,
                               const runtime::Options& options);

// One rank of a group of processes. The meeting and the creation share one limit.
Status create_one(const Place& place, int device, runtime::Options options, CreateHere create,
                  nearlightComm_t* comm) {
  const Deadline deadline = runtime::create_deadline(options);
  NL_TRY_ASSIGN(auto exchange,
                bootstrap::join_process_group({place.rank, place.nranks, place.key}, deadline));
  // A limit that cannot be stays as it is, to be refused where the other ranks are told.
  if (runtime::check_options(options).ok()) {
    options.create_timeout = deadline.left_or_1_ms();
  }
  return hand_out_one(create(std::move(exchange), device, options), comm);
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
    NL_TRY_ASSIGN(const Place place, find_place(rank, nranks, key));
    where.rank = place.rank;
    NL_TRY_ASSIGN(const auto options, to_options(config));
    const auto create = [](std::unique_ptr<Exchange> exchange, int, const runtime::Options& with) {
      return runtime::create_host(std::move(exchange), with);
    };
    return create_one(place, 0, options, create, comm);
  });
}

nearlightResult_t nearlightCommCreateCuda(nearlightComm_t* comm, int device, int rank, int nranks,
                                          const char* key, const nearlightConfig_t* config) {
  return guarded(__func__, [=](Where& where) -> Status {
    variables::warn_about_unknown();
    if (comm == nullptr) return failure(Code::invalid_argument, "comm is NULL");
    if (device < 0) return failure(Code::invalid_argument, "device: %d is none", device);
    // No use in waiting for the others first.
    if (NEARLIGHT_HAS_CUDA == 0) return failure(Code::unsupported, "this build of nearlight has no CUDA");
    NL_TRY_ASSIGN(const Place place, find_place(rank, nranks, key));
    where.rank = place.rank;
    NL_TRY_ASSIGN(const auto options, to_options(config));
    return create_one(place, device, options, runtime::create_cuda_processes, comm);
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
