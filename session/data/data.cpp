// SPDX-License-Identifier: Apache-2.0
#include "session/data/data.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "session/checksum.hpp"

namespace eng {

Data::Data(Registry& registry, const Config& config, int64_t vocabulary, std::vector<Field> fields)
    : length_(config.section("train").integer("sequence_length")),
      fields_(std::move(fields)),
      check_(fields_, length_, vocabulary) {
  for (const DataSource& source : data_sources(config, registry)) {
    sources_.push_back(std::make_unique<Source>(registry, config, source, vocabulary, fields_));
    if (!source.name.empty()) names_.push_back(source.name);
  }
  info_ = sources_[0]->info();
  if (std::any_of(sources_.begin(), sources_.end(), [](const auto& source) { return source->of().weighted_mean; }))
    for (std::size_t f = 2; f < fields_.size(); ++f)
      if (is_weight(fields_[f].name)) weights_ = f;
  if (!names_.empty()) add_up(config);
  if (names_.empty()) held_out_ = {{0, info_.validation_samples}};
  open_stored(config);
}

// [reference] store. The file was computed from these data, or has all their samples: it may be of another split.
void Data::open_stored(const Config& config) {
  while (sums_ < fields_.size() && fields_[sums_].name != reference_sums) ++sums_;
  if (sums_ == fields_.size()) return;
  const std::filesystem::path path = config.base_dir() / config.section("reference").string("store");
  stored_.emplace(path);
  const auto refuse = [&](const std::string& what) {
    throw Error(Exit::data, fmt::format("[reference] store: {} was computed {}", path.string(), what),
                "compute it again: engine data reference CONFIG");
  };
  const StoredReference::Facts& facts = stored_->facts();
  if (facts.length != length_)
    refuse(fmt::format("with train.sequence_length = {} instead of {}", facts.length, length_));
  info_.host_bytes += stored_->kept_bytes();
  if (facts.data == info_.content_hash) return;
  if (!names_.empty()) refuse("from other data: it is for one source of [data], not for [[data.sources]]");
  Batch batch;
  for (const int32_t split : {ENG_SPLIT_TRAIN, ENG_SPLIT_VALIDATION})
    for (uint64_t at = 0; at < (split == ENG_SPLIT_TRAIN ? info_.train_samples : info_.validation_samples); ++at) {
      batch.clear();
      read(split, at, 1, batch);
    }
}

// Adds up the facts of the sources. An epoch of the mixture may read a source more than once, or a part of it.
void Data::add_up(const Config& config) {
  const Section& section = config.section("data");
  const uint32_t group = sources_[0]->of().group;
  std::vector<DataSource> described;
  std::vector<uint64_t> sizes;
  for (const auto& source : sources_) {
    described.push_back(source->of());
    sizes.push_back(source->info().train_samples / group);
  }
  const auto temperature = section.settings().find("temperature");
  const bool given = temperature != section.settings().end() && section.has("temperature");
  const std::vector<uint64_t> shares =
      mixture_shares(described, sizes, given ? std::optional(section.number("temperature")) : std::nullopt);
  mixture_ = Mixture(shares, group);
  Checksum content;
  eng_data_info all{};
  all.struct_size = sizeof(all);
  double documents = 0, padding = 0;
  for (std::size_t k = 0; k < sources_.size(); ++k) {
    const eng_data_info& one = sources_[k]->info();
    const std::string text = fmt::format("{} {}\n", one.content_hash, shares[k]);
    content.add(text.data(), text.size());
    all.files += one.files, all.tokens += one.tokens, all.host_bytes += one.host_bytes;
    all.vocabulary = std::max(all.vocabulary, one.vocabulary);
    const double times =
        sizes[k] ? static_cast<double>(shares[k]) / static_cast<double>(sizes[k]) : 0;  // that an epoch reads it
    documents += times * static_cast<double>(one.documents), padding += times * static_cast<double>(one.padding);
    held_out_.push_back({all.validation_samples, one.validation_samples});
    all.validation_samples += one.validation_samples;
  }
  all.train_samples = mixture_.samples();
  all.documents = static_cast<uint64_t>(std::llround(documents));
  all.padding = static_cast<uint64_t>(std::llround(padding));
  std::snprintf(all.content_hash, sizeof(all.content_hash), "%s", content.hex().c_str());
  info_ = all;
}

Mixture::Place Data::place(int32_t split, uint64_t position) const {
  if (names_.empty()) return {0, position};
  if (split == ENG_SPLIT_TRAIN) return mixture_.at(position);
  const auto after = [](uint64_t at, const HeldOut& part) { return at < part.first; };
  const auto found = std::upper_bound(held_out_.begin(), held_out_.end(), position, after) - 1;
  return {static_cast<std::size_t>(found - held_out_.begin()), position - found->first};
}

std::vector<std::string> Data::mixture_lines() const {
  std::vector<std::string> out;
  for (std::size_t k = 0; k < names_.size(); ++k) {
    const auto samples = static_cast<double>(mixture_.samples(k)), all = static_cast<double>(mixture_.samples()),
               own = static_cast<double>(sources_[k]->info().train_samples);
    out.push_back(
        fmt::format("source {}: {:.1f} % of the samples; an epoch of the mixture reads it {:.3g} times; {} "
                    "samples, {} held out",
                    names_[k], all > 0 ? 100 * samples / all : 0, own > 0 ? samples / own : 0,
                    sources_[k]->info().train_samples, held_out_[k].samples));
  }
  return out;
}

Data::Data(int64_t sequence_length, int64_t vocabulary, std::vector<Field> fields)
    : length_(sequence_length), fields_(std::move(fields)), check_(fields_, length_, vocabulary) {
  info_.struct_size = sizeof(info_);
  info_.vocabulary = vocabulary;
  info_.content_hash[0] = '0';  // the same for every run without a source
}

void Data::check(Batch& batch, int64_t other) const {
  const FieldCheck check = other ? check_.of_length(other) : check_;
  std::vector<void*> values(fields_.size());
  const auto length = static_cast<std::size_t>(other ? other : length_);
  batch.padding = 0;
  for (std::size_t at = 0; at < batch.tokens.size(); at += length) {
    values[0] = batch.tokens.data() + at;
    values[1] = batch.labels.data() + at;
    for (std::size_t f = 2; f < values.size(); ++f) values[f] = batch.others[f - 2].data() + at * sizeof(int32_t);
    check.check(values, "", at / length);
    batch.padding += check.padding(values);
  }
  batch.valid =
      std::count_if(batch.labels.begin(), batch.labels.end(), [](int32_t l) { return l != ENG_IGNORE_LABEL; });
}

double Data::padding() const {
  const double positions = static_cast<double>(info_.train_samples) * static_cast<double>(length_);
  return positions > 0 ? static_cast<double>(info_.padding) / positions : 0;
}

void Data::read(int32_t split, uint64_t position, int64_t rows, Batch& batch, uint64_t end) const {
  const std::lock_guard lock(reading_);
  const std::size_t begin = batch.tokens.size(), n = static_cast<std::size_t>(rows * length_);
  batch.tokens.resize(begin + n, -1);  // what a plugin does not write stays invalid
  batch.labels.resize(begin + n, -1);
  batch.others.resize(fields_.size() - 2);
  for (auto& values : batch.others) values.resize((begin + n) * sizeof(int32_t), '\xff');
  batch.parts.resize(names_.size());
  values_.resize(fields_.size());
  for (int64_t r = 0; r < rows; ++r, ++position) {
    const std::size_t at = begin + static_cast<std::size_t>(r * length_);
    values_[0] = batch.tokens.data() + at;
    values_[1] = batch.labels.data() + at;
    for (std::size_t f = 2; f < values_.size(); ++f) values_[f] = batch.others[f - 2].data() + at * sizeof(int32_t);
    const bool none = split == ENG_SPLIT_VALIDATION && position >= end;
    const Mixture::Place from = place(split, none ? 0 : position);
    Source& source = *sources_[from.source];
    source.read(split, from.position, values_);
    check_.check(values_, source.of().label, none ? position : from.position);
    if (stored_ &&
        !stored_->fill(batch.tokens.data() + at, batch.labels.data() + at, static_cast<float*>(values_[sums_])))
      throw Error(Exit::data,
                  fmt::format("[reference] store was computed from other data: it does not have sample {} of {}",
                              from.position, source.of().where()),
                  "compute it again: engine data reference CONFIG");
    if (none)
      std::fill_n(batch.labels.data() + at, length_, ENG_IGNORE_LABEL);
    else
      batch.padding += check_.padding(values_);
    const int64_t valid =
        length_ - std::count(batch.labels.data() + at, batch.labels.data() + at + length_, ENG_IGNORE_LABEL);
    batch.valid += valid;
    auto divisor = static_cast<double>(valid);
    if (weights_ && source.of().weighted_mean) {
      divisor = 0;
      const auto* weights = static_cast<const float*>(values_[weights_]);
      for (std::size_t t = 0; t < static_cast<std::size_t>(length_); ++t)
        if (batch.labels[at + t] != ENG_IGNORE_LABEL) divisor += double{weights[t]};
    }
    if (weights_) batch.weight = batch.weight.value_or(0.0) + divisor;
    if (names_.empty()) continue;
    batch.parts[from.source].samples += none ? 0 : 1;
    batch.parts[from.source].valid += valid;
    batch.parts[from.source].divisor += divisor;
  }
}

int64_t model_vocabulary(const Config& config, Registry& registry) {
  const Section& model = config.section("model");
  const std::string name = model.string("plugin");
  return describe_model(name, registry.table<eng_model>(ENG_MODEL_KIND, name), model).vocabulary;
}

std::vector<std::string> notes_of(const Config& config, const Data& data, int64_t vocabulary) {
  std::vector<std::string> out;
  const bool follows =
      config.section("checkpoint").boolean("best") || config.section("train").integer("early_stop_patience") > 0;
  if (const int64_t ids = data.info().vocabulary; ids < vocabulary / 2)
    out.push_back(fmt::format("the data have ids below {}, the model has {}: data.tokenizer names a larger vocabulary",
                              ids, vocabulary));
  if (config.section("train").integer("eval_every") > 0 && !data.info().validation_samples)
    out.push_back("train.eval_every has no effect: data.validation holds nothing out" +
                  std::string(follows ? "; nor have checkpoint.best and train.early_stop_patience" : ""));
  if (data.packed())
    out.push_back(fmt::format("packed: {} documents in {} samples; {:.1f} % of the positions are padding",
                              data.info().documents, data.info().train_samples, 100 * data.padding()));
  for (std::string& line : data.mixture_lines()) out.push_back(std::move(line));
  return out;
}

int64_t hash_of(const Batch& batch) {
  Checksum sum;
  const auto add = [&sum](const auto& list) { sum.add(list.data(), list.size() * sizeof(list[0])); };
  add(batch.tokens), add(batch.labels);
  for (const std::vector<char>& values : batch.others) add(values);
  return static_cast<int64_t>(std::stoull(sum.hex().substr(0, 15), nullptr, 16));
}

}  // namespace eng
