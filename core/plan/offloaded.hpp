// SPDX-License-Identifier: Apache-2.0
// Activations that leave the device after the forward of their block and come back before its backward.
#pragma once

#include <map>
#include <tuple>

#include "core/plan/emitter.hpp"

namespace eng {

class OffloadedActivations {
 public:
  // `place`: the arena of a tier.
  OffloadedActivations(Emitter& emitter, uint32_t place) : emitter_(emitter), place_(place) {}
  // Before the forward of a block: its actions may take the memory of what left two blocks ago.
  void before_forward();
  // After the forward of a block: these values of it are read by backwards alone. What is offloaded already stays so.
  void leave(const std::vector<View>& values);
  // These are read soon. The device's memory for them is that which is free after the last action of the computation.
  void come(const std::vector<View>& values);
  // The view of a value on the device: its own place, or the one to which it was copied back.
  View here(const View& value) const;

 private:
  using Key = std::tuple<Id, uint64_t, uint64_t>;  // buffer, offset, bytes
  static Key key(const View& v) { return {v.buffer, v.offset, bytes(v.desc)}; }
  struct Trip {
    View there, back;  // `back` is absent until it has come
  };
  Emitter& emitter_;
  const uint32_t place_;
  std::map<Key, Trip> trips_;
  std::vector<View> last_, before_;  // what left after the last forward, and after the one before
};

}  // namespace eng
