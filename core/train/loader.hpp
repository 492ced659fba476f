// SPDX-License-Identifier: Apache-2.0
// Reads the batches of a split one step ahead, on a thread of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "core/config/config.hpp"
#include "core/registry/registry.hpp"
#include "engine/data.h"

namespace eng {

// One batch: (rows, T) tokens and labels; `valid` labels count towards the loss.
struct Batch {
  std::vector<int32_t> tokens, labels;
  int64_t valid = 0;
};

// A data plugin in use.
class Data {
 public:
  Data(Registry& registry, const Config& config, int64_t vocabulary);
  ~Data();
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;
  const eng_data_info& info() const { return info_; }
  // Samples [position, position + rows) of a split; rows behind the last held-out sample count for nothing.
  // Throws Error(Exit::data).
  void read(int32_t split, uint64_t position, int64_t rows, Batch& batch) const;

 private:
  std::string name_;
  int64_t length_;
  eng_data table_{};
  void* self_ = nullptr;
  mutable std::mutex reading_;  // a source has one caller at a time: the loader, or an evaluation
  eng_data_info info_{};
};

class Loader {
 public:
  // Batches of `rows` training samples, the first at sample `position`.
  Loader(const Data& data, int64_t rows, uint64_t position);
  ~Loader();
  // The next batch, valid until the next call. Waits for it; throws what reading it threw.
  const Batch& next();

 private:
  void work();
  const Data& data_;
  int64_t rows_;
  uint64_t position_;
  Batch batches_[2];
  std::atomic<uint32_t> wanted_{1}, ready_{0};
  std::atomic<bool> stop_{false};
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace eng
