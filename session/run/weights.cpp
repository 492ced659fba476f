// SPDX-License-Identifier: Apache-2.0
#include "session/run/weights.hpp"

#include "core/tensor/dtype.hpp"
#include "session/config/source.hpp"
#include "session/huggingface/config_json.hpp"
#include "session/huggingface/download.hpp"
#include "session/huggingface/recognise.hpp"
#include "session/huggingface/tensors.hpp"
#include "session/json.hpp"
#include "session/run/run_dir.hpp"

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
    if (key == "from" || key == "preset") continue;
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

void check_weights(const Config& config, const Registry& registry, const Setup& setup) {
  if (const fs::path source = weights_source(config); !source.empty())
    load_weights(find_weights(source), pretrained_table(config, registry), parameters(setup.plan), {});
}

std::function<void(const Model&)> weights_check(const Config& config, const Registry& registry) {
  return [&config, &registry](const Model& model) {
    const fs::path source = weights_source(config);
    if (source.empty()) return;
    std::vector<TensorSpec> all;
    for (const Parameter& p : model.params)
      all.push_back({p.name, kParameterRole, p.desc.dtype, {p.desc.dims, p.desc.dims + p.desc.ndim}});
    std::vector<TensorShare> shares = whole(all);
    for (size_t k = 0; k < all.size(); ++k) shares[k].optional = (model.params[k].flags & ENG_PARAM_OPTIONAL) != 0;
    load_weights(find_weights(source), pretrained_table(config, registry), shares, {});
  };
}

const Pretrained& pretrained_table(const Config& config, const Registry& registry) {
  return registry.find(ENG_MODEL_KIND, config.section("model").string("plugin"))->schema.pretrained;
}

Weights weights_of(const fs::path& directory, const Config& config, const Registry& registry,
                   const WeightsProgress& progress) {
  if (directory.empty()) return {};
  return [directory, &table = pretrained_table(config, registry), progress](const auto& parameters, const Fill& fill,
                                                                            const Peers& peers) {
    load_weights(find_weights(directory, peers), table, parameters, fill, progress, peers);
  };
}

}  // namespace eng
