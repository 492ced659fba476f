// SPDX-License-Identifier: Apache-2.0
#include "session/config/init.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "engine/model.h"
#include "session/config/spelling.hpp"

namespace eng {
namespace {

using Names = std::vector<std::string>;

struct Models {
  const SchemaSource& plugins;
  const Names names = plugins.names(ENG_MODEL_KIND);

  const std::map<std::string, Preset>& presets(const std::string& plugin) const {
    return plugins.find(ENG_MODEL_KIND, plugin)->presets;
  }
  bool is(const std::string& plugin) const { return std::count(names.begin(), names.end(), plugin) > 0; }

  // The plugin's preset with this name; the plugin's name in front may be omitted: "3.2-1b" of llama.
  std::string preset(const std::string& plugin, const std::string& word) const {
    for (const auto& [name, values] : presets(plugin))
      if (lower_case(name) == word || lower_case(name) == plugin + "-" + word) return name;
    return "";
  }

  // For a first run.
  std::string smallest(const std::string& plugin) const {
    const auto& all = presets(plugin);
    const auto width = [](const auto& entry) {
      const auto found = entry.second.find("hidden_size");
      return found == entry.second.end() ? INT64_MAX : std::get<int64_t>(found->second);
    };
    const auto least =
        std::min_element(all.begin(), all.end(), [&](const auto& a, const auto& b) { return width(a) < width(b); });
    return least == all.end() ? "" : least->first;
  }

  ModelChoice find(const std::string& word) const {
    // The whole name of a preset goes before a part of one. Of several families LLaMA, which most texts mean, is first.
    Names having, whole;
    for (const std::string& name : names) {
      const std::string found = preset(name, word);
      if (found.empty()) continue;
      having.push_back(name);
      if (lower_case(found) == word) whole.push_back(name);
    }
    if (!whole.empty()) having = whole;
    std::stable_partition(having.begin(), having.end(), [](const std::string& name) { return name == "llama"; });
    if (!having.empty()) return {having[0], preset(having[0], word), Names(having.begin() + 1, having.end())};
    if (is(word)) return {word, smallest(word), {}};
    const auto slash = word.find('/');
    if (slash != std::string::npos) {
      const std::string first = word.substr(0, slash), second = word.substr(slash + 1);
      return is(first) ? ModelChoice{first, preset(first, second), {}} : find(second);  // facebook/opt-125m
    }
    for (const std::string& name : names)
      if (word.starts_with(name) && word.find_first_of("-_:") == name.size())
        return {name, preset(name, word.substr(name.size() + 1)), {}};
    return {};
  }
};

int64_t size_of(const PluginSchema& model, const Preset& preset, const std::string& key) {
  const auto found = preset.find(key);
  const Option* option = find_option(model.options, key);
  const Value value = found != preset.end() ? found->second : option ? option->fallback : Value();
  const auto* whole = std::get_if<int64_t>(&value);
  return whole ? *whole : 0;
}

}  // namespace

ModelChoice choose_model(const SchemaSource& plugins, const Names& words) {
  const Models models{plugins};
  const std::string asked = fmt::format("{}", fmt::join(words, " "));
  ModelChoice out;
  if (words.size() == 1) out = models.find(lower_case(words[0]));
  if (words.size() == 2 && models.is(words[0])) out = {words[0], models.preset(words[0], lower_case(words[1])), {}};
  if (!out.preset.empty()) return out;
  std::string known;
  Names all;
  for (const std::string& name : models.names) {
    if (models.presets(name).empty()) continue;
    known += "\n  " + name + ":";
    all.push_back(name);
    for (const auto& [preset, values] : models.presets(name)) {
      known += " " + preset;
      if (std::count(all.begin(), all.end(), preset) == 0) all.push_back(preset);  // several models have a `tiny`
    }
  }
  const Names near = nearest(lower_case(words.empty() ? "" : words.back()), all);
  const std::string what = out.plugin.empty() ? "no model plugin has a preset" : out.plugin + " has no preset";
  const std::string why = plugins.explain(ENG_MODEL_KIND, words.empty() ? "" : words.back());
  throw Error(Exit::usage, fmt::format("{} `{}`", what, printable(asked, 80)),
              fmt::format("{}engine init PRESET, or engine init MODEL/PRESET; available:{}{}",
                          near.empty() ? "" : fmt::format("did you mean `{}`? ", fmt::join(near, "` or `")), known,
                          why.empty() ? "" : "\n" + why));
}

Start start_config(const PluginSchema& model, const ModelChoice& choice) {
  const Preset& preset = model.presets.at(choice.preset);
  const int64_t vocabulary = size_of(model, preset, "vocab_size"), width = size_of(model, preset, "hidden_size"),
                positions = size_of(model, preset, "max_position_embeddings");
  Start out{{}, {"paths"}};
  std::string tokenizer;
  if (vocabulary > 256) {  // of which bytes would use few ids
    tokenizer = fmt::format("tokenizer = \"tokenizer.json\"   # a file or a folder, of ids below {}: docs/data.md\n",
                            vocabulary);
    out.needs.push_back("tokenizer");
  }
  const bool large = width >= 2048, medium = !large && width >= 512;
  const int64_t wanted = large ? 2048 : medium ? 1024 : 256;
  out.text = fmt::format(R"([model]
plugin = {}
preset = {}                # any value of it can be overridden here

[data]
paths = ["data/*.txt"]         # files or patterns, relative to this file
{}validation = 0.05              # of the windows are held out

[train]
steps = 1000
micro_batch = {}                # sequences in memory at a time; `engine plan` says what they take
accumulate = {}                 # or global_batch, which derives it
sequence_length = {}
grad_clip = 1.0
seed = 1
eval_every = 100               # steps between evaluations of what is held out

[optimizer]
plugin = "adamw"
learning_rate = 3e-4

[schedule]
kind = "cosine"                # constant, linear or cosine
warmup_steps = 50
min_learning_rate = 3e-5

[checkpoint]
every = 200                    # the last step is always saved
keep = 3

[log]
every = 10                     # steps between lines
)",
                         toml_text(choice.plugin), toml_text(choice.preset), tokenizer,
                         large    ? 1
                         : medium ? 4
                                  : 8,
                         large    ? 8
                         : medium ? 2
                                  : 1,
                         positions ? std::min(wanted, positions) : wanted);
  return out;
}

