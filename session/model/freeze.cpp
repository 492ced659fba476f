// SPDX-License-Identifier: Apache-2.0
#include "session/model/freeze.hpp"

#include <algorithm>

namespace eng {

void freeze(Model& model, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns)
    for (uint32_t p : select(model, pattern, "train.freeze")) model.params[p].frozen = true;
  if (!model.params.empty() &&
      std::all_of(model.params.begin(), model.params.end(), [](const Parameter& p) { return p.frozen; }))
    throw Error(Exit::usage,
                patterns.empty() ? "every parameter is frozen: none is left to train"
                                 : "train.freeze leaves no parameter to train",
                "remove a pattern; `engine eval` measures without training");
}

}  // namespace eng
