// SPDX-License-Identifier: Apache-2.0
#include "session/run/weights.hpp"

#include <fstream>
#include <set>

#include "core/tensor/dtype.hpp"
#include "session/config/schemas.hpp"
#include "session/config/source.hpp"
#include "session/dtypes.hpp"
#include "session/file.hpp"
#include "session/huggingface/adapter.hpp"
#include "session/huggingface/config_json.hpp"
#include "session/huggingface/download.hpp"
#include "session/huggingface/recognise.hpp"
#include "session/huggingface/tensors.hpp"
#include "session/json.hpp"
#include "session/plugins/pretrained.hpp"
#include "session/run/run_dir.hpp"
#include "session/run/stored_reference.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

// A note if the run was trained with keys of [loss], which a new run does not take over; "" if not.
std::string loss_note(const fs::path& run, const Document& document) {
  std::string keys;
  const auto add = [&](const std::string& key, const Value& value) {
    keys += fmt::format("{}{} = {}", keys.empty() ? "" : ", ", key, toml_text(value));
  };
  // Older runs have the key in [model].
  if (const auto* old = document.value<double>("model", "z_loss"); old && *old != 0) add("z_loss", *old);
  const auto* loss = document.find("loss");
  for (const auto& [key, given] : loss ? loss->keys : std::map<std::string, Given>{})
    if (!given.held) add(key, given.value);
  if (keys.empty()) return "";
  return fmt::format("{} was trained with the loss {}; a new run has its own, which [loss] chooses", run.string(),
                     keys);
}

ModelSource from_run(const fs::path& run, const SchemaSource& plugins) {
  ModelSource out;
  const fs::path file = run / "config.resolved.toml";
  std::error_code none;
  if (!fs::exists(file, none)) return out;  // a checkpoint without its run: [model] must define the model
  out.file = file;
  const Document document = read_resolved(file);
  if (const std::string note = loss_note(run, document); !note.empty()) out.notes.push_back(note);
  const auto* name = document.value<std::string>("model", "plugin");
  const PluginSchema* schema = name ? plugins.find(ENG_MODEL_KIND, *name) : nullptr;
  const auto* model = document.find("model");
  for (const auto& [key, given] : model ? model->keys : std::map<std::string, Given>{}) {
    if (key == "from" || key == "adapter" || key == "preset") continue;
    Setting& setting = out.settings[key] = {given.value, given.held ? "default" : file.string(), !given.held};
    const Option* option = schema ? find_option(schema->options, key) : nullptr;
    const Misfit wrong = option ? fit(*option, setting.value) : Misfit();
    if (wrong.code) throw Error(Exit::usage, fmt::format("{}: `{}` {}", file.string(), key, wrong.text));
  }
  return out;
}

// RUN/checkpoints/best is no folder, but a name for the run's best checkpoint.
bool names_best(const fs::path& directory) {
  std::error_code none;
  return directory.filename() == "best" && directory.parent_path().filename() == checkpoints_folder &&
         !fs::exists(directory, none);
}

std::optional<fs::path> best_of(const fs::path& directory) {
  return names_best(directory) ? best_checkpoint(list_checkpoints(directory.parent_path())) : std::nullopt;
}

// Reads parameters that are called "reference.NAME" here and NAME there.
void load_reference(const fs::path& source, const Pretrained& pretrained, std::vector<TensorShare> parameters,
                    const Fill& fill, const Peers& peers) {
  const std::string prefix = "reference.";
  for (TensorShare& t : parameters) t.name.erase(0, prefix.size());
  const Fill renamed = [&](const TensorSpec& t, uint64_t first, uint64_t count, const void* host) {
    TensorSpec own = t;
    own.name = prefix + t.name;
    fill(own, first, count, host);
  };
  load_weights(find_weights(source, peers), pretrained, parameters, fill ? renamed : Fill(), {}, peers);
}

}  // namespace

WeightsKind weights_kind(const fs::path& directory) {
  std::error_code none;
  if (best_of(directory)) return WeightsKind::checkpoint;
  if (fs::exists(directory / "manifest.json", none)) return WeightsKind::checkpoint;
  if (fs::exists(directory / "state.json", none)) return WeightsKind::run;
  return fs::exists(directory / "config.json", none) ? WeightsKind::hugging_face : WeightsKind::none;
}

