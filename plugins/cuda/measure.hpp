// SPDX-License-Identifier: Apache-2.0
// Measures how long a product, or another op, takes: [device] tune.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "errors.hpp"

namespace cuda {

// Memory, a stream and events to measure an op.
class Trial {
 public:
  Trial() {
    cudaStream_t queue = nullptr;
    check(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking), measuring);
    queue_.reset(queue, cudaStreamDestroy);
    for (auto& event : events_) {
      cudaEvent_t made = nullptr;
      check(cudaEventCreateWithFlags(&made, cudaEventDefault), measuring);
      event.reset(made, cudaEventDestroy);
    }
  }
  // Milliseconds, the median of five after one that does not count; none if launch(queue) says false.
  template <class Launch>
  std::optional<float> time(Launch launch) const {
    std::array<float, 5> times{};
    for (int k = -1; k < int{times.size()}; ++k) {
      check(cudaEventRecord(events_[0].get(), queue_.get()), measuring);
      if (!launch(queue_.get())) return std::nullopt;
      check(cudaEventRecord(events_[1].get(), queue_.get()), measuring);
      check(cudaStreamSynchronize(queue_.get()), measuring);
      if (k >= 0)
        check(cudaEventElapsedTime(&times[static_cast<size_t>(k)], events_[0].get(), events_[1].get()), measuring);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 protected:
  static constexpr char measuring[] = "measuring for [device] tune";
  // Numbers like those of a run: a GPU is faster with zeros.
  void* room(int64_t bytes) {
    void* out = nullptr;
    check(cudaMalloc(&out, static_cast<size_t>(bytes)), measuring);
    memory_.emplace_back(out, cudaFree);
    check(cudaMemset(out, 0x3c, static_cast<size_t>(bytes)), measuring);
    return out;
  }

 private:
  std::vector<std::shared_ptr<void>> memory_;
  std::shared_ptr<CUstream_st> queue_;
  std::array<std::shared_ptr<CUevent_st>, 2> events_;
};

}  // namespace cuda
