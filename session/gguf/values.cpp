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

std::optional<double> as_number(const Value& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  return std::nullopt;
}

// None if an option has no value.
std::optional<Value> value_of_term(const GgufTerm& term, const Section& model) {
  std::vector<Value> factors;
  for (const auto& factor : term.factors)
    if (const auto* option = std::get_if<std::string>(&factor)) {
      if (!model.has(*option)) return std::nullopt;
      factors.push_back(model.settings().at(*option).value);
    } else {
      factors.push_back(std::get<Value>(factor));
    }
  if (term.kind == GgufTerm::Kind::value) return factors[0];
  double result = 1;
  for (size_t k = 0; k < factors.size(); ++k) {
    const std::optional<double> factor = as_number(factors[k]);
    if (!factor) return std::nullopt;
    result = k == 1 && term.kind == GgufTerm::Kind::quotient ? std::ceil(result / *factor) : result * *factor;
  }
  return Value(static_cast<int64_t>(result));
}

bool equal(const Value& a, const Value& b) {
  const auto x = as_number(a), y = as_number(b);
  return x && y ? *x == *y : a == b;
}

const GgufValue* value_of_key(const GgufModel& gguf, const std::string& key) {
  const auto found = std::find_if(gguf.keys.begin(), gguf.keys.end(), [&](const auto& k) { return k.first == key; });
  return found == gguf.keys.end() ? nullptr : &found->second;
}

}  // namespace

Value gguf_value(const GgufValue& value, const Section& model, const std::string& key) {
  for (const GgufTerm& term : value)
    if (const auto found = value_of_term(term, model)) return *found;
  throw Error(Exit::usage, fmt::format("[model] has no value for `{}` of a GGUF file", key),
              "correct [provides.gguf] in the plugin's description");
}

void require_gguf(const GgufModel* gguf, const Section& model) {
  const std::string& plugin = model.string("plugin");
  if (!gguf)
    throw Error(Exit::usage, fmt::format("plugin `{}` does not say what llama.cpp calls its tensors", plugin),
                "it needs [provides.gguf] in its description");
  if (!gguf->none.empty())
    throw Error(Exit::usage, fmt::format("a model of `{}` cannot be a GGUF file: {}", plugin, gguf->none),
                "leave out --format gguf, and give --to a directory: transformers loads it");
  for (const auto& [option, supported] : gguf->fixed) {
    const Value& value = model.settings().at(option).value;
    const Json given = model.has(option) ? Json::parse(toml_text(value)) : Json();
    if (std::none_of(supported.begin(), supported.end(),
                     [&](const std::string& text) { return Json::parse(text) == given; }))
      throw Error(Exit::usage,
                  fmt::format("model.{} = {}: llama.cpp computes `{}` only with {}", option, given.dump(),
                              gguf->architecture, fmt::join(supported, " or ")),
                  "without a GGUF file, transformers loads the directory that the export writes");
  }
  for (const auto& [key, value] : gguf->require) {
    const GgufValue* own = value_of_key(*gguf, key);
    const Value given = own ? gguf_value(*own, model, key) : Value();
    const Value wanted = gguf_value(value, model, key);
    if (!equal(given, wanted))
      throw Error(Exit::usage,
                  fmt::format("llama.cpp computes `{}` only with {} = {}, and this model has {}", gguf->architecture,
                              key, toml_text(wanted), toml_text(given)),
                  "without a GGUF file, transformers loads the directory that the export writes");
  }
  if (!gguf->rope.empty()) require_rope(gguf->rope, gguf->architecture, model);
}

std::vector<float> write_keys(const GgufModel& gguf, const Section& model, GgufHeader& out) {
  for (const auto& [key, value] : gguf.keys) out.value(gguf.architecture + "." + key, gguf_value(value, model, key));
  if (gguf.rope.empty()) return {};
  const GgufValue* size = value_of_key(gguf, "rope.dimension_count");
  if (!size)
    throw Error(Exit::usage, "`rope.dimension_count` is not among the keys of [provides.gguf], which has `rope`",
                "add it to the plugin's description");
  const auto head_dim = as_number(gguf_value(*size, model, "rope.dimension_count"));
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
