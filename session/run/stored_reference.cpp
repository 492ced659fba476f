// SPDX-License-Identifier: Apache-2.0
#include "session/run/stored_reference.hpp"

#include "session/data/stored_reference.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

bool of_base(const Config& config) {
  return config.section("reference").string("from") == "base";
}

// The weights that the reference has: a directory, or "" for the initial ones.
fs::path source_of(const Config& config) {
  return of_base(config) ? weights_source(config) : reference_source(config);
}

// The hash of all that determines what the reference computes, but for its weights.
std::string model_hash(const Config& config) {
  std::string text;
  for (const char* section : {"model", "precision"})
    for (const auto& [key, setting] : config.section(section).settings())
      if (key != "from" && key != "adapter" && key != "preset")
        text += fmt::format("{}.{} = {}\n", section, key, toml_text(setting.value));
  return Checksum::of(text + (of_base(config) ? "base" : "other"));
}

std::string weights_hash(const Config& config) {
  const fs::path source = source_of(config);
  if (!source.empty()) return fingerprint(source);
  return Checksum::of(fmt::format("initial, seed {}", config.section("train").integer("seed")));
}

// Adds the sum over the labels of each row, in f64 as losses add them up.
void add_sums(const std::vector<float>& logprobs, const Batch& batch, int64_t rows, int64_t length,
              std::vector<StoredReference::Entry>& out) {
  for (int64_t r = 0; r < rows; ++r) {
    const auto at = static_cast<std::size_t>(r * length);
    double sum = 0;
    for (std::size_t t = at; t < at + static_cast<std::size_t>(length); ++t)
      if (batch.labels[t] != ENG_IGNORE_LABEL) sum += double{logprobs[t]};
    out.push_back({StoredReference::key(length, batch.tokens.data() + at, batch.labels.data() + at), sum});
  }
}

}  // namespace

fs::path stored_reference(const Config& config) {
  const Section& section = config.section("reference");
  return section.has("store") ? config.base_dir() / section.string("store") : fs::path();
}

std::string check_stored_reference(const Config& config) {
  const fs::path path = stored_reference(config);
  const StoredReference::Facts facts = StoredReference::facts_of(path);
  const auto refuse = [&](const std::string& what) {
    throw Error(Exit::data, fmt::format("[reference] store: {} was computed {}", path.string(), what),
                "compute it again: engine data reference CONFIG");
  };
  if (const std::string weights = weights_hash(config); facts.weights != weights)
    refuse(fmt::format("with other weights than those of reference.from = \"{}\" (hash {}, now {})",
                       config.section("reference").string("from"), facts.weights, weights));
  if (facts.model != model_hash(config)) refuse("with other options of [model] or [precision]");
  return facts.weights;
}

StoredWork compute_stored_reference(const Config& config, Registry& registry,
                                    const std::function<void(Setup&, const Data&)>& plan,
                                    const std::function<void(uint64_t, uint64_t)>& progress) {
  const Section &section = config.section("reference"), &train = config.section("train");
  for (const char* key : {"from", "store"})
    if (!section.has(key))
      throw Error(Exit::usage, fmt::format("the configuration has no reference.{}", key),
                  key == std::string("from")
                      ? "name the weights of the reference, for example \"start\""
                      : "name the file that is to be written, for example \"reference.logprobs\"");
  const fs::path source = source_of(config);
  if (!source.empty()) compare_models(source, config, registry);
  Readable readable;
  readable.reference = true;
  Setup setup = make_evaluation(config, registry, readable);
  // A source may insist on its own fields; those that the model reads come first.
  std::vector<Field> fields = setup.model.fields;
  for (const Field& field : offered_fields(config, registry, false).fields)
    if (std::none_of(fields.begin(), fields.end(), [&](const Field& f) { return f.name == field.name; }))
      fields.push_back(field);
  const Data data(registry, config, setup.model.info.vocabulary, fields);
  if (!data.names().empty())
    throw Error(Exit::usage, "[reference] store is for one source of [data], not for [[data.sources]]",
                "leave reference.store out: the reference is then computed in every step");
  plan(setup, data);
  Trainer trainer(config, registry, setup, data);
  Weights weights;
  if (!source.empty())
    weights = [&](const auto& parameters, const Fill& fill, const Peers& peers) {
      load_weights(find_weights(source, peers), pretrained_table(config, registry), parameters, fill, {}, peers);
    };
  trainer.initialise(weights);
  const Tensor* found = nullptr;
  for (const Tensor& tensor : setup.plan.tensors)
    if (tensor.role == "activation") found = &tensor;
  const int64_t rows = train.integer("micro_batch"), length = data.length();
  if (!found || found->ranges.size() != 1 || found->desc.dtype != ENG_F32 || count(found->desc) != rows * length)
    throw Error(Exit::bug, "the log-probabilities of labels were not planned");
  const uint64_t samples = data.info().train_samples + data.info().validation_samples;
  std::vector<float> logprobs(static_cast<std::size_t>(rows * length));
  std::vector<StoredReference::Entry> entries;
  entries.reserve(samples);
  Batch batch;
  for (const int32_t split : {ENG_SPLIT_TRAIN, ENG_SPLIT_VALIDATION}) {
    const uint64_t n = split == ENG_SPLIT_TRAIN ? data.info().train_samples : data.info().validation_samples;
    for (uint64_t at = 0; at < n; at += static_cast<uint64_t>(rows)) {
      batch.clear();
      // Samples behind the last one: of the next epoch, or without labels.
      data.read(split, at, rows, batch);
      trainer.evaluate(batch, eval_with_sites);
      trainer.download(logprobs.data(), trainer.executor().address(found->ranges[0].view),
                       logprobs.size() * sizeof(float));
      add_sums(logprobs, batch, std::min<int64_t>(rows, static_cast<int64_t>(n - at)), length, entries);
      progress(entries.size(), samples);
    }
  }
  StoredWork out{0, samples};
  const fs::path path = stored_reference(config);
  StoredReference::write(path, {length, data.info().content_hash, weights_hash(config), model_hash(config)},
                         std::move(entries));
  out.sequences = StoredReference(path).sequences();
  return out;
}

}  // namespace eng
