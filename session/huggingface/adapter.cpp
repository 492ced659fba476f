// SPDX-License-Identifier: Apache-2.0
#include "session/huggingface/adapter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <set>

#include "core/base/error.hpp"
#include "core/config/names.hpp"
#include "session/checkpoint/convert.hpp"
#include "session/file.hpp"
#include "session/huggingface/arrangement.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

const std::string peft_prefix = "base_model.model.", ending_a = ".lora_A.weight";

std::string map_end(const std::string& map) {
  return map.substr(map.rfind('.') + 1);
}

double entry_number(const Table& entry, const char* key, double fallback) {
  const auto found = entry.values.find(key);
  if (found == entry.values.end()) return fallback;
  if (const auto* whole = std::get_if<int64_t>(&found->second)) return static_cast<double>(*whole);
  const auto* real = std::get_if<double>(&found->second);
  return real ? *real : fallback;
}

// The module of stacked experts: "model.layers.0.mlp.experts".
std::string module_of(const std::string& map) {
  return map.substr(0, map.rfind('.'));
}

// Names the maps as PEFT does. Of two parameters of a module it wraps down_proj, the later one, around the other.
void name_for_peft(std::vector<Adapter>& adapters) {
  std::set<std::string> wrapped;
  for (const Adapter& a : adapters)
    if (a.experts && map_end(a.map) == "down_proj") wrapped.insert(module_of(a.map));
  for (Adapter& a : adapters) {
    const bool inside = a.experts && map_end(a.map) != "down_proj" && wrapped.count(module_of(a.map));
    a.peft = !a.experts ? a.map : module_of(a.map) + (inside ? ".base_layer" : "");
  }
}

// True if an entry of [[transforms]] is `lora` and names this map.
bool takes_map(const Table& entry, const Adapter& adapter) {
  const auto* plugin = std::get_if<std::string>(&entry.values.at("plugin"));
  if (!plugin || (*plugin != "lora" && *plugin != "low_rank")) return false;
  const auto found = entry.values.find("targets");
  const auto* targets = found == entry.values.end() ? nullptr : std::get_if<std::vector<std::string>>(&found->second);
  return targets && std::any_of(targets->begin(), targets->end(), [&](const std::string& target) {
           return target == "all-linear" || matches(target, adapter.map) || matches(target, adapter.weight);
         });
}

// A number as Python would write it: 16, not 16.0.
Json python_number(double value) {
  const auto whole = static_cast<int64_t>(value);
  return static_cast<double>(whole) == value ? Json(whole) : Json(value);
}

// The keys of adapter_config.json that change numbers in a way that the transform has not.
void refuse_other_kinds(const Json& json, const std::string& where) {
  const auto refused = [&](const std::string& what) {
    throw Error(Exit::usage, where + ": " + what + " is not supported",
                "merge the adapter into its model with peft (merge_and_unload), and start from that");
  };
  const auto empty = [](const Json& value) {
    return value.is_null() || ((value.is_array() || value.is_object()) && !value.size()) ||
           (value.is_boolean() && !value.boolean());
  };
  if (!json.is_object()) refuse(where, "is no object");
  if (json.text_at("peft_type") != "LORA") refused("peft_type `" + json.text_at("peft_type") + "`");
  for (const char* key :
       {"modules_to_save", "layer_replication", "lora_bias", "trainable_token_indices", "alora_invocation_tokens"})
    if (!empty(json.get(key))) refused(key);
  for (const auto& [key, value] : json.members()) {
    const bool variant = key.starts_with("use_") && key != "use_rslora" && key != "use_dora";
    const bool other = key.ends_with("_config") && key != "eva_config" && key != "megatron_config";
    if ((variant || other) && !empty(value)) refused(key);
  }
  if (json.contains("bias") && json.text_at("bias") != "none") refused("bias `" + json.text_at("bias") + "`");
  // Other ways of initialisation change the weights of the model, too, and are saved as their difference.
  const Json& init = json.get("init_lora_weights");
  if (init.is_string() && init.text() != "gaussian" && init.text() != "eva" && init.text() != "orthogonal")
    refused("init_lora_weights `" + init.text() + "`");
}

