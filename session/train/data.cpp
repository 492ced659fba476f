// SPDX-License-Identifier: Apache-2.0
#include "session/train/data.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>

namespace eng {

Data::Data(Registry& registry, const Config& config, int64_t vocabulary) {
  const Section &section = config.section("data"), &train = config.section("train");
  name_ = section.string("plugin");
  length_ = train.integer("sequence_length");
  table_ = registry.table<eng_data>(ENG_DATA_KIND, name_);
  const std::string base = config.base_dir().string();
  const auto seed = static_cast<uint64_t>(train.integer("seed"));
  eng_data_request request{sizeof(eng_data_request), 0, seed, length_, vocabulary, base.c_str()};
  Options options(section);
  Sink sink;
  sink.check(table_.create(options.get(), &request, &self_, sink.get()), Exit::data, "data plugin " + name_);
  info_.struct_size = sizeof(info_);
  vocabulary_ = vocabulary;
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

Data::Data(int64_t sequence_length, int64_t vocabulary) : length_(sequence_length), vocabulary_(vocabulary) {
  info_.struct_size = sizeof(info_);
  info_.vocabulary = vocabulary;
  info_.content_hash[0] = '0';  // the same for every run without a source
}

// Kernels use these as indices without checks.
void Data::check(const int32_t* ids, const char* what, int32_t ignored, uint64_t position) const {
  const auto* end = ids + length_;
  const auto* wrong =
      std::find_if(ids, end, [&](int32_t id) { return (id < 0 || id >= vocabulary_) && id != ignored; });
  if (wrong != end)
    throw Error(Exit::data, fmt::format("{}, sample {}: {} {} is {}, the model has the ids 0 to {}",
                                        name_.empty() ? "the batch" : "data plugin " + name_, position, what,
                                        wrong - ids, *wrong, vocabulary_ - 1));
}

void Data::read(int32_t split, uint64_t position, int64_t rows, Batch& batch) const {
  const std::lock_guard lock(reading_);
  const std::size_t begin = batch.tokens.size(), n = static_cast<std::size_t>(rows * length_);
  batch.tokens.resize(begin + n, -1);  // an id that a plugin does not write stays invalid
  batch.labels.resize(begin + n, -1);
  for (int64_t r = 0; r < rows; ++r, ++position) {
    int32_t* tokens = batch.tokens.data() + begin + static_cast<std::size_t>(r * length_);
    int32_t* labels = batch.labels.data() + begin + static_cast<std::size_t>(r * length_);
    const bool none = split == ENG_SPLIT_VALIDATION && position >= info_.validation_samples;
    Sink sink;
    const eng_status status = table_.read(self_, split, none ? 0 : position, tokens, labels, sink.get());
    if (status != ENG_OK)
      sink.check(status, Exit::data, "data plugin " + name_ + ", sample " + std::to_string(position));
    check(tokens, "token", 0, position);
    check(labels, "label", ENG_IGNORE_LABEL, position);
    if (none) std::fill_n(labels, length_, ENG_IGNORE_LABEL);
  }
  batch.valid += std::count_if(batch.labels.begin() + static_cast<std::ptrdiff_t>(begin), batch.labels.end(),
                               [](int32_t l) { return l != ENG_IGNORE_LABEL; });
}

std::vector<std::string> notes_of(const Config& config, const Data& data, int64_t vocabulary) {
  std::vector<std::string> out;
  if (const int64_t ids = data.info().vocabulary; ids < vocabulary / 2)
    out.push_back(fmt::format("the data have ids below {}, the model has {}: data.tokenizer names a larger vocabulary",
                              ids, vocabulary));
  if (config.section("train").integer("eval_every") > 0 && !data.info().validation_samples)
    out.push_back("train.eval_every has no effect: data.validation holds nothing out");
  return out;
}

}  // namespace eng
