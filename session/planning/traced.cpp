// SPDX-License-Identifier: Apache-2.0
#include "session/planning/traced.hpp"

#include <functional>
#include <numeric>

#include "session/model/context_parallel.hpp"
#include "session/model/freeze.hpp"
#include "session/model/heads.hpp"
#include "session/model/sequence_parallel.hpp"
#include "session/model/tensor_parallel.hpp"
#include "session/model/vocabulary_parallel.hpp"

namespace eng {

void check_blocks(const Model& model, const Section& section) {
  for (const Block& block : model.blocks) {
    double sum = 0;
    for (const uint32_t k : block.params) {
      const eng_desc& d = model.params[k].desc;
      sum += std::accumulate(d.dims, d.dims + d.ndim, 1.0, std::multiplies<>());
    }
    if (sum > static_cast<double>(uint64_t{1} << 40))
      throw Error(
          Exit::usage,
          fmt::format("model {}: block {} has {:.3g} parameters, the most is 2^40", model.plugin, block.name, sum),
          section.has("hidden_size")
              ? fmt::format("model.hidden_size = {}: lower it, or another width", section.integer("hidden_size"))
              : "lower a width of [model]");
  }
}

Model trace(const Section& section, const eng_model& table, int64_t rows, int64_t length, const Precision& precision,
            const std::vector<std::string>& freeze, bool runs, const Offered& offered,
            const std::vector<Transform>& transforms, const Loss& loss, const std::optional<Reference>& reference,
            const Target& target, int64_t head_rows, const Ranks& ranks, bool positions,
            std::vector<std::string>& notes) {
  const std::string& name = section.string("plugin");
  try {
    return trace_model(
        name, table, section, rows, length, precision.dtype(ENG_ROLE_ACT), runs, offered, transforms, loss,
        [&](Model& model) {
          eng::freeze(model, freeze);
          if (reference) add_reference(model, *reference);
          divide_vocabulary(model, ranks, divides_vocabulary(target), head_rows, notes);
          pad_heads(model, head_rows);
          divide_layers(model, ranks, target.host_memory());
          divide_sequences(model, ranks);
          if (positions && ranks.tensor > 1) divide_positions(model, ranks);
        },
        precision.dtype(ENG_ROLE_STREAM));
  } catch (const Error& e) {
    const int64_t limit = describe_model(name, table, section).max_length;
    const bool told = std::string(e.what()).find("sequence_length") != std::string::npos;
    if (!limit || length <= limit || told) throw;
    const bool known = section.has("max_position_embeddings");
    throw Error(Exit::usage,
                fmt::format("train.sequence_length = {} is more than the {} positions of model {}{}: {}", length, limit,
                            name, known ? fmt::format(" (max_position_embeddings = {})", limit) : "", e.what()),
                fmt::format("train.sequence_length = {} or less{}", limit,
                            known ? fmt::format("; or, for a model trained from scratch, "
                                                "model.max_position_embeddings = {}",
                                                length)
                                  : ""));
  }
}

}  // namespace eng