double adapter_number(const Json& json, const char* key, const std::string& where) {
  const Json& value = json.get(key);
  if (!value.is_number() || !(value.number() > 0)) refuse(where, fmt::format("`{}` is no number above 0", key));
  return value.number();
}

// True if the name of the map ends so, as PEFT matches it: each point of the pattern is any character.
bool ends_as(const std::string& map, const std::string& pattern) {
  if (pattern.size() > map.size()) return false;
  const size_t first = map.size() - pattern.size();
  return (!first || map[first - 1] == '.') && std::equal(pattern.begin(), pattern.end(), map.begin() + int64_t(first),
                                                         [](char p, char c) { return p == '.' || p == c; });
}

// The alpha of a map. Patterns are regular expressions in PEFT; only names of maps or their ends are understood.
double alpha_of(const Json& json, const std::string& map, double fallback, const std::string& where) {
  const Json& patterns = json.get("alpha_pattern");
  std::optional<double> out;
  if (patterns.is_object())
    for (const auto& [pattern, value] : patterns.members()) {
      if (!std::all_of(pattern.begin(), pattern.end(),
                       [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; }))
        refuse(where, "alpha_pattern `" + pattern + "` is a regular expression", "write the names of the maps");
      if (!ends_as(map, pattern)) continue;
      if (!value.is_number() || (out && *out != value.number()))
        refuse(where, "alpha_pattern does not give one number for " + map);
      out = value.number();
    }
  return out.value_or(fallback);
}

}  // namespace

std::vector<std::string> Adapter::parameters() const {
  return dora ? std::vector{a(), b(), m()} : std::vector{a(), b()};
}

bool is_of_path(const std::vector<Adapter>& adapters, const std::string& parameter) {
  return std::any_of(adapters.begin(), adapters.end(), [&](const Adapter& a) {
    return parameter == a.a() || parameter == a.b() || (a.dora && parameter == a.m());
  });
}

double Adapter::scale() const {
  const auto width = static_cast<double>(rank);
  return alpha / (root ? std::sqrt(width) : width);
}

std::vector<Adapter> adapters_of(const Config& config, const std::vector<TensorSpec>& parameters) {
  std::map<std::string, const TensorSpec*> known;
  for (const TensorSpec& t : parameters) known[t.name] = &t;
  const auto& entries = config.section("transforms").as<Tables>("list");
  std::vector<Adapter> out;
  for (const TensorSpec& t : parameters) {
    if (!t.name.ends_with(ending_a) || t.shape.size() != 2) continue;
    Adapter adapter{t.name.substr(0, t.name.size() - ending_a.size()), "", t.shape[0]};
    if (!known.count(adapter.b())) continue;
    adapter.dora = known.count(adapter.m()) != 0;
    adapter.weight = known.count(adapter.map + ".weight") ? adapter.map + ".weight" : adapter.map;
    const auto weight = known.find(adapter.weight);
    if (weight != known.end() && weight->second->shape.size() == 3)
      adapter.experts = weight->second->shape[0], adapter.rank /= adapter.experts;
    const auto entry =
        std::find_if(entries.begin(), entries.end(), [&](const Table& table) { return takes_map(table, adapter); });
    if (entry == entries.end())
      throw Error(Exit::usage, fmt::format("{} is of no transform `lora` in [[transforms]]", t.name),
                  "its scale is not known");
    adapter.alpha = entry_number(*entry, "alpha", static_cast<double>(adapter.rank));
    adapter.dropout = entry_number(*entry, "dropout", 0);
    const auto root = entry->values.find("rslora");
    adapter.root = root != entry->values.end() && root->second == Value(true);
    out.push_back(std::move(adapter));
  }
  name_for_peft(out);
  return out;
}

std::string peft_name(const Adapter& adapter, const std::string& parameter) {
  return peft_prefix + adapter.peft + parameter.substr(adapter.map.size());
}

void need_peft_name(const Adapter& adapter) {
  if (adapter.experts && !matches("*.mlp.experts.gate_up_proj", adapter.map) &&
      !matches("*.mlp.experts.down_proj", adapter.map))
    throw Error(Exit::usage, adapter.weight + " has another name and shape in transformers",
                "PEFT has no adapter for it; export the model with --merge");
}

