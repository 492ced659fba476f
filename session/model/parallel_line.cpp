// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/base/error.hpp"
#include "session/model/caller_loss.hpp"
#include "session/model/tensor_parallel.hpp"

namespace eng {

void check_parallel(const Config& config) {
  const auto refuse = [&](const char* what) {
    throw Error(Exit::usage,
                fmt::format("parallel.tensor = {} does not work with {} yet",
                            config.section("parallel").integer("tensor"), what),
                "remove one of the two");
  };
  if (!config.section("observers").as<Tables>("list").empty()) refuse("[[observers]]");
  if (caller_loss(config)) refuse("loss.plugin = \"caller\"");
}

std::string parallel_line(const Model& model, const Ranks& ranks) {
  if (ranks.tensor == 1) return "";
  size_t tensors = 0;
  int64_t divided = 0, all = 0;
  for (const Parameter& p : model.params) {
    all += count(p.whole());
    if (p.cut.count > 1) ++tensors, divided += count(p.whole());
  }
  const std::string text =
      fmt::format("{} ranks divide {} of {} tensors, {} of {} parameters; {} of them with other rows", ranks.tensor,
                  tensors, model.params.size(), divided, all, ranks.data_size());
  const Template& head = model.templates.at(model.blocks.back().tmpl);
  const eng_desc& passed = head.graph.value(head.inputs.at(0)).desc;
  const int64_t length = model.sequence_length / ranks.context;
  if (passed.ndim < 3 || passed.dims[1] == length) return text;
  return text + fmt::format("; each has {} of {} positions between the maps", passed.dims[1], length);
}

}  // namespace eng
