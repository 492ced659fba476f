// SPDX-License-Identifier: Apache-2.0
// Reads the batches of the training split one step ahead, on a separate thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>

#include "session/data/data.hpp"

namespace eng {

class Loader {
 public:
  // This rank's batches, step after step; the first step starts at sample `position`.
  Loader(const Data& data, const Cut& cut, uint64_t position);
  ~Loader();
  // The next batch, valid until the next call. Waits for it; rethrows an exception of the reading thread.
  const Batch& next();

 private:
  void work();
  const Data& data_;
  Cut cut_;
  uint64_t position_;
  Batch batches_[2];
  std::atomic<uint32_t> wanted_{1}, ready_{0};
  std::atomic<bool> stop_{false};
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace eng
