// SPDX-License-Identifier: Apache-2.0
// The loss that a caller computed (eng_own_loss).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/embed.h"
#include "session/data/data.hpp"
#include "session/embed/incoming.hpp"

namespace eng {

// The gradients by the logits of the micro-batches of a step, in the caller's memory as far as possible.
class OwnLoss {
 public:
  // Owns the tensors from here on, whatever happens.
  OwnLoss(std::span<const eng_tensor_in> gradients, double loss);
  // Puts them into a batch, which must not outlive this object. `shape`: (rows, length, vocabulary) of a micro-batch.
  // Throws Error(Exit::usage), Unsupported.
  void into(Batch& batch, const std::vector<int64_t>& shape, size_t micro_batches, const DLDevice& device,
            const Incoming::FromDevice& from_device);

 private:
  std::vector<std::unique_ptr<Incoming>> gradients_;
  std::vector<std::vector<float>> copies_;
  double loss_;
};

}  // namespace eng
