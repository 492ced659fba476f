// SPDX-License-Identifier: Apache-2.0
// Before memory is taken: a plan that is too large and what would make it fit, weights that do not fit the model.
#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/checkpoint/weights.hpp"
#include "tools/engine/command.hpp"

namespace eng {

std::vector<std::string> edits_that_fit(const Config& config, Registry& registry, uint64_t limit) {
  struct Edit {
    const char *section, *key;
    int64_t value;
  };
  std::vector<std::string> found;
  auto fits = [&](const std::vector<Edit>& edits, const char* note) {
    Config other = config;
    std::string text;
    for (const Edit& e : edits) {
      other.section(e.section).set(e.key, e.value, "edit");
      text += fmt::format("{}.{}={} ", e.section, e.key, e.value);
    }
    try {
      uint64_t peak = planned_peak(make_setup(other, registry));
      if (peak <= limit) found.push_back(fmt::format("{}{}: {}", text, note, format_bytes(static_cast<double>(peak))));
      return peak <= limit;
    } catch (const Error&) {
      return false;
    }
  };
  const Section &train = config.section("train"), &model = config.section("model");
  int64_t batch = train.integer("micro_batch"), accumulate = train.integer("accumulate");
  for (int64_t n = 2; n <= batch; ++n)
    if (batch % n == 0 && fits({{"train", "micro_batch", batch / n}, {"train", "accumulate", accumulate * n}},
                               "(the same tokens per step)"))
      break;
  for (int64_t t = train.integer("sequence_length") / 2; t >= 16; t /= 2)
    if (fits({{"train", "sequence_length", t}}, "(less context)")) break;
  int64_t layers = model.has("num_hidden_layers") ? model.integer("num_hidden_layers") : 0;
  for (int64_t n = layers - 1; n >= 1; n = n > 8 ? n * 3 / 4 : n - 1)
    if (fits({{"model", "num_hidden_layers", n}}, "(another model)")) break;
  return found;
}

void check_fits(const Config& config, Registry& registry, const Setup& setup) {
  uint64_t limit = setup.kernels->info().total_bytes, peak = planned_peak(setup);
  if (!limit || peak <= limit) return;
  std::string help;
  auto edits = edits_that_fit(config, registry, limit);
  if (edits.empty()) help = "no smaller batch or sequence fits either: take a smaller model";
  for (const auto& e : edits) help += (help.empty() ? "any one of these fits:\n  " : "\n  ") + e;
  throw Error(setup.kernels->info().dl_device_type == kDLCPU ? Exit::host_memory : Exit::device_memory,
              fmt::format("the plan needs {}, device {} has {}: {} too much", format_bytes(static_cast<double>(peak)),
                          setup.kernels->device(), format_bytes(static_cast<double>(limit)),
                          format_bytes(static_cast<double>(peak - limit))),
              help);
}

void check_weights(const Config& config, const Registry& registry, const Setup& setup) {
  if (const auto source = weights_source(config); !source.empty())
    load_weights(find_weights(source), pretrained_table(config, registry), parameters(setup.plan), {});
}

}  // namespace eng
