// SPDX-License-Identifier: Apache-2.0
#include "session/data/source.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>

#include "session/data/formats.hpp"

namespace eng {

Source::Source(Registry& registry, const Config& config, const DataSource& of, int64_t vocabulary,
               const std::vector<Field>& fields)
    : of_(of), length_(config.section("train").integer("sequence_length")) {
  const std::string base = config.base_dir().string();
  const auto seed = static_cast<uint64_t>(config.section("train").integer("seed"));
  std::vector<eng_field> wanted;
  const std::vector<Field> provided = fields.size() > 2 ? provided_fields(of_, of_.where()) : std::vector<Field>();
  for (std::size_t f = 0; f < fields.size(); ++f) {
    const auto has = [&](const Field& field) { return field.name == fields[f].name; };
    const Neutral fill = neutral(fields[f].name);
    if (fill && std::none_of(provided.begin(), provided.end(), has)) {
      rest_.emplace_back(f, fill);
      continue;
    }
    own_.push_back(f);
    if (fields[f].name == ENG_FIELD_SEGMENTS) segments_ = f;
    wanted.push_back({fields[f].name.c_str(), fields[f].dtype, 0});
  }
  wanted_.resize(own_.size());
  const auto n = static_cast<uint32_t>(wanted.size());
  eng_data_request request{sizeof(eng_data_request), n, seed, length_, vocabulary, base.c_str(), wanted.data()};
  Options options(of_.section);
  Sink sink;
  {
    const FormatsInUse formats(registry, of_.section);
    sink.check(of_.table.create(options.get(), &request, &self_, sink.get()), Exit::data, of_.where());
  }
  info_.struct_size = sizeof(info_);
  object_ = std::shared_ptr<void>(self_, of_.table.destroy);
  sink.check(of_.table.describe(self_, &info_, sink.get()), Exit::data, of_.where());
  const char* end = std::find(info_.content_hash, std::end(info_.content_hash), '\0');
  const auto hexadecimal = [](unsigned char c) { return std::isxdigit(c) != 0; };
  if (end == info_.content_hash || end == std::end(info_.content_hash) ||
      !std::all_of(static_cast<const char*>(info_.content_hash), end, hexadecimal))
    throw Error(Exit::data, fmt::format("{}: its content_hash is not hexadecimal text that ends in NUL", of_.where()));
  constexpr uint64_t most = uint64_t{1} << 62;
  if ((!info_.train_samples && !info_.validation_samples) || info_.train_samples > most ||
      info_.validation_samples > most)
    throw Error(Exit::data, fmt::format("{} reports {} training samples and {} held out", of_.where(),
                                        info_.train_samples, info_.validation_samples));
}

void Source::read(int32_t split, uint64_t position, std::span<void* const> values) {
  for (std::size_t k = 0; k < own_.size(); ++k) wanted_[k] = values[own_[k]];
  Sink sink;
  const eng_status status = of_.table.read(self_, split, position, wanted_.data(), sink.get());
  if (status != ENG_OK) sink.check(status, Exit::data, of_.where() + ", sample " + std::to_string(position));
  for (const auto& [f, fill] : rest_)
    fill(length_, segments_ ? static_cast<const int32_t*>(values[segments_]) : nullptr, values[f]);
}

}  // namespace eng