ModelSource read_model_source(const fs::path& directory, const std::string& plugin, const SchemaSource& plugins) {
  const fs::path json = directory / "config.json";
  if (const auto adapter = recognise_adapter(directory))
    throw Error(Exit::usage, directory.string() + " " + adapter->what, adapter->help);
  switch (weights_kind(directory)) {
    case WeightsKind::hugging_face:
      return model_of_config_json(read_config_json(json), json, plugin, plugins);
    case WeightsKind::run:
      return from_run(directory, plugins);
    case WeightsKind::checkpoint:
      return from_run(fs::absolute(directory).lexically_normal().parent_path().parent_path(), plugins);
    case WeightsKind::none:
      break;
  }
  std::error_code none;
  if (const auto found = recognise_folder(directory))
    throw Error(Exit::usage, directory.string() + " " + found->what, found->help);
  const std::string takes = "`from` takes a Hugging Face directory, a run, or one checkpoint of a run";
  if (fs::is_directory(directory, none))
    throw Error(Exit::usage, directory.string() + " has neither config.json nor a checkpoint", takes);
  if (names_best(directory) && fs::is_directory(directory.parent_path(), none))
    throw Error(Exit::usage, directory.parent_path().string() + " has no best checkpoint",
                "a run with checkpoint.best = true keeps it");
  const std::string download = download_line(directory);
  throw Error(Exit::usage, directory.string() + " is not a directory", download.empty() ? takes : download);
}

fs::path weights_source(const Config& config) {
  const Section& model = config.section("model");
  return model.has("from") ? config.base_dir() / model.string("from") : fs::path();
}

fs::path find_weights(const fs::path& directory, const Peers& peers) {
  if (const auto best = best_of(directory)) return *best;
  if (weights_kind(directory) != WeightsKind::run) return directory;
  const Found found = find_latest(own_folder(directory, checkpoints_folder), peers);
  if (!found.path)
    refuse(directory.string(), found.refused.empty() ? "has no usable checkpoint" : found.refused.front().problem);
  return *found.path;
}

void load_weights(const fs::path& directory, const Pretrained& pretrained, const std::vector<TensorShare>& parameters,
                  const Fill& fill, const WeightsProgress& progress, const Peers& peers) {
  uint64_t all = 0, done = 0;  // bytes that this rank gets
  for (const TensorShare& p : parameters)
    for (const Range& r : p.ranges) all += r.count * dtype_size(p.dtype);
  const Fill counted = [&](const TensorSpec& t, uint64_t first, uint64_t count, const void* host) {
    fill(t, first, count, host);
    done += count * dtype_size(t.dtype);
    if (progress) progress(done, all);
  };
  const Fill use = fill ? counted : Fill();
  if (weights_kind(directory) == WeightsKind::checkpoint)
    load_checkpoint(directory, parameters, use, {}, kParameterRole, peers, true);
  else
    peers.agree([&] { return load_tensors(directory, pretrained, parameters, use), ""; });
}

std::string rounding_note(const fs::path& place, const Pretrained& pretrained,
                          const std::vector<TensorShare>& parameters) {
  std::map<std::string, int32_t> stored;
  if (weights_kind(place) != WeightsKind::checkpoint)
    stored = types_in_files(place, pretrained, parameters);
  else
    for (const ManifestTensor& t : read_manifest(place).tensors)
      if (t.role == kParameterRole) stored[t.name] = t.dtype;
  std::map<std::pair<int32_t, int32_t>, size_t> rounded;
  for (const TensorShare& p : parameters)
    if (const auto at = stored.find(p.name); at != stored.end() && at->second != p.dtype && p.dtype != ENG_F32)
      ++rounded[{at->second, p.dtype}];
  std::string out;
  for (const auto& [types, n] : rounded)
    out += fmt::format("{}{} tensors are {} there and {} here", out.empty() ? "" : ", ", n,
                       dtype_safetensors(types.first), dtype_safetensors(types.second));
  if (out.empty()) return "";
  return fmt::format("{}: {}: their values are rounded to nearest, once; checkpoints and exports have the rounded ones",
                     place.string(), out);
}

void check_weights(const Config& config, const Registry& registry, const Setup& setup) {
  if (const fs::path source = weights_source(config); !source.empty())
    load_weights(find_weights(source), pretrained_table(config, registry), parameters(setup.plan), {});
}

// The parameters of a model, or those of its reference.
static std::vector<TensorShare> parameters_of(const Model& model, bool reference) {
  std::vector<TensorShare> out;
  for (const Parameter& p : model.params) {
    if (((p.flags & of_reference) != 0) != reference) continue;
    const eng_desc all = p.whole();
    const TensorSpec spec{p.name, kParameterRole, all.dtype, {all.dims, all.dims + all.ndim}};
    out.push_back(whole({spec})[0]);
    out.back().optional = (p.flags & ENG_PARAM_OPTIONAL) != 0;
  }
  return out;
}

std::function<void(const Model&)> weights_check(const Config& config, const Registry& registry) {
  return [&config, &registry](const Model& model) {
    if (const fs::path source = weights_source(config); !source.empty())
      load_weights(find_weights(source), pretrained_table(config, registry), parameters_of(model, false), {});
    if (const fs::path adapter = adapter_source(config); !adapter.empty())
      load_adapter(adapter, config, pretrained_table(config, registry), parameters_of(model, false), {});
    if (!stored_reference(config).empty()) check_stored_reference(config);
    const std::vector<TensorShare> reference = parameters_of(model, true);
    if (const fs::path source = reference_source(config); !reference.empty() && !source.empty()) {
      compare_models(source, config, registry);
      load_reference(source, pretrained_table(config, registry), reference, {}, {});
    }
  };
}

