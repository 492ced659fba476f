// SPDX-License-Identifier: Apache-2.0
#include "session/gguf/values.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/base/error.hpp"
#include "session/config/values.hpp"
#include "session/gguf/rope.hpp"
#include "session/huggingface/arrangement.hpp"
#include "session/json.hpp"

namespace eng {
namespace {

std::optional<double> value_as_number(const Value& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return std::nullopt;
}

bool equal(const Value& a, const Value& b) {
  const auto x = value_as_number(a), y = value_as_number(b);
  return x && y ? *x == *y : a == b;
}

// The value of an option, none if it has none.
Value option_value(const std::string& option, const Section& model) {
  return model.has(option) ? model.settings().at(option).value : Value();
}

// The entries of a list of texts, or the letters of a text; none of other values.
std::vector<std::string> entries_of(const Value& value) {
  std::vector<std::string> out;
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) return *list;
  if (const auto* text = std::get_if<std::string>(&value))
    for (const char letter : *text) out.emplace_back(1, letter);
  return out;
}

// True if the option has the value, or the text is one of its entries.
bool has_value(const std::string& option, const Value& wanted, const Section& model) {
  const Value given = option_value(option, model);
  if (equal(given, wanted)) return true;
  const auto* text = std::get_if<std::string>(&wanted);
  const std::vector<std::string> entries = entries_of(given);
  return text && std::count(entries.begin(), entries.end(), *text);
}

bool holds(const std::map<std::string, Value>& where, const Section& model) {
  return std::all_of(where.begin(), where.end(),
                     [&](const auto& one) { return has_value(one.first, one.second, model); });
}

std::optional<double> number_of_term(const GgufTerm& term, const Section& model);

// The value of a term that is computed. None if one of its factors has no value.
std::optional<double> computed(const GgufTerm& term, const Section& model) {
  std::vector<double> factors;
  for (const GgufTerm& factor : term.factors) {
    const std::optional<double> number = number_of_term(factor, model);
    if (!number) return std::nullopt;
    factors.push_back(*number);
  }
  double product = 1;
  for (const double factor : factors) product *= factor;
  switch (term.kind) {
    case GgufTerm::Kind::product:
      return std::trunc(product);
    case GgufTerm::Kind::quotient:
      return std::ceil(factors[0] / factors[1]);
    case GgufTerm::Kind::ratio:
      return factors[0] / factors[1];
    case GgufTerm::Kind::root:
      return std::sqrt(factors[0]);
    case GgufTerm::Kind::least:
      return *std::min_element(factors.begin(), factors.end());
    case GgufTerm::Kind::constant:
    case GgufTerm::Kind::option:
    case GgufTerm::Kind::length:
    case GgufTerm::Kind::entry:
      break;
  }
  return std::nullopt;
}

// None if an option has no value.
Value value_of_term(const GgufTerm& term, const Section& model) {
  if (!holds(term.where, model)) return {};
  if (term.kind == GgufTerm::Kind::constant) return term.constant;
  if (term.kind == GgufTerm::Kind::option) return option_value(term.option, model);
  if (term.kind == GgufTerm::Kind::length) {
    const Value list = option_value(term.option, model);
    return list.index() == 0 ? Value() : Value(static_cast<int64_t>(entries_of(list).size()));
  }
  if (term.kind == GgufTerm::Kind::entry) {
    const Value list = option_value(term.option, model);
    const auto* numbers = std::get_if<std::vector<double>>(&list);
    const auto place = static_cast<size_t>(term.place);
    return numbers && place < numbers->size() ? Value((*numbers)[place]) : Value();
  }
  const std::optional<double> result = computed(term, model);
  if (!result) return {};
  if (term.kind == GgufTerm::Kind::ratio || term.kind == GgufTerm::Kind::root) return *result;
  return static_cast<int64_t>(*result);
}

std::optional<double> number_of_term(const GgufTerm& term, const Section& model) {
  return value_as_number(value_of_term(term, model));
}

const GgufValue* value_of_key(const GgufModel& gguf, const std::string& key) {
  const auto found = std::find_if(gguf.keys.begin(), gguf.keys.end(), [&](const auto& k) { return k.first == key; });
  return found == gguf.keys.end() ? nullptr : &found->second;
}

}  // namespace

