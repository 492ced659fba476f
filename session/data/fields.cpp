// SPDX-License-Identifier: Apache-2.0
#include "session/data/fields.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/text.hpp"
#include "engine/data.h"
#include "session/config/spelling.hpp"
#include "session/data/stored_reference.hpp"

namespace eng {
namespace {

template <class Fields>
size_t index_of(const Fields& fields, const std::string& name) {
  const auto at = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == name; });
  return static_cast<size_t>(at - fields.begin());
}

bool is_name(const std::string& name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto inner = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-'; };
  return !name.empty() && name.size() <= 64 && letter(name[0]) && std::all_of(name.begin(), name.end(), inner);
}

// The fault in a field that a source says it provides; "" if there is none.
std::string wrong_with(const eng_field& field, std::set<std::string>& seen) {
  if (!field.name || !is_name(field.name))
    return fmt::format("the name of a field is `{}`", field.name ? printable(field.name) : "(null)");
  const std::string name = field.name;
  if (!seen.insert(name).second) return "the field `" + name + "` is listed twice, or needs no listing";
  if (field.dtype != ENG_I32 && field.dtype != ENG_F32)
    return fmt::format("the field `{}` has dtype {}; i32 and f32 are possible", name, field.dtype);
  const bool counts = name == ENG_FIELD_SEGMENTS || name == ENG_FIELD_POSITIONS, factor = is_weight(name);
  if ((counts && field.dtype != ENG_I32) || (factor && field.dtype != ENG_F32))
    return fmt::format("the field `{}` must be {}", name, counts ? "i32" : "f32");
  return "";
}

// Samples of all sources go into the same batches.
void need_alike(const std::vector<DataSource>& sources, const std::vector<std::vector<Field>>& fields) {
  const auto refuse = [](const std::string& what, const std::string& help) {
    throw Error(Exit::usage, "[[data.sources]]: " + what, help);
  };
  for (std::size_t a = 0; a < sources.size(); ++a)
    for (std::size_t b = 0; b < sources.size(); ++b) {
      if (sources[a].group > sources[b].group)
        refuse(fmt::format("samples of {} belong together, {} at a time, and those of {} do not", sources[a].where(),
                           sources[a].group, sources[b].where()),
               "train on one of them at a time");
      for (const Field& field : fields[a]) {
        const size_t at = index_of(fields[b], field.name);
        const bool there = at < fields[b].size();
        if (there && fields[b][at].dtype == field.dtype) continue;
        if (!there && field.name == ENG_FIELD_LOSS_WEIGHTS) continue;  // 1 everywhere is what it means
        refuse(fmt::format("{} provides the field `{}`, and {} {}", sources[a].where(), field.name, sources[b].where(),
                           there ? "has another type for it" : "does not"),
               field.name == ENG_FIELD_SEGMENTS
                   ? "set `pack` to the same value for all: write it into [data], above the sources"
                   : "give the sources options with which they provide the same fields, or leave one out");
      }
    }
}

}  // namespace

bool is_weight(const std::string& field) {
  return field == ENG_FIELD_LOSS_WEIGHTS || field == pair_weights;
}

std::vector<Field> provided_fields(const DataSource& source, const std::string& by) {
  if (!source.table.fields) return {};
  eng_field fields[ENG_MAX_FIELDS] = {};
  uint32_t n = 0;
  const Options options(source.section);
  Sink sink;
  sink.check(source.table.fields(options.get(), fields, ENG_MAX_FIELDS, &n, sink.get()), Exit::usage, by);
  const auto refuse = [&](const std::string& wrong) {
    throw Error(Exit::environment, fmt::format("{}: {}", source.where(), wrong));
  };
  if (n > ENG_MAX_FIELDS) refuse(fmt::format("it lists {} fields, the limit is {}", n, ENG_MAX_FIELDS));
  std::set<std::string> seen = {ENG_FIELD_TOKENS, ENG_FIELD_LABELS};
  std::vector<Field> out;
  for (uint32_t k = 0; k < n; ++k) {
    if (const std::string wrong = wrong_with(fields[k], seen); !wrong.empty()) refuse(wrong);
    out.push_back({fields[k].name, fields[k].dtype});
  }
  return out;
}

