// SPDX-License-Identifier: Apache-2.0
// Faults to be planted into a plan, which a test must see.
#pragma once

#include <string>

#include "core/plan/plan.hpp"
#include "engine/ops.h"

namespace equality {

// Adds the reduced gradient of one piece to its sum a second time, in every repeated micro-batch. False if the plan
// adds none.
inline bool reduce_twice(eng::Plan& plan) {
  for (eng::Program& program : plan.programs)
    for (eng::Segment& segment : program.segments)
      for (uint32_t a = 0; a < segment.actions.size(); ++a) {
        const eng::Action& action = segment.actions[a];
        if (plan.calls[action.call].op->id != std::string(ENG_OP_ADD) ||
            plan.labels[action.label].phase != eng::Phase::reduce)
          continue;
        eng::Action again = action;
        again.waits.clear(), again.after.clear();
        segment.actions.insert(segment.actions.begin() + a + 1, again);
        // An action that waited for the first waits for the second.
        for (uint32_t later = a + 2; later < segment.actions.size(); ++later)
          for (auto* list : {&segment.actions[later].waits, &segment.actions[later].after})
            for (uint32_t& w : *list) w += w >= a;
        return true;
      }
  return false;
}

// Fills what is zeroed in fresh gradients, because no op of the backward writes it, with something else. False if the
// plan has nothing of the kind.
inline bool fill_unused(eng::Plan& plan) {
  bool found = false;
  for (eng::Program& program : plan.programs)
    for (eng::Segment& segment : program.segments)
      for (eng::Action& action : segment.actions) {
        if (plan.calls[action.call].op->id != std::string(ENG_OP_INIT_CONSTANT) ||
            plan.buffer(action.out[0].buffer).name.rfind("fresh gradient ", 0) != 0)
          continue;
        plan.calls.push_back(plan.calls[action.call]);
        for (eng::Attr& a : plan.calls.back().attrs.list)
          if (a.key == "value") a.f = 0.5;
        action.call = static_cast<uint32_t>(plan.calls.size() - 1);
        found = true;
      }
  return found;
}

}  // namespace equality