Value gguf_value(const GgufValue& value, const Section& model, const std::string& key) {
  for (const GgufTerm& term : value)
    if (Value found = value_of_term(term, model); found.index() != 0) return found;
  throw Error(Exit::usage, fmt::format("[model] has no value for `{}` of a GGUF file", key),
              "correct [provides.gguf] in the plugin's description");
}

namespace {

[[noreturn]] void refuse_value(const std::string& problem) {
  throw Error(Exit::usage, problem, "without a GGUF file, transformers loads the directory that the export writes");
}

void require_fixed(const GgufModel& gguf, const Section& model) {
  for (const auto& [option, supported] : gguf.fixed) {
    const bool has = model.has(option);
    const Json given = has ? Json::parse(toml_text(option_value(option, model))) : Json::object();
    if (std::any_of(supported.begin(), supported.end(),
                    [&](const std::string& text) { return Json::parse(text) == given; }))
      continue;
    std::vector<std::string> told;
    for (const std::string& text : supported) told.push_back(text == Json::object().dump() ? "no value" : text);
    refuse_value(fmt::format("model.{} = {}: llama.cpp computes `{}` only with {}", option,
                             has ? given.dump() : "(no value)", gguf.architecture, fmt::join(told, " or ")));
  }
}

void require_layers(const GgufModel& gguf, const Section& model) {
  for (const auto& [option, layers] : gguf.layers) {
    if (!model.has(option)) continue;
    const Json given = Json::parse(toml_text(option_value(option, model)));
    const int64_t every = static_cast<int64_t>(value_as_number(gguf_value(layers.every, model, option)).value_or(1));
    for (size_t k = 0; k < given.size(); ++k) {
      const bool there = (static_cast<int64_t>(k) + 1) % every == 0;
      const Json wanted = Json::parse(toml_text(there ? layers.there : layers.others));
      if (!(given[k] == wanted))
        refuse_value(
            fmt::format("model.{} has {} for layer {}: llama.cpp computes `{}` only with {} there. Every layer "
                        "with a number that {} divides, counted from 1, must have {}",
                        option, given[k].dump(), k + 1, gguf.architecture, wanted.dump(), every,
                        Json::parse(toml_text(layers.there)).dump()));
    }
  }
}

}  // namespace

GgufModel gguf_for(const GgufModel& gguf, const Section& model) {
  GgufModel out = gguf;
  const auto found = std::find_if(gguf.variants.begin(), gguf.variants.end(),
                                  [&](const GgufVariant& v) { return holds(v.where, model); });
  if (found == gguf.variants.end()) return out;
  if (!found->architecture.empty()) out.architecture = found->architecture;
  out.tensors.insert(out.tensors.begin(), found->tensors.begin(), found->tensors.end());
  out.keys.insert(out.keys.end(), found->keys.begin(), found->keys.end());
  return out;
}

void require_gguf(const GgufModel* gguf, const Section& model) {
  const std::string& plugin = model.string("plugin");
  if (!gguf)
    throw Error(Exit::usage, fmt::format("plugin `{}` does not say what llama.cpp calls its tensors", plugin),
                "it needs [provides.gguf] in its description");
  if (!gguf->none.empty())
    throw Error(Exit::usage, fmt::format("a model of `{}` cannot be a GGUF file: {}", plugin, gguf->none),
                "leave out --format gguf, and give --to a directory: transformers loads it");
  require_fixed(*gguf, model);
  require_layers(*gguf, model);
  for (const auto& [key, value] : gguf->require) {
    const GgufValue* own = value_of_key(*gguf, key);
    const Value given = own ? gguf_value(*own, model, key) : option_value(key, model);
    const Value wanted = gguf_value(value, model, key);
    if (!equal(given, wanted))
      refuse_value(fmt::format("llama.cpp computes `{}` only with {} = {}, and this model has {}", gguf->architecture,
                               key, toml_text(wanted), toml_text(given)));
  }
  if (!gguf->rope.empty()) require_rope(gguf->rope, gguf->architecture, model);
}