Offered offered_fields(const Config& config, Registry& registry, bool generate) {
  Offered out;
  if (!config.has_data()) return out.by = "a configuration without [data]", out;
  const std::vector<DataSource> sources = data_sources(config, registry);
  const char* const prefix = generate ? "in generation " : "";
  out.by = prefix + (sources.size() > 1 ? "each of [[data.sources]]" : sources[0].where());
  std::vector<std::vector<Field>> of_each;
  for (const DataSource& source : sources) of_each.push_back(provided_fields(source, prefix + source.where()));
  if (sources.size() > 1) need_alike(sources, of_each);
  for (const auto& fields : of_each)
    for (const Field& field : fields) {
      const bool trains =
          field.name == ENG_FIELD_SEGMENTS || field.name == ENG_FIELD_POSITIONS || is_weight(field.name);
      const bool there = index_of(out.fields, field.name) < out.fields.size();
      if (!there && (!generate || !trains)) out.fields.push_back(field);
    }
  return out;
}

bool has_weighted_mean(const Config& config, Registry& registry) {
  if (!config.has_data()) return false;
  for (const DataSource& source : data_sources(config, registry))
    for (const Field& field : provided_fields(source, source.where()))
      if (source.weighted_mean && is_weight(field.name)) return true;
  return false;
}

Neutral neutral(const std::string& field) {
  if (field == ENG_FIELD_LOSS_WEIGHTS)
    return [](int64_t length, const int32_t*, void* values) { std::fill_n(static_cast<float*>(values), length, 1.0F); };
  if (field == reference_sums)
    return [](int64_t length, const int32_t*, void* values) { std::fill_n(static_cast<float*>(values), length, 0.0F); };
  if (field == ENG_FIELD_SEGMENTS)
    return [](int64_t length, const int32_t*, void* values) { std::fill_n(static_cast<int32_t*>(values), length, 0); };
  if (field == ENG_FIELD_POSITIONS)
    return [](int64_t length, const int32_t* segments, void* values) {
      auto* at = static_cast<int32_t*>(values);
      for (int64_t t = 0; t < length; ++t)
        at[t] = t && (!segments || segments[t] == segments[t - 1]) ? at[t - 1] + 1 : 0;
    };
  return nullptr;
}

void add_fields(Offered& offered, const std::vector<std::string>& asked) {
  const std::vector<Field> possible = {
      {ENG_FIELD_LOSS_WEIGHTS, ENG_F32}, {ENG_FIELD_SEGMENTS, ENG_I32}, {ENG_FIELD_POSITIONS, ENG_I32}};
  for (const std::string& name : asked) {
    const size_t at = index_of(possible, name);
    if (at == possible.size()) {
      std::vector<std::string> names;
      for (const Field& field : possible) names.push_back(field.name);
      const auto near = nearest(name, names);
      throw Error(Exit::usage, fmt::format("`{}` is no field that batches may bring", printable(name, 80)),
                  fmt::format("{}possible are {}; tokens and labels need no name",
                              near.empty() ? "" : fmt::format("did you mean `{}`? ", near[0]), fmt::join(names, ", ")));
    }
    if (index_of(offered.fields, name) == offered.fields.size()) offered.fields.push_back(possible[at]);
  }
}

void need_fields(const std::vector<std::string>& asked, const Model& model) {
  for (const std::string& name : asked)
    if (index_of(model.fields, name) == model.fields.size())
      throw Error(Exit::usage,
                  fmt::format("model {} does not read the field `{}`, which batches are to bring", model.plugin, name),
                  "leave it out of the list of fields");
}

