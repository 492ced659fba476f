// SPDX-License-Identifier: Apache-2.0
// Tensors of a plan as others see them.
#pragma once

#include <memory>
#include <vector>

#include "core/plan/plan.hpp"
#include "session/embed/embedded.hpp"
#include "session/embed/turn.hpp"

namespace eng {

// Memory of a session, which it shares with the tensors that were taken.
struct Embedded::Lent {
  explicit Lent(std::shared_ptr<const void> memory) : memory_(std::move(memory)) {}
  ~Lent() { Turn::give_back(std::move(memory_)); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

 private:
  std::shared_ptr<const void> memory_;
};

// All tensors of a plan, in its order, as Trainer::reader and fill name them.
std::vector<TensorShare> tensors_of(const Plan& plan);

}  // namespace eng