double gguf_factor(const std::vector<GgufValue>& by, const Section& model, const std::string& key) {
  double out = 1.0;
  for (const GgufValue& factor : by) out *= value_as_number(gguf_value(factor, model, key)).value_or(1.0);
  return out;
}

std::vector<std::string> gguf_notes(const GgufModel& gguf, const Section& model) {
  std::vector<std::string> out;
  for (const GgufNote& note : gguf.notes)
    if ((note.given.empty() || model.has(note.given)) && holds(note.where, model)) out.push_back(note.text);
  return out;
}

namespace {

std::vector<int32_t> values_by_layer(const GgufByLayer& rule, const Section& model, const std::string& key,
                                     int64_t layers) {
  const auto number = [&](const GgufValue& value) {
    return static_cast<int32_t>(value_as_number(gguf_value(value, model, key)).value_or(0));
  };
  const int32_t is = number(rule.is), others = number(rule.others);
  std::vector<int32_t> out(static_cast<size_t>(layers), others);
  if (!rule.every.empty()) {
    const auto every = std::max(number(rule.every), 1), from = number(rule.from);
    for (size_t k = 0; k < out.size(); ++k)
      if (static_cast<int32_t>(k) % every == from) out[k] = is;
  }
  for (const std::string& option : rule.options) {
    const Value given = option_value(option, model);
    if (const auto* numbers = std::get_if<std::vector<double>>(&given))
      for (const double layer : *numbers)
        if (layer >= 0 && layer < static_cast<double>(layers)) out[static_cast<size_t>(layer)] = is;
    const std::vector<std::string> entries = entries_of(given);
    if (entries.empty()) continue;
    for (size_t k = 0; k < out.size() && k < entries.size(); ++k)
      if (std::count(rule.entries.begin(), rule.entries.end(), entries[k])) out[k] = is;
    break;
  }
  return out;
}

}  // namespace

std::vector<RopeFactors> write_keys(const GgufModel& gguf, const Section& model, GgufHeader& out) {
  for (const auto& [key, value] : gguf.keys) out.value(gguf.architecture + "." + key, gguf_value(value, model, key));
  const GgufValue* layers = value_of_key(gguf, "block_count");
  const auto count = layers ? value_as_number(gguf_value(*layers, model, "block_count")) : std::nullopt;
  for (const auto& [key, rule] : gguf.by_layer)
    out.integers(gguf.architecture + "." + key,
                 values_by_layer(rule, model, key, static_cast<int64_t>(count.value_or(0))));
  if (gguf.rope.empty()) return {};
  const GgufValue* size = value_of_key(gguf, "rope.dimension_count");
  if (!size)
    throw Error(Exit::usage, "`rope.dimension_count` is not among the keys of [provides.gguf], which has `rope`",
                "add it to the plugin's description");
  const auto head_dim = value_as_number(gguf_value(*size, model, "rope.dimension_count"));
  return write_rope(gguf.architecture, model, static_cast<int64_t>(head_dim.value_or(0)), out);
}

std::string gguf_name(const GgufModel& gguf, const std::string& name) {
  const size_t dot = name.rfind('.');
  const std::string front = name.substr(0, std::min(dot, name.size())), last = name.substr(front.size());
  for (const auto& [pattern, to] : gguf.tensors) {
    if (const auto texts = texts_at_stars(pattern, name)) return with_texts(to, *texts);
    if (const auto texts = texts_at_stars(pattern, front); texts && !last.empty()) return with_texts(to, *texts) + last;
  }
  return "";
}

bool names_tensor(const std::string& pattern, const std::string& name) {
  return texts_at_stars(pattern, name) || texts_at_stars(pattern, name.substr(0, name.rfind('.')));
}

}  // namespace eng