ReferenceWeights reference_weights(const Config& config, const Registry& registry) {
  if (!stored_reference(config).empty()) return {{}, check_stored_reference(config)};
  const fs::path source = reference_source(config);
  if (source.empty()) return {};
  compare_models(source, config, registry);
  return {[source, &table = pretrained_table(config, registry)](const auto& parameters, const Fill& fill,
                                                                const Peers& peers) {
            load_reference(source, table, parameters, fill, peers);
          },
          fingerprint(source)};
}

void compare_models(const fs::path& source, const Config& config, const Registry& registry) {
  const Section& model = config.section("model");
  const std::string& plugin = model.string("plugin");
  const PluginSchema& schema = registry.find(ENG_MODEL_KIND, plugin)->schema;
  std::string differ;
  for (const auto& [key, setting] : read_model_source(source, plugin, schemas_of(registry)).settings) {
    const Option* option = find_option(schema.options, key);
    const auto own = model.settings().find(key);
    if ((option && option->adjustable) || own == model.settings().end() || own->second.value == setting.value) continue;
    differ += fmt::format("{}{} = {} instead of {}", differ.empty() ? "" : ", ", key, toml_text(setting.value),
                          toml_text(own->second.value));
  }
  if (!differ.empty())
    throw Error(Exit::usage, fmt::format("[reference] from = {} is another model: it has {}", source.string(), differ),
                "a reference has the plugin and the sizes of [model]");
}

std::string fingerprint(const fs::path& source) {
  const fs::path place = find_weights(source);
  if (fs::exists(place / "manifest.json"))
    return Checksum::of(read_text(place / "manifest.json", UINT64_MAX, Exit::checkpoint));
  constexpr uint64_t pieces = 64, most = 65536;
  std::set<fs::path> files;
  for (const auto& file : fs::directory_iterator(place))
    if (const auto ending = file.path().extension(); ending == ".safetensors" || ending == ".bin")
      files.insert(file.path());
  Checksum sum;
  std::vector<char> piece(most);
  for (const fs::path& path : files) {
    const uint64_t size = fs::file_size(path), step = std::max<uint64_t>(size / pieces, most);
    const std::string head = fmt::format("{} {}\n", path.filename().string(), size);
    sum.add(head.data(), head.size());
    std::ifstream file(path, std::ios::binary);
    for (uint64_t at = 0; at < size; at += step) {
      file.seekg(static_cast<std::streamoff>(at));
      file.read(piece.data(), static_cast<std::streamsize>(std::min(most, size - at)));
      if (!file) throw Error(Exit::checkpoint, path.string() + " cannot be read");
      sum.add(piece.data(), static_cast<uint64_t>(file.gcount()));
    }
  }
  return sum.hex();
}

std::vector<fs::path> text_directories(const Config& config) {
  std::vector<fs::path> out;
  const Section& data = config.section("data");
  if (const auto source = weights_source(config); weights_kind(source) == WeightsKind::hugging_face)
    out.push_back(source);
  if (data.has("tokenizer") && data.string("tokenizer") != "bytes") {
    const auto path = config.base_dir() / data.string("tokenizer");
    out.push_back(fs::is_directory(path) ? path : path.parent_path());
  }
  return out;
}

fs::path reference_source(const Config& config) {
  const Section& section = config.section("reference");
  const std::string from = section.has("from") ? section.string("from") : "base";
  if (from == "start") return weights_source(config);
  return from == "base" ? fs::path() : config.base_dir() / from;
}

const Pretrained& pretrained_table(const Config& config, const Registry& registry) {
  return pretrained_of(registry.find(ENG_MODEL_KIND, config.section("model").string("plugin"))->schema);
}

Weights weights_of(const fs::path& directory, const Config& config, const Registry& registry,
                   const WeightsProgress& progress, const std::function<void(const std::string&)>& note) {
  if (directory.empty()) return {};
  // A run that was trained further has its own paths.
  const fs::path adapter = directory == weights_source(config) ? adapter_source(config) : fs::path();
  return [directory, adapter, &config, &table = pretrained_table(config, registry), progress, note](
             const auto& parameters, const Fill& fill, const Peers& peers) {
    const fs::path place = find_weights(directory, peers);
    load_weights(place, table, parameters, fill, progress, peers);
    if (note)
      if (const std::string text = rounding_note(place, table, parameters); !text.empty()) note(text);
    if (!adapter.empty()) peers.agree([&] { return load_adapter(adapter, config, table, parameters, fill), ""; });
  };
}

}  // namespace eng