void compare_fields(const Offered& offered, const Model& model, const Config& config, std::vector<std::string>& notes) {
  const auto reads = [&](const std::string& name) { return index_of(model.fields, name) < model.fields.size(); };
  for (const Field& field : offered.fields) {
    if (reads(field.name)) continue;
    if (field.name == ENG_FIELD_SEGMENTS) {
      const Section& data = config.section("data");
      const bool pack = data.settings().count("pack") && data.has("pack");
      throw Error(Exit::usage,
                  fmt::format("{} packs several documents into a sample (field `segments`), and model {} does not read "
                              "it: documents would see each other",
                              offered.by, model.plugin),
                  fmt::format("{}a model that reads `segments`, such as llama, opt or mamba",
                              pack ? "data.pack = false, or " : "data without `segments`, or "));
    }
    if (field.name == ENG_FIELD_POSITIONS && reads(ENG_FIELD_SEGMENTS)) continue;  // the model has no positions
    notes.push_back(
        fmt::format("{} provides the field `{}`, which model {} does not read", offered.by, field.name, model.plugin));
  }
}

FieldCheck::FieldCheck(std::vector<Field> fields, int64_t length, int64_t vocabulary)
    : fields_(std::move(fields)),
      length_(length),
      vocabulary_(vocabulary),
      segments_(index_of(fields_, ENG_FIELD_SEGMENTS)),
      positions_(index_of(fields_, ENG_FIELD_POSITIONS)) {}

void FieldCheck::check(std::span<void* const> values, const std::string& source, uint64_t position) const {
  const auto where = [&] {
    return source.empty() ? fmt::format("the batch, sample {}", position)
                          : fmt::format("data plugin {}, sample {}", source, position);
  };
  const auto ints = [&](size_t field) { return static_cast<const int32_t*>(values[field]); };
  const auto ids = [&](size_t field, int64_t limit, bool ignores) {
    const int32_t *first = ints(field), *end = first + length_;
    const auto* wrong = std::find_if(
        first, end, [&](int32_t id) { return (id < 0 || id >= limit) && !(ignores && id == ENG_IGNORE_LABEL); });
    if (wrong == end) return;
    const std::string what = field == 0 ? "token" : field == 1 ? "label" : "value of `" + fields_[field].name + "`";
    throw Error(Exit::data, fmt::format("{}: {} {} is {}, the model has the ids 0 to {}", where(), what, wrong - first,
                                        *wrong, limit - 1));
  };
  ids(0, vocabulary_, false);
  ids(1, vocabulary_, true);
  const int32_t* segments = packed() ? ints(segments_) : nullptr;
  const auto refuse = [&](const char* field, int64_t t, int32_t value, const char* why) {
    throw Error(Exit::data, fmt::format("{}: {} {} is {}, {}", where(), field, t, value, why));
  };
  for (int64_t t = 0; segments && t < length_; ++t) {
    if (segments[t] < ENG_PADDING_SEGMENT) refuse("segment", t, segments[t], "documents are numbered from 0");
    if (segments[t] == ENG_PADDING_SEGMENT && ints(1)[t] != ENG_IGNORE_LABEL)
      refuse("label", t, ints(1)[t], "but the position is padding");
  }
  for (int64_t t = 0; positions_ < fields_.size() && t < length_; ++t) {
    const int32_t at = ints(positions_)[t], before = t ? ints(positions_)[t - 1] : -1;
    const bool starts = !t || (segments ? segments[t] != segments[t - 1] : at == 0);
    if (starts && at != 0) refuse("position", t, at, "a document starts at 0");
    if (!starts && at != before + 1) refuse("position", t, at, "a document counts up by 1");
  }
  for (size_t f = 2; f < fields_.size(); ++f) {
    const Field& field = fields_[f];
    if (field.limit && f != positions_) ids(f, field.limit, field.ignores);
    if (!is_weight(field.name)) continue;
    const auto* weights = static_cast<const float*>(values[f]);
    for (int64_t t = 0; t < length_; ++t)
      if (!std::isfinite(weights[t]) || weights[t] < 0)
        throw Error(Exit::data, fmt::format("{}: loss weight {} is {}, which is no finite factor of at least 0",
                                            where(), t, weights[t]));
  }
}

int64_t FieldCheck::padding(std::span<void* const> values) const {
  if (!packed()) return 0;
  const auto* segments = static_cast<const int32_t*>(values[segments_]);
  return std::count(segments, segments + length_, ENG_PADDING_SEGMENT);
}

}  // namespace eng
