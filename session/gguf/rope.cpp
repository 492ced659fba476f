// SPDX-License-Identifier: Apache-2.0
#include "session/gguf/rope.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"

namespace eng {
namespace {

constexpr double two_pi = 6.283185307179586476925286766559;

double number_or(const Section& model, const char* option, double fallback) {
  return model.has(option) ? model.number(option) : fallback;
}

// Llama 3.1: frequencies with few turns over the original length are divided by the factor, those with many are not,
// and between them the two are mixed.
float llama3_divisor(const Section& model, double frequency, double original) {
  const double factor = model.number("rope_factor"), low = model.number("rope_low_freq_factor"),
               high = model.number("rope_high_freq_factor");
  const double turns = original * frequency / two_pi;
  if (turns > high) return 1;
  if (turns < low) return static_cast<float>(factor);
  const double keep = (turns - low) / (high - low);
  return static_cast<float>(1 / ((1 - keep) / factor + keep));
}

bool is_longrope(const std::string& type) {
  return type == "longrope" || type == "su";
}

// Two names: phi3 has the option without scaling too.
double original_positions(const Section& model, double most) {
  const bool own = model.settings().count("original_max_position_embeddings") != 0;
  return number_or(model, own ? "original_max_position_embeddings" : "rope_original_max_position_embeddings", most);
}

RopeFactors listed_divisors(const char* name, const Section& model, const char* option, int64_t head_dim) {
  if (!model.has(option) || model.as<std::vector<double>>(option).size() != static_cast<size_t>(head_dim / 2))
    throw Error(Exit::usage, fmt::format("model.{} must have {} numbers, one for each frequency", option, head_dim / 2),
                "correct [model]");
  const auto& given = model.as<std::vector<double>>(option);
  return {name, std::vector<float>(given.begin(), given.end())};
}

}  // namespace

void require_rope(const std::vector<std::string>& known, const std::string& architecture, const Section& model) {
  const std::string& type = model.string("rope_type");
  if (std::find(known.begin(), known.end(), type) == known.end())
    throw Error(Exit::usage,
                fmt::format("model.rope_type = \"{}\": llama.cpp computes `{}` only with {}", type, architecture,
                            fmt::join(known, ", ")),
                "without a GGUF file, transformers loads the directory that the export writes");
}

std::vector<RopeFactors> write_rope(const std::string& architecture, const Section& model, int64_t head_dim,
                                    GgufHeader& out) {
  const std::string prefix = architecture + ".rope.", scaling = prefix + "scaling.";
  const std::string& type = model.string("rope_type");
  const double theta = model.number("rope_theta"), most = model.number("max_position_embeddings"),
               original = original_positions(model, most), factor = number_or(model, "rope_factor", most / original);
  out.real(prefix + "freq_base", static_cast<float>(theta));
  if (type == "linear" || type == "yarn") {
    out.text(scaling + "type", type);
    out.real(scaling + "factor", static_cast<float>(factor));
  }
  if (type == "yarn") {
    out.number(scaling + "original_context_length", static_cast<uint32_t>(original));
    out.real(scaling + "yarn_beta_fast", static_cast<float>(model.number("rope_beta_fast")));
    out.real(scaling + "yarn_beta_slow", static_cast<float>(model.number("rope_beta_slow")));
    // llama.cpp multiplies cos and sin by 0.1 ln(factor) + 1, and by this.
    if (model.has("rope_attention_factor"))
      out.real(scaling + "attn_factor",
               static_cast<float>(model.number("rope_attention_factor") / (0.1 * std::log(factor) + 1)));
  }
  if (is_longrope(type)) {
    const double formula = factor > 1 ? std::sqrt(1 + std::log(factor) / std::log(original)) : 1;
    out.number(scaling + "original_context_length", static_cast<uint32_t>(original));
    out.real(scaling + "attn_factor", static_cast<float>(number_or(model, "rope_attention_factor", formula)));
    return {listed_divisors("rope_factors_long.weight", model, "rope_long_factor", head_dim),
            listed_divisors("rope_factors_short.weight", model, "rope_short_factor", head_dim)};
  }
  if (type != "llama3") return {};
  RopeFactors mixed{"rope_freqs.weight", {}};
  for (int64_t j = 0; j < head_dim / 2; ++j)
    mixed.divisors.push_back(llama3_divisor(
        model, std::pow(theta, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim)), original));
  return {mixed};
}

}  // namespace eng