Start start_adapter() {
  return {R"([model]
from = "DIR"                   # a Hugging Face directory: options, weights and tokenizer come from there
# adapter = "DIR"              # an adapter of PEFT to go on from

[data]
paths = ["data/*.txt"]         # files or patterns, relative to this file
validation = 0.05              # of the windows are held out

[train]
steps = 1000
micro_batch = 1                # sequences in memory at a time; `engine plan` says what they take
accumulate = 8                 # or global_batch, which derives it
sequence_length = 1024
grad_clip = 1.0
seed = 1
eval_every = 100               # steps between evaluations of what is held out

[adapter]
plugin = "lora"
targets = ["all-linear"]       # every linear map of the layers; or patterns: ["*.q_proj", "*.v_proj"]
rank = 16
alpha = 32.0                   # the path is scaled by alpha / rank
dropout = 0.05

[optimizer]
plugin = "adamw"
learning_rate = 2e-4           # ten times that of training all weights is usual
weight_decay = 0.0

[schedule]
kind = "cosine"                # constant, linear or cosine
warmup_steps = 20

[precision]
plugin = "bf16"                # or fp32
# frozen = "nf4"               # frozen matrices in 4 bits (QLoRA); int8, e4m3: 8 bits

[checkpoint]
every = 200                    # the last step is always saved
keep = 3

[log]
every = 10                     # steps between lines
)",
          {"[model] from", "[data] paths"}};
}

namespace {

// Tokens of a sample: a power of two that holds the longest row, as far as the model has positions.
int64_t sample_length(const ChatStart& from) {
  const int64_t most = std::min<int64_t>(2048, from.positions > 0 ? from.positions : 2048);
  int64_t out = 256;
  while (out < most && (from.longest == 0 || static_cast<uint64_t>(out) < from.longest / 2)) out *= 2;
  return std::min(out, most);
}

constexpr int64_t epochs_of_chats = 3;

}  // namespace

std::string start_chat(const ChatStart& from) {
  const int64_t length = sample_length(from);
  // About 30 updates in an epoch, with at most 16 samples in each.
  const double samples = static_cast<double>(from.bytes) / 4.0 / static_cast<double>(length);
  const int64_t accumulate = std::clamp<int64_t>(static_cast<int64_t>(samples / 30), 1, 16);
  const auto updates = static_cast<int64_t>(epochs_of_chats * samples) / accumulate;
  const bool half = from.dtype == "bfloat16" || from.dtype == "float16";
  const char* const rate = from.adapter ? "2e-4" : from.width > 0 && from.width < 1024 ? "1e-4" : "2e-5";
  std::string out = fmt::format(R"([model]
from = {}

[data]
plugin = "chat"                # the answers train, and the token that ends each: docs/data.md
paths = {}
)",
                                toml_text(from.from), toml_text(from.paths));
  if (!from.chat_template.empty())
    out += fmt::format("chat_template = {}  # the folder has none\n", toml_text(from.chat_template));
  out +=
      fmt::format(R"(pack = true                    # whole conversations side by side, none of which sees another
validation = 0.05              # of the tokens are held out, in whole conversations
too_long = "stop"              # or "skip", "cut": a conversation longer than sequence_length

[train]
epochs = {}
micro_batch = 1                # samples in memory at a time; `engine plan` says what they take
accumulate = {:<17} # or global_batch, which derives it
sequence_length = {:<12} # {}
grad_clip = 1.0
seed = 1
eval_every = {:<17} # updates between evaluations of what is held out

)",
                  epochs_of_chats, accumulate, length,
                  from.positions > 0 ? fmt::format("the model has {} positions", from.positions) : "tokens of a sample",
                  std::clamp<int64_t>(updates / 6, 1, 100));
  if (from.adapter)
    out += R"([adapter]
plugin = "lora"
targets = ["all-linear"]       # every linear map of the layers; or patterns: ["*.q_proj", "*.v_proj"]
rank = 16
alpha = 32.0                   # the path is scaled by alpha / rank
dropout = 0.05

)";
  out += fmt::format(R"([optimizer]
plugin = "adamw"
learning_rate = {:<14} # {}
weight_decay = 0.0

[schedule]
kind = "cosine"                # constant, linear or cosine
warmup_steps = {}

[precision]
plugin = {:<21} # {}
)",
                     rate,
                     from.adapter ? "ten times that of training all weights is usual"
                                  : "1e-4 below some 500 million parameters, 1e-5 to 2e-5 above",
                     std::clamp<int64_t>(updates / 20, 1, 100), half ? "\"bf16\"" : "\"fp32\"",
                     from.dtype.empty() ? "or bf16" : "the folder's weights are " + from.dtype);
  if (from.adapter) out += "# frozen = \"nf4\"               # frozen matrices in 4 bits (QLoRA); int8, e4m3: 8 bits\n";
  return out + R"(
# [device]
# plugin = "cuda"              # a GPU; without it the CPU

[checkpoint]
every = 200                    # the last step is always saved
keep = 2

[log]
every = 1                      # steps between lines
)";
}

}  // namespace eng
