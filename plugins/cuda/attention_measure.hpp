// SPDX-License-Identifier: Apache-2.0
// Measures which kernel computes a gradient of attention fastest: [device] tune.
#pragma once

#include "attention_choice.hpp"
#include "measure.hpp"

namespace cuda::served {

// The state or record of a kernel: of one for cuDNN, or of the plugin's own.
struct Made {
  const eng_kernel* by;
  void* what = nullptr;
};

// Kernels are added one by one; the results of the first one are those that the others must be near to.
class Race : Trial {
 public:
  std::string fastest;  // of those that are near
  Race(const common::Call& c, uint64_t scratch) : type_(c.in[1].dtype), scratch_(room(static_cast<int64_t>(scratch))) {
    const uint16_t least = type_ == ENG_BF16 ? 0x3f00 : 0x3800;
    uint32_t random = 1;
    for (const auto* list : {&c.in, &c.out})
      for (const eng_desc& d : *list) {
        const int64_t bytes = common::elements(d) * common::dtype_size(d.dtype);
        tensors_.emplace_back().data = room(bytes);  // segments are one document then, and lse is about 0
        if (list == &c.out) right_.emplace_back(static_cast<size_t>(bytes) / 2);
        if (d.dtype != type_) continue;
        std::vector<uint16_t> some(static_cast<size_t>(bytes) / 2);  // of both signs, from 1/2 to 2 or, of f16, 5/8
        for (uint16_t& x : some)
          x = static_cast<uint16_t>((random = random * 1664525 + 1013904223) >> 16 & 0x80ff) | least;
        check(cudaMemcpy(tensors_.back().data, some.data(), some.size() * 2, cudaMemcpyHostToDevice), measuring);
      }
    for (const DLTensor& t : tensors_) args_.push_back(&t);
    check(cudaStreamSynchronize(nullptr), measuring);  // the stream of Trial does not wait for that one
  }
  // Drops the state. `tell` hears if the results are too far from those of the first kernel.
  void add(const std::string& name, const Made& made, void (*tell)(const std::string&)) {
    const std::shared_ptr<void> state(made.what, made.by->drop_state);
    void* record = nullptr;
    if (made.by->bind(made.what, args_.data(), uint32_t(args_.size()), scratch_, &record, nullptr) != ENG_OK) return;
    const std::shared_ptr<void> bound(record, made.by->drop_record);
    const std::optional<float> took = time([&](cudaStream_t queue) {
      const eng_exec exec{sizeof exec, 0, queue};
      return made.by->launch(record, &exec, nullptr) == ENG_OK;
    });
    if (!took) return;
    const double allowed = type_ == ENG_BF16 ? 0x1p-6 : 0x1p-9, apart = farthest();
    if (!(apart <= allowed))
      tell("[device] tune: attention backward by " + name + " is not taken: it is " + std::to_string(apart) +
           " of the largest value away from that by own kernels, more than " + std::to_string(allowed));
    else if (fastest.empty() || *took < least_)
      fastest = name, least_ = *took;
  }

 private:
  // The largest distance of a result from the right one.
  double farthest() {
    double apart = 0;
    for (size_t k = 0; k < right_.size(); ++k) {
      std::vector<uint16_t> got(right_[k].size());
      const void* const from = tensors_[tensors_.size() - right_.size() + k].data;
      check(cudaMemcpy(got.data(), from, got.size() * 2, cudaMemcpyDeviceToHost), measuring);
      if (fastest.empty()) right_[k] = got;
      const double one = distance({got.data(), type_}, {right_[k].data(), type_}, got.size());
      if (!(one <= apart)) apart = std::isnan(apart) ? apart : one;
    }
    return apart;
  }
  int32_t type_;
  void* scratch_;
  std::vector<DLTensor> tensors_;             // their memory alone
  std::vector<std::vector<uint16_t>> right_;  // results of the first kernel
  std::vector<const DLTensor*> args_;
  float least_ = 0;
};

}  // namespace cuda::served
