// SPDX-License-Identifier: Apache-2.0
#include "support.hpp"

#include <map>
#include <utility>

#include "session/config/foreign.hpp"
#include "session/run/weights.hpp"

namespace eng::test {
namespace {

Option option(const char* key, Type type, Value fallback) {
  Option made;
  made.key = key;
  made.type = type;
  made.fallback = std::move(fallback);
  return made;
}

Option ranged(Option made, double min, double max) {
  made.min = min;
  made.max = max;
  return made;
}

Option required(Option made) {
  made.required = true;
  return made;
}

using Known = std::map<std::pair<std::string, std::string>, PluginSchema>;

Known build() {
  Known known;
  auto& llama = known[{"eng.model/1", "llama"}];
  llama.options = {required(ranged(option("hidden_size", Type::integer, {}), 1, 1e6)),
                   required(ranged(option("num_hidden_layers", Type::integer, {}), 1, 1e4)),
                   option("rms_norm_eps", Type::number, int64_t{1}),  // an integer for a number
                   option("tie_word_embeddings", Type::boolean, false),
                   option("rope_factors", Type::numbers, {}),
                   option("kv_cache", Type::bytes, std::string("64MiB"))};
  llama.presets["tiny"] = {{"hidden_size", int64_t{64}}, {"num_hidden_layers", int64_t{2}}};
  llama.presets["7b"] = {{"hidden_size", int64_t{4096}}, {"num_hidden_layers", int64_t{32}}};
  auto& text = known[{"eng.data/1", "text"}];
  Option tokenizer = option("tokenizer", Type::string, std::string("bytes"));
  tokenizer.choices = {"bytes", "words"};
  text.options = {required(option("paths", Type::strings, {})), tokenizer, option("field", Type::string, {}),
                  ranged(option("validation", Type::number, 0.0), 0, 0.5)};
  auto& adamw = known[{"eng.optimizer/1", "adamw"}];
  adamw.options = {ranged(option("beta1", Type::number, 0.9), 0, 1), ranged(option("beta2", Type::number, 0.999), 0, 1),
                   option("eps", Type::number, 1e-8), ranged(option("weight_decay", Type::number, 0.01), 0, 10)};
  adamw.options.back().per_group = true;
  auto& sgd = known[{"eng.optimizer/1", "sgd"}];
  sgd.options = {option("momentum", Type::number, 0.0), option("learning_rate", Type::number, 0.1)};
  known[{"eng.precision/1", "fp32"}];
  known[{"eng.device/1", "cpu"}].options = {ranged(option("threads", Type::integer, int64_t{0}), 0, 4096)};
  return known;
}

const Known& all() {
  static const Known known = build();
  return known;
}

}  // namespace

const SchemaSource& plugins() {
  static const SchemaSource source = {
      [](const std::string& kind, const std::string& name) -> const PluginSchema* {
        const auto found = all().find({kind, name});
        return found == all().end() ? nullptr : &found->second;
      },
      [](const std::string& kind) {
        std::vector<std::string> names;
        for (const auto& [key, schema] : all())
          if (key.first == kind) names.push_back(key.second);
        return names;
      },
      [](const std::string&, const std::string& name) { return "looked in /usr/lib/engine for " + name; },
      [](const auto&) {},
      [](const auto& directory, const auto& plugin) { return read_model_source(directory, plugin, plugins()); },
      foreign_name,
      foreign_value};
  return source;
}

}  // namespace eng::test
