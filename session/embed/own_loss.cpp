// SPDX-License-Identifier: Apache-2.0
#include "session/embed/own_loss.hpp"

#include <cmath>

namespace eng {

OwnLoss::OwnLoss(std::span<const eng_tensor_in> gradients, double loss) : loss_(loss) {
  for (size_t k = 0; k < gradients.size(); ++k) try {
      gradients_.push_back(std::make_unique<Incoming>(gradients[k], fmt::format("gradient {} of the loss", k)));
    } catch (...) {
      refuse_all(gradients.subspan(k + 1));
      throw;
    }
}

void OwnLoss::into(Batch& batch, const std::vector<int64_t>& shape, size_t micro_batches, const DLDevice& device,
                   const Incoming::FromDevice& from_device) {
  if (!std::isfinite(loss_))
    throw Error(Exit::usage, fmt::format("the loss is {}", loss_), "give the sum of the losses of the micro-batches");
  if (gradients_.size() != micro_batches)
    throw Error(
        Exit::usage,
        fmt::format("{} gradients are given, and a step has {} micro-batches", gradients_.size(), micro_batches),
        "give one for each micro-batch of train.micro_batch rows");
  copies_.reserve(micro_batches);
  for (const auto& one : gradients_) {
    if (one->shape() != shape)
      throw Error(Exit::usage,
                  fmt::format("{} is {}; the logits are ({})", one->what(), one->text(), fmt::join(shape, ", ")));
    if (one->type().code != kDLFloat || one->type().bits != 32)
      throw Unsupported(fmt::format("{} is {}", one->what(), one->text()), "give it as float32");
    const void* place = one->in_place();
    if (!place) {
      copies_.emplace_back(one->count());
      one->read(0, one->count(), copies_.back().data(), device, from_device);
      place = copies_.back().data();
    }
    for (const auto& before : batch.logit_gradients)
      if (before.data() == place)
        throw Error(Exit::usage, fmt::format("{} lies in the memory of another one", one->what()),
                    "give each micro-batch a gradient of its own: the logits of the next one overwrite those before");
    batch.logit_gradients.emplace_back(static_cast<const float*>(place), one->count());
  }
  batch.own_loss = loss_;
}

}  // namespace eng
