// SPDX-License-Identifier: Apache-2.0
// How long a product takes: [device] tune.
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
  Trial(const library::Product& p, uint64_t scratch) : p_(p) {
    const auto size = [](int32_t type) { return int64_t{type == ENG_F32 ? 4 : 2}; };
    const int64_t of_a = p.a_stride ? p.a_stride * (p.ta ? p.k : p.m) : p.m * p.k;
    const int64_t mask = p.epilogue == library::Epilogue::none ? 0 : p.m * eng_relu_mask_bytes(p.n);
    for (const int64_t bytes :
         {of_a * size(p.type), p.k * p.n * size(p.type), p.m * p.n * size(p.result), p.n * size(p.type),
          static_cast<int64_t>(scratch), mask, p.sums ? p.n * size(p.sums) : 0})
      memory_.push_back(room(bytes));
    cudaStream_t queue = nullptr;
    check(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking), measuring);
    queue_.reset(queue, [](cudaStream_t q) { cudaStreamDestroy(q); });
    for (auto& event : events_) {
      cudaEvent_t made = nullptr;
      check(cudaEventCreateWithFlags(&made, cudaEventDefault), measuring);
      event.reset(made, [](cudaEvent_t e) { cudaEventDestroy(e); });
    }
  }
  // Milliseconds, the median of five after one that does not count; none if the library refuses.
  template <class Launch>
  std::optional<float> time(Launch launch) const {
    const library::Operands o = {memory_[0].get(),
                                 memory_[1].get(),
                                 p_.add ? memory_[2].get() : nullptr,
                                 p_.bias ? memory_[3].get() : nullptr,
                                 memory_[2].get(),
                                 memory_[5].get(),
                                 memory_[6].get()};
    std::array<float, 5> times{};
    for (int k = -1; k < int{times.size()}; ++k) {
      check(cudaEventRecord(events_[0].get(), queue_.get()), measuring);
      if (!launch(o, memory_[4].get(), queue_.get())) return std::nullopt;
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
  static std::shared_ptr<void> room(int64_t bytes) {
    if (bytes == 0) return nullptr;
    void* out = nullptr;
    check(cudaMalloc(&out, static_cast<size_t>(bytes)), measuring);
    const std::shared_ptr<void> held(out, [](void* p) { cudaFree(p); });
    check(cudaMemset(out, 0x3c, static_cast<size_t>(bytes)), measuring);
    return held;
  }
  library::Product p_;
  std::vector<std::shared_ptr<void>> memory_;  // a, b, c, bias, scratch, mask, column sums
  std::shared_ptr<CUstream_st> queue_;
  std::array<std::shared_ptr<CUevent_st>, 2> events_;
};

}  // namespace cuda::blas
