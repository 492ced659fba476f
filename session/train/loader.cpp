// SPDX-License-Identifier: Apache-2.0
#include "session/train/loader.hpp"

#include "core/base/error.hpp"

namespace eng {

Loader::Loader(const Data& data, const Cut& cut, uint64_t position) : data_(data), cut_(cut), position_(position) {
  if (!data.info().train_samples)
    throw Error(Exit::data, "there is nothing to train on: data.validation is 1",
                "set data.validation to 0.5 or less; data.validation_paths holds whole files out");
  thread_ = std::thread([this] { work(); });
}

Loader::~Loader() {
  stop_ = true;
  wanted_.fetch_add(1);
  wanted_.notify_all();
  thread_.join();
}

void Loader::work() {
  for (uint32_t k = 0;; ++k) {
    for (uint32_t now = wanted_; now <= k; now = wanted_) wanted_.wait(now);
    if (stop_) return;
    try {
      Batch& batch = batches_[k % 2];
      batch.clear();
      const auto rows = static_cast<uint64_t>(cut_.rows);
      uint64_t at = position_ + k * cut_.step() + rows * cut_.rank;
      for (int64_t a = 0; a < cut_.accumulate; ++a, at += rows * cut_.world)
        data_.read(ENG_SPLIT_TRAIN, at, cut_.rows, batch);
    } catch (...) {
      failure_ = std::current_exception();
    }
    ready_ = k + 1;
    ready_.notify_all();
  }
}

const Batch& Loader::next() {
  const uint32_t k = wanted_;
  for (uint32_t now = ready_; now < k; now = ready_) ready_.wait(now);
  if (failure_) std::rethrow_exception(failure_);
  wanted_ = k + 1;
  wanted_.notify_all();
  return batches_[(k - 1) % 2];
}

}  // namespace eng
