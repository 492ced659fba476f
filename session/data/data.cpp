// SPDX-License-Identifier: Apache-2.0
#include "session/data/data.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "session/data/formats.hpp"

namespace eng {

Data::Data(Registry& registry, const Config& config, int64_t vocabulary, std::vector<Field> fields)
    : name_(config.section("data").string("plugin")),
      length_(config.section("train").integer("sequence_length")),
      fields_(std::move(fields)),
      check_(fields_, length_, vocabulary) {
  const Section &section = config.section("data"), &train = config.section("train");
  table_ = registry.table<eng_data>(ENG_DATA_KIND, name_);
  const std::string base = config.base_dir().string();
  const auto seed = static_cast<uint64_t>(train.integer("seed"));
  std::vector<eng_field> wanted;
  const Offered offered = fields_.size() > 2 ? offered_fields(config, registry, false) : Offered();
  for (std::size_t f = 0; f < fields_.size(); ++f) {
    const auto has = [&](const Field& field) { return field.name == fields_[f].name; };
    const Neutral fill = neutral(fields_[f].name);
    if (fill && std::none_of(offered.fields.begin(), offered.fields.end(), has)) {
      rest_.emplace_back(f, fill);
      continue;
    }
    own_.push_back(f);
    if (fields_[f].name == ENG_FIELD_SEGMENTS) segments_ = f;
    wanted.push_back({fields_[f].name.c_str(), fields_[f].dtype, 0});
  }
  const auto n = static_cast<uint32_t>(wanted.size());
  eng_data_request request{sizeof(eng_data_request), n, seed, length_, vocabulary, base.c_str(), wanted.data()};
  Options options(section);
  Sink sink;
  {
    const FormatsInUse formats(registry, section);
    sink.check(table_.create(options.get(), &request, &self_, sink.get()), Exit::data, "data plugin " + name_);
  }
  info_.struct_size = sizeof(info_);
  object_ = std::shared_ptr<void>(self_, table_.destroy);
  sink.check(table_.describe(self_, &info_, sink.get()), Exit::data, "data plugin " + name_);
  const char* end = std::find(info_.content_hash, std::end(info_.content_hash), '\0');
  const auto hexadecimal = [](unsigned char c) { return std::isxdigit(c) != 0; };
  if (end == info_.content_hash || end == std::end(info_.content_hash) ||
      !std::all_of(static_cast<const char*>(info_.content_hash), end, hexadecimal))
    throw Error(Exit::data,
                fmt::format("data plugin {}: its content_hash is not hexadecimal text that ends in NUL", name_));
  constexpr uint64_t most = uint64_t{1} << 62;
  if ((!info_.train_samples && !info_.validation_samples) || info_.train_samples > most ||
      info_.validation_samples > most)
    throw Error(Exit::data, fmt::format("data plugin {} reports {} training samples and {} held out", name_,
                                        info_.train_samples, info_.validation_samples));
}

Data::Data(int64_t sequence_length, int64_t vocabulary, std::vector<Field> fields)
    : length_(sequence_length), fields_(std::move(fields)), check_(fields_, length_, vocabulary) {
  info_.struct_size = sizeof(info_);
  info_.vocabulary = vocabulary;
  info_.content_hash[0] = '0';  // the same for every run without a source
}

void Data::check(Batch& batch) const {
  std::vector<void*> values(fields_.size());
  const auto length = static_cast<std::size_t>(length_);
  batch.padding = 0;
  for (std::size_t at = 0; at < batch.tokens.size(); at += length) {
    values[0] = batch.tokens.data() + at;
    values[1] = batch.labels.data() + at;
    for (std::size_t f = 2; f < values.size(); ++f) values[f] = batch.others[f - 2].data() + at * sizeof(int32_t);
    check_.check(values, "", at / length);
    batch.padding += check_.padding(values);
  }
  batch.valid =
      std::count_if(batch.labels.begin(), batch.labels.end(), [](int32_t l) { return l != ENG_IGNORE_LABEL; });
}

double Data::padding() const {
  const double positions = static_cast<double>(info_.train_samples) * static_cast<double>(length_);
  return positions > 0 ? static_cast<double>(info_.padding) / positions : 0;
}

void Data::read(int32_t split, uint64_t position, int64_t rows, Batch& batch) const {
  const std::lock_guard lock(reading_);
  const std::size_t begin = batch.tokens.size(), n = static_cast<std::size_t>(rows * length_);
  batch.tokens.resize(begin + n, -1);  // what a plugin does not write stays invalid
  batch.labels.resize(begin + n, -1);
  batch.others.resize(fields_.size() - 2);
  for (auto& values : batch.others) values.resize((begin + n) * sizeof(int32_t), '\xff');
  values_.resize(fields_.size());
  wanted_.resize(own_.size());
  for (int64_t r = 0; r < rows; ++r, ++position) {
    const std::size_t at = begin + static_cast<std::size_t>(r * length_);
    values_[0] = batch.tokens.data() + at;
    values_[1] = batch.labels.data() + at;
    for (std::size_t f = 2; f < values_.size(); ++f) values_[f] = batch.others[f - 2].data() + at * sizeof(int32_t);
    const bool none = split == ENG_SPLIT_VALIDATION && position >= info_.validation_samples;
    Sink sink;
    for (std::size_t k = 0; k < own_.size(); ++k) wanted_[k] = values_[own_[k]];
    const eng_status status = table_.read(self_, split, none ? 0 : position, wanted_.data(), sink.get());
    if (status != ENG_OK)
      sink.check(status, Exit::data, "data plugin " + name_ + ", sample " + std::to_string(position));
    for (const auto& [f, fill] : rest_)
      fill(length_, segments_ ? static_cast<const int32_t*>(values_[segments_]) : nullptr, values_[f]);
    check_.check(values_, name_, position);
    if (none)
      std::fill_n(batch.labels.data() + at, length_, ENG_IGNORE_LABEL);
    else
      batch.padding += check_.padding(values_);
  }
  batch.valid += std::count_if(batch.labels.begin() + static_cast<std::ptrdiff_t>(begin), batch.labels.end(),
                               [](int32_t l) { return l != ENG_IGNORE_LABEL; });
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
  return out;
}

}  // namespace eng