Json peft_config(const std::vector<Adapter>& adapters, const std::vector<TensorSpec>& parameters,
                 const std::string& base) {
  if (std::any_of(adapters.begin(), adapters.end(), [&](const Adapter& a) { return a.dora != adapters.front().dora; }))
    throw Error(Exit::usage, "some paths have `dora` and others have not",
                "PEFT has one `use_dora` for all; export the model with --merge");
  // With both ways of scaling, all are written in one of them.
  const bool mixed =
      std::any_of(adapters.begin(), adapters.end(), [&](const Adapter& a) { return a.root != adapters.front().root; });
  const auto alpha = [&](const Adapter& a) { return mixed ? a.scale() * static_cast<double>(a.rank) : a.alpha; };
  // Maps are named by their last part if all that end so have a path.
  // Experts are no modules: their parameters are named, by their last three parts.
  const auto end_of = [](const std::string& map, bool experts) {
    size_t at = map.rfind('.');
    for (int k = 0; experts && k < 2 && at != std::string::npos && at; ++k) at = map.rfind('.', at - 1);
    return map.substr(at + 1);
  };
  std::map<std::string, size_t> ends;
  for (const TensorSpec& t : parameters)
    if (t.name.ends_with(".weight") && (t.shape.size() == 2 || t.shape.size() == 3))
      ++ends[end_of(t.name.substr(0, t.name.size() - 7), t.shape.size() == 3)];
  std::map<std::string, size_t> have;
  for (const Adapter& a : adapters) ++have[end_of(a.map, a.experts > 0)];
  std::set<std::string> targets, stacked;
  Json ranks = Json::object(), alphas = Json::object();
  const Adapter& first = adapters.front();
  for (const Adapter& a : adapters) {
    const std::string end = end_of(a.map, a.experts > 0);
    (a.experts ? stacked : targets).insert(ends[end] == have[end] ? end : a.map);
    if (a.rank != first.rank) ranks[a.map] = Json(a.rank);
    if (alpha(a) != alpha(first)) alphas[a.map] = python_number(alpha(a));
  }
  // With stacked experts PEFT takes no dropout, which has no effect on what was trained.
  const bool turned = std::any_of(adapters.begin(), adapters.end(), [](const Adapter& a) { return a.transposed; });
  Json json = Json::object({{"peft_type", "LORA"},
                            {"task_type", "CAUSAL_LM"},
                            {"base_model_name_or_path", base.empty() ? Json() : Json(base)},
                            {"inference_mode", true},
                            {"r", first.rank},
                            {"lora_alpha", python_number(alpha(first))},
                            {"lora_dropout", stacked.empty() ? first.dropout : 0.0},
                            {"use_rslora", first.root && !mixed},
                            {"target_modules", std::vector<std::string>(targets.begin(), targets.end())},
                            {"rank_pattern", ranks},
                            {"alpha_pattern", alphas},
                            {"bias", "none"},
                            {"fan_in_fan_out", turned},
                            {"init_lora_weights", true},
                            {"use_dora", first.dora},
                            {"modules_to_save", Json()}});
  if (!stacked.empty()) json["target_parameters"] = std::vector<std::string>(stacked.begin(), stacked.end());
  return json;
}

fs::path adapter_source(const Config& config) {
  const Section& model = config.section("model");
  if (!model.has("adapter")) return {};
  if (!model.has("from"))
    throw Error(Exit::usage, "[model] adapter needs the weights of its model", "set model.from to its base model");
  return config.base_dir() / model.string("adapter");
}

