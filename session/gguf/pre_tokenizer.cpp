// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/base/error.hpp"
#include "session/gguf/vocabulary.hpp"

namespace eng {
namespace {

// Steps of a pre-tokenizer as texts: "split " with a pattern, "words" is ByteLevel with GPT-2's pattern, "bytes"
// without.
struct KnownSteps {
  const char* name;
  bool ignore_merges;  // llama.cpp takes a whole word that is a token without merging
  std::vector<std::string> steps;
};

const std::vector<KnownSteps>& known_steps() {
  static const std::string line = R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                           line_or_path = R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
                           short_forms = "(?i:'s|'t|'re|'ve|'m|'ll|'d)", letters = R"(|[^\r\n\p{L}\p{N}]?\p{L}+|)",
                           low = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)",
                           high = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)";
  static const std::string llama3 = "split " + short_forms + letters + R"(\p{N}{1,3}|)" + line;
  static const std::vector<KnownSteps> all = {
      {"gpt-2", false, {"words"}},
      {"smollm", false, {"digit", "words"}},
      {"llama-bpe", true, {llama3, "bytes"}},
      {"smaug-bpe", false, {llama3, "bytes"}},
      {"qwen2", false, {"split " + short_forms + letters + R"(\p{N}|)" + line, "bytes"}},
      {"tekken", true, {"split " + low + "|" + high + R"(|\p{N}|)" + line_or_path, "bytes"}},
      {"gpt-4o",
       false,
       {"split " + low + short_forms + "?|" + high + short_forms + R"(?|\p{N}{1,3}|)" + line_or_path, "bytes"}}};
  return all;
}

bool flag_of(const Json& step, const char* key, bool fallback) {
  const Json* found = step.find(key);
  return found && found->is_boolean() ? found->boolean() : fallback;
}

std::string step_text(const Json& step, const std::string& where) {
  const std::string type = step.text_at("type");
  if (type == "ByteLevel") {
    if (flag_of(step, "add_prefix_space", true))
      throw Error(Exit::usage, where + ": llama.cpp puts no space before a text, as add_prefix_space = true asks for",
                  "a GGUF file of this tokenizer would give other ids");
    return flag_of(step, "use_regex", true) ? "words" : "bytes";
  }
  if (type == "Digits" && flag_of(step, "individual_digits", false)) return "digit";
  if (type == "Split") {
    const std::string behaviour = step.text_at("behavior"), pattern = step.get("pattern").text_at("Regex");
    const bool invert = flag_of(step, "invert", false);
    // Nothing lies between the matches of a pattern that matches every character, so nothing is removed there.
    if (!pattern.empty() && behaviour == (invert ? "Removed" : "Isolated")) return "split " + pattern;
  }
  return type;
}

void add_steps(const Json& step, const std::string& where, std::vector<std::string>& out) {
  const Json& list = step.get("pretokenizers");
  if (step.text_at("type") == "Sequence" && list.is_array())
    for (const Json& one : list.list()) add_steps(one, where, out);
  else if (!step.is_null())
    out.push_back(step_text(step, where));
}

}  // namespace

std::string pre_tokenizer_name(const Json& pre_tokenizer, bool ignore_merges, const std::string& where) {
  std::vector<std::string> steps;
  add_steps(pre_tokenizer, where, steps);
  bool other = false;
  for (const KnownSteps& known : known_steps()) {
    if (known.steps != steps) continue;
    if (known.ignore_merges == ignore_merges) return known.name;
    other = true;
  }
  if (other)
    throw Error(Exit::usage,
                fmt::format("{}: llama.cpp splits texts like this pre-tokenizer only with model.ignore_merges = {}",
                            where, !ignore_merges),
                "a GGUF file of this tokenizer would give other ids");
  throw Error(Exit::usage,
              fmt::format("{}: llama.cpp has no name for this pre-tokenizer, as far as the engine knows: {}", where,
                          steps.empty() ? "there is none" : fmt::format("{}", fmt::join(steps, ", "))),
              "a GGUF file of this tokenizer would give other ids; known are those of GPT-2, SmolLM, Llama 3, Qwen 2, "
              "Tekken and GPT-4o");
}

}  // namespace eng
