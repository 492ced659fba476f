// SPDX-License-Identifier: Apache-2.0
#include "session/planning/packed.hpp"

#include <algorithm>
#include <set>

#include "core/base/error.hpp"
#include "engine/packed.h"

namespace eng {

void choose_packed(Model& model, const Precision& precision, const std::vector<std::string>& freeze) {
  const eng_unit frozen{sizeof(eng_unit), 0, 0, ENG_PARAM_FROZEN, chunk};
  if (!eng_packed_bytes(precision.dtype(ENG_ROLE_WEIGHT, &frozen))) return;
  std::set<uint32_t> still;
  for (const std::string& pattern : freeze)
    for (uint32_t p : select(model, pattern, "train.freeze")) still.insert(p);
  // A parameter of the first or the last block may be read by others as well. The blocks of a reference come first.
  const auto first = std::find_if(model.blocks.begin(), model.blocks.end(), [&](const Block& b) {
    return !b.params.empty() && !(model.params[b.params[0]].flags & of_reference);
  });
  std::set<uint32_t> outside(first->params.begin(), first->params.end());
  outside.insert(model.blocks.back().params.begin(), model.blocks.back().params.end());
  bool any = false;
  for (uint32_t p = 0; p < model.params.size(); ++p) {
    Parameter& own = model.params[p];
    const eng_desc& d = own.desc;
    const bool matrix =
        d.ndim == 2 && std::min(d.dims[0], d.dims[1]) >= 16 && !(own.flags & (ENG_PARAM_FP32 | of_reference));
    own.packed = matrix && (own.frozen || still.count(p)) && !outside.count(p) && !own.zero_rows;
    any = any || own.packed;
  }
  if (!any)
    throw Error(Exit::usage,
                fmt::format("precision {} packs frozen matrices of layers, and this model has none", precision.name),
                "freeze them ([train] freeze, or a transform such as lora), or leave precision.frozen out");
}

}  // namespace eng