void load_adapter(const fs::path& directory, const Config& config, const Pretrained& pretrained,
                  const std::vector<TensorShare>& parameters, const Fill& fill) {
  const fs::path json_file = directory / "adapter_config.json", file_name = directory / "adapter_model.safetensors";
  std::error_code none;
  for (const fs::path& path : {json_file, file_name})
    if (!fs::is_regular_file(path, none))
      throw Error(Exit::usage,
                  fmt::format("[model] adapter = {} has no {}", directory.string(), path.filename().string()),
                  "it takes a directory as peft's save_pretrained writes it, with safetensors");
  const std::string where = json_file.string();
  const Json json = parse_json(read_text(json_file, 1u << 20, Exit::checkpoint), where, 8);
  refuse_other_kinds(json, where);
  const double alpha = adapter_number(json, "lora_alpha", where);
  const auto is_on = [&](const char* key) {
    const Json& value = json.get(key);
    if (!value.is_null() && !value.is_boolean()) refuse(where, fmt::format("`{}` is neither true nor false", key));
    return value.is_boolean() && value.boolean();
  };
  const bool root = is_on("use_rslora"), dora = is_on("use_dora");
  const SafetensorsFile file(file_name);

  const std::vector<TensorSpec> specs(parameters.begin(), parameters.end());
  std::vector<std::string> problems;
  struct Place {
    std::string name;
    uint64_t first = 0;  // element
  };
  std::map<std::string, Place> places;  // of our parameters in the file
  std::set<std::string> wanted;
  std::vector<Adapter> adapters = adapters_of(config, specs);
  std::vector<TensorShape> model;
  for (const TensorShare& t : parameters)
    if (!is_of_path(adapters, t.name)) model.push_back({t.name, t.shape, t.optional});
  place_in_files(adapters, model, arrange(model, pretrained, directory.string()));
  std::map<std::string, int64_t> without;  // rows without a path, of matrices that several maps are in
  for (const Adapter& own : adapters) {
    Adapter theirs = own;
    theirs.root = root;
    if (own.dora != dora && problems.empty())  // one line says it of all
      problems.push_back(fmt::format("{}: {} there, {} here", own.map, dora ? "with use_dora" : "without use_dora",
                                     own.dora ? "with dora = true" : "without dora"));
    theirs.alpha = alpha_of(json, own.rows ? own.peft : own.map, alpha, where);
    if (own.rows) without.try_emplace(own.peft, own.rows).first->second -= own.length;
    for (const std::string& name : own.parameters()) {
      const std::string there = peft_name(own, name);
      const bool part = own.rows && name != own.a();
      places[name] = {there, part ? static_cast<uint64_t>(own.first * (name == own.b() ? own.rank : 1)) : 0};
      wanted.insert(there);
      const StoredTensor* stored = file.find(there);
      std::vector<int64_t> shape =
          std::find_if(specs.begin(), specs.end(), [&](const auto& t) { return t.name == name; })->shape;
      if (part) shape[0] = own.rows;
      if (!stored)
        problems.push_back(there + ": missing");
      else if (stored->shape != shape)
        problems.push_back(fmt::format("{}: {}, it must be {}", there, shape_text(stored->shape), shape_text(shape)));
      else if (stored->dtype != ENG_F32 && stored->dtype != ENG_BF16 && stored->dtype != ENG_F16)
        problems.push_back(there + ": only F32, BF16 and F16 are read");
    }
    if (std::abs(theirs.scale() - own.scale()) > 1e-12 * own.scale())
      problems.push_back(fmt::format("{}: scaled by {:g} there, by {:g} here", own.map, theirs.scale(), own.scale()));
  }
  for (const auto& [module, rows] : without)
    if (rows) problems.push_back(fmt::format("{}: it is several maps here, which must all have a path", module));
  for (const StoredTensor& t : file.tensors())
    if (!wanted.count(t.name)) problems.push_back(t.name + ": unexpected");
  if (wanted.empty()) problems = {"[[transforms]] has no transform `lora` that takes it"};
  if (!problems.empty()) {
    constexpr size_t most = 8;
    const size_t left = problems.size() > most ? problems.size() - most : 0;
    problems.resize(problems.size() - left);
    throw Error(Exit::checkpoint,
                fmt::format("{} does not fit [[transforms]]:\n  {}{}", directory.string(), fmt::join(problems, "\n  "),
                            left ? fmt::format("\n  and {} more", left) : ""),
                fmt::format("it says r = {}, lora_alpha = {:g}, use_rslora = {}, use_dora = {}, target_modules = {}, "
                            "target_parameters = {}: write "
                            "them as rank, alpha, rslora, dora and targets (\"*.NAME\") of the transform lora",
                            json.get("r").dump(), alpha, root, dora, json.get("target_modules").dump(),
                            json.get("target_parameters").dump()));
  }
  if (!fill) return;
  constexpr uint64_t tile = 1u << 18;
  std::vector<float> in(tile), out(tile);
  for (const TensorShare& t : parameters) {
    const auto there = places.find(t.name);
    if (there == places.end()) continue;
    const StoredTensor& stored = *file.find(there->second.name);
    t.each_range([&](const Range& r) {
      for (uint64_t at = 0, n = 0; at < r.count; at += n) {
        n = std::min(tile, r.count - at);
        file.read(stored, there->second.first + r.first + at, n, in.data());
        convert(stored.dtype, in.data(), t.dtype, out.data(), n);
        fill(t, r.first + at, n, out.data());
      }
    });
  }
}

