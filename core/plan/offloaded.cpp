// SPDX-License-Identifier: Apache-2.0
#include "core/plan/offloaded.hpp"

#include <utility>

namespace eng {

void OffloadedActivations::before_forward() {
  for (const View& there : before_) emitter_.after_users(there);
  before_ = std::exchange(last_, {});
}

void OffloadedActivations::leave(const std::vector<View>& values) {
  for (const View& value : values) {
    if (!emitter_.passes(value) || trips_.count(key(value))) continue;
    const View there = emitter_.transient("away", Line::activations, value.desc, place_);
    emitter_.copy(value, there);
    trips_[key(value)] = {there, {}};
    last_.push_back(there);
  }
}

void OffloadedActivations::come(const std::vector<View>& values) {
  for (const View& value : values) {
    const auto it = trips_.find(key(value));
    if (it == trips_.end() || it->second.back.buffer) continue;
    const View back = emitter_.transient("back", Line::activations, value.desc);
    emitter_.after_computation();
    emitter_.copy(it->second.there, back);
    it->second.back = back;
  }
}

View OffloadedActivations::here(const View& value) const {
  const auto it = trips_.find(key(value));
  if (it == trips_.end() || !it->second.back.buffer) return value;
  View back = it->second.back;
  back.desc = value.desc;
  return back;
}

}  // namespace eng
