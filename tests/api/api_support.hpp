// Groups of CPU ranks through the C API.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nearlight/nearlight.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace nearlight::test {

// A limit for calls that are expected to succeed, on a machine that is busy with other things.
inline nearlightConfig_t patient_config() {
  nearlightConfig_t config = NEARLIGHT_CONFIG_INITIALIZER;
  config.timeout_ms = 120'000;
  return config;
}

// The communicators of one group, ended with this object.
class HostGroup {
 public:
  explicit HostGroup(int nranks, nearlightConfig_t config = patient_config())
      : comms_(static_cast<std::size_t>(nranks), nullptr) {
    const nearlightResult_t result = nearlightCommCreateHostGroup(comms_.data(), nranks, &config);
    EXPECT_EQ(result, nearlightSuccess) << nearlightGetLastError();
  }
  HostGroup(const HostGroup&) = delete;
  HostGroup& operator=(const HostGroup&) = delete;
  ~HostGroup() {
    for (const nearlightComm_t comm : comms_) {
      EXPECT_EQ(nearlightCommDestroy(comm), nearlightSuccess) << nearlightGetLastError();
    }
  }

  nearlightComm_t operator[](int rank) const { return comms_[static_cast<std::size_t>(rank)]; }
  // The caller has destroyed it.
  void forget(int rank) { comms_[static_cast<std::size_t>(rank)] = nullptr; }

  // body(rank, comm), a thread for each rank.
  void run(const std::function<void(int, nearlightComm_t)>& body) const {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < comms_.size(); ++rank) {
      threads.emplace_back([&, rank] { body(static_cast<int>(rank), comms_[rank]); });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  std::vector<nearlightComm_t> comms_;
};

// The call failed with `code`, and the text of this thread has all of `words`.
inline void expect_error(nearlightResult_t result, nearlightResult_t code,
                         const std::vector<std::string>& words) {
  EXPECT_EQ(result, code) << nearlightGetLastError();
  for (const std::string& word : words) EXPECT_THAT(nearlightGetLastError(), testing::HasSubstr(word));
}

}  // namespace nearlight::test
