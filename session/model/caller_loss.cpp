// SPDX-License-Identifier: Apache-2.0
#include "session/model/caller_loss.hpp"

#include <algorithm>
#include <vector>

#include "engine/ops.h"

namespace eng {
namespace {

eng_id reshaped(eng_build* b, eng_id x, int64_t rows, int64_t columns) {
  const eng_attr attrs[] = {
      {"keep", 0, 0}, {"ndim", columns ? 2 : 1, 0}, {"dim0", rows, 0}, {"dim1", columns ? columns : 1, 0}};
  return eng_emit1(b, ENG_OP_RESHAPE, &x, 1, attrs, columns ? 4 : 3);
}

eng_id as_type(eng_build* b, eng_id x, int32_t from, int32_t to) {
  const eng_attr attr = {"dtype", to, 0};
  return from == to ? x : eng_emit1(b, ENG_OP_CAST, &x, 1, &attr, 1);
}

eng_status trace(void*, eng_build* b, eng_id hidden, eng_id weight, eng_id* out, eng_error* error) {
  const eng_id logits = eng_linear(b, hidden, weight, 0);
  eng_desc shape{};
  if (const eng_status status = b->api->shape(b, logits, &shape, error); status != ENG_OK) return status;
  const int64_t n = shape.dims[0] * shape.dims[1] * shape.dims[2];
  const std::vector<float> nothing(static_cast<size_t>(n));
  const eng_desc desc = {ENG_F32, 2, {1, n}};
  eng_id gradient = 0;
  if (const eng_status status = b->api->constant(b, &desc, nothing.data(), &gradient, error); status != ENG_OK)
    return status;
  gradient = as_type(b, gradient, ENG_F32, shape.dtype);
  const eng_id sum = eng_linear(b, reshaped(b, logits, 1, n), gradient, 0);
  *out = reshaped(b, as_type(b, sum, shape.dtype, ENG_F32), 1, 0);
  return b->api->term(b, *out, "caller", 1, error);
}

}  // namespace

bool caller_loss(const Config& config) {
  return config.section("loss").string("plugin") == "caller";
}

Loss make_caller_loss() {
  Loss out;
  out.name = "caller";
  out.table.struct_size = sizeof(out.table);
  out.table.trace = trace;
  return out;
}

void check_caller_loss(const Model& model) {
  for (const auto& [number, block] : model.templates)
    for (const Node& node : block.graph.nodes)
      if (node.op->random)
        throw Error(
            Exit::usage,
            fmt::format("loss.plugin = \"caller\": the model draws at random ({}), and the logits that the caller "
                        "reads would be of another draw than the step",
                        node.op->id),
            "set its dropout to 0");
}

size_t caller_constant(const Model& model, const std::vector<std::shared_ptr<const Constant>>& all) {
  const auto& own = model.templates.at(model.blocks.back().tmpl).constants;
  const auto found = own.empty() ? all.end() : std::find(all.begin(), all.end(), own.back());
  if (found == all.end()) throw Error(Exit::bug, "the plan has no place for the gradient of the caller's loss");
  return static_cast<size_t>(found - all.begin());
}

}  // namespace eng
