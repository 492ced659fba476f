// SPDX-License-Identifier: Apache-2.0
// Measures how long a product takes: [device] tune.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "errors.hpp"
#include "kernels/library.hpp"

namespace cuda::blas {

// Memory, a stream and events to measure a product.
class Trial {
 public:
  Trial(const library::Product& p, uint64_t scratch) {
    const auto size = [](int32_t type) { return int64_t{type == ENG_F32 ? 4 : 2}; };
    const int64_t of_a = p.a_stride ? p.a_stride * (p.ta ? p.k : p.m) : p.m * p.k;
    o_.a = room(of_a * size(p.type)), o_.b = room(p.k * p.n * size(p.type));
    o_.c = room(p.m * (p.c_stride ? p.c_stride : p.n) * size(p.result));
    if (p.add) o_.acc = o_.c;
    if (p.bias) o_.bias = room(p.n * size(p.type));
    if (p.epilogue != library::Epilogue::none) o_.mask = room(p.m * eng_relu_mask_bytes(p.n));
    if (p.sums) o_.sums = room(p.n * size(p.sums));
    if (scratch) scratch_ = room(static_cast<int64_t>(scratch));
    cudaStream_t queue = nullptr;
    check(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking), measuring);
    queue_.reset(queue, cudaStreamDestroy);
    for (auto& event : events_) {
      cudaEvent_t made = nullptr;
      check(cudaEventCreateWithFlags(&made, cudaEventDefault), measuring);
      event.reset(made, cudaEventDestroy);
    }
  }
  // Milliseconds, the median of five after one that does not count; none if the library refuses.
  template <class Launch>
  std::optional<float> time(Launch launch) const {
    std::array<float, 5> times{};
    for (int k = -1; k < int{times.size()}; ++k) {
      check(cudaEventRecord(events_[0].get(), queue_.get()), measuring);
      if (!launch(o_, scratch_, queue_.get())) return std::nullopt;
      check(cudaEventRecord(events_[1].get(), queue_.get()), measuring);
      check(cudaStreamSynchronize(queue_.get()), measuring);
      if (k >= 0)
        check(cudaEventElapsedTime(&times[static_cast<size_t>(k)], events_[0].get(), events_[1].get()), measuring);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 private:
  static constexpr char measuring[] = "measuring a product for [device] tune";
  // Numbers like those of a run: a GPU is faster with zeros.
  void* room(int64_t bytes) {
    void* out = nullptr;
    check(cudaMalloc(&out, static_cast<size_t>(bytes)), measuring);
    memory_.emplace_back(out, cudaFree);
    check(cudaMemset(out, 0x3c, static_cast<size_t>(bytes)), measuring);
    return out;
  }
  library::Operands o_{};
  void* scratch_ = nullptr;
  std::vector<std::shared_ptr<void>> memory_;
  std::shared_ptr<CUstream_st> queue_;
  std::array<std::shared_ptr<CUevent_st>, 2> events_;
};

}  // namespace cuda::blas