void LowRankPath::sums(uint64_t row, uint64_t first, std::span<double> out) const {
  std::fill(out.begin(), out.end(), 0.0);
  const uint64_t rows = b.size() / (rank * experts), expert = row / rows, own_row = row % rows;
  for (uint64_t k = 0; k < rank; ++k) {
    const double factor = b[(own_row * rank + k) * experts + expert];
    const float* const own = a.data() + (expert * rank + k) * columns + first;
    for (uint64_t j = 0; j < out.size(); ++j) out[j] += factor * static_cast<double>(own[j]);
  }
}

double LowRankPath::length(uint64_t row, const float* w, std::vector<double>& scratch) const {
  scratch.resize(columns);
  sums(row, 0, scratch);
  double squares = 0;
  for (uint64_t j = 0; j < columns; ++j) {
    const double value = static_cast<double>(w[j]) + scale * scratch[j];
    squares += value * value;
  }
  return std::sqrt(squares);
}

Merged::Merged(const OpenCheckpoint& checkpoint, const std::vector<Adapter>& adapters) {
  const auto find = [&](const std::string& name) -> const ManifestTensor& {
    for (const ManifestTensor& t : checkpoint.manifest.tensors)
      if (t.name == name && t.role == kParameterRole) return t;
    throw Error(Exit::bug, name + " is not in the checkpoint");
  };
  const auto read = [&](const ManifestTensor& t, uint64_t first, uint64_t count) {
    std::vector<char> stored(count * dtype_size(t.dtype));
    checkpoint.read(t, first, count, stored.data());
    std::vector<float> out(count);
    convert(t.dtype, stored.data(), ENG_F32, out.data(), count);
    return out;
  };
  const auto values = [&](const std::string& name) {
    const ManifestTensor& t = find(name);
    return read(t, 0, element_count(t.shape, t.name));
  };
  for (const Adapter& adapter : adapters) {
    const auto rank = static_cast<uint64_t>(adapter.rank);
    const auto experts = static_cast<uint64_t>(std::max<int64_t>(adapter.experts, 1));
    Path path{{rank, 0, adapter.scale(), values(adapter.a()), values(adapter.b()), experts}, {}};
    path.columns = path.a.size() / (path.rank * experts);
    if (adapter.dora) {
      const ManifestTensor& weight = find(adapter.weight);
      const std::vector<float> m = values(adapter.m());
      std::vector<double> scratch;
      for (uint64_t row = 0; row < m.size(); ++row) {
        const double length = path.length(row, read(weight, row * path.columns, path.columns).data(), scratch);
        path.factors.push_back(length == 0 ? 0 : static_cast<double>(m[row]) / length);
      }
    }
    paths_.emplace(adapter.weight, std::move(path));
  }
}

void Merged::add(const std::string& parameter, uint64_t first, std::span<float> values) const {
  const auto found = paths_.find(parameter);
  if (found == paths_.end()) return;
  const Path& path = found->second;
  std::vector<double> sums;  // of a part of a row
  for (uint64_t done = 0, n = 0; done < values.size(); done += n) {
    const uint64_t row = (first + done) / path.columns, column = (first + done) % path.columns;
    n = std::min<uint64_t>(path.columns - column, values.size() - done);
    sums.resize(n);
    path.sums(row, column, sums);
    for (uint64_t j = 0; j < n; ++j) {
      double value = static_cast<double>(values[done + j]) + path.scale * sums[j];
      if (!path.factors.empty()) value *= path.factors[row];
      values[done + j] = static_cast<float>(value);
    }
  }
}

}  // namespace eng
