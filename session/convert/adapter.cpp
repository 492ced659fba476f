// SPDX-License-Identifier: Apache-2.0
// Adapters (LoRA), and frozen weights in 4 bits beside them (QLoRA), of axolotl, LLaMA-Factory and TRL. All three pass
// these settings on to PEFT and bitsandbytes.
#include <algorithm>
#include <cctype>

#include "session/config/foreign.hpp"
#include "session/config/spelling.hpp"
#include "session/convert/job.hpp"
#include "session/convert/words.hpp"

namespace eng::converter {
namespace {

constexpr const char* idle_text = "without adapters they have no effect";  // of the tables

// The names and defaults of a trainer. No default: the key must be given.
struct Names {
  const char *trainer, *rank, *targets, *root, *dora, *start;
  std::optional<int64_t> of_rank;
  double dropout;
};
const Names trainers[] = {
    {"axolotl", "lora_r", "lora_target_modules", "peft_use_rslora", "peft_use_dora", "lora_model_dir", {}, 0.0},
    {"llamafactory", "lora_rank", "lora_target", "use_rslora", "use_dora", "adapter_name_or_path", 8, 0.0},
    {"trl", "lora_r", "lora_target_modules", "use_rslora", "use_dora", "", 16, 0.05}};

class Adapter {
 public:
  Adapter(Job& job, const Names& names) : job_(job), names_(names) {}

  // The setting that asks for LoRA; none if nothing does. It is not used yet.
  std::optional<Entry> asked() const {
    const bool factory = job_.trainer == "llamafactory", axolotl = job_.trainer == "axolotl";
    const char* const key = factory ? "finetuning_type" : axolotl ? "adapter" : "use_peft";
    const Entry* given = job_.flat.find(key);
    if (!given && factory) return Entry{std::string("lora"), "", "LLaMA-Factory's default of finetuning_type"};
    if (!given) return std::nullopt;
    const std::string word = lower_case(as_text(given->value));
    const bool lora = factory ? word == "lora" : axolotl ? word == "lora" || word == "qlora" : is_on(*given);
    if (!lora) return std::nullopt;
    return *given;
  }

  void write(const Entry& asked) {
    for (const char* key : {"finetuning_type", "adapter", "use_peft"}) job_.flat.take(key);
    if (!job_.out.exists("adapter", "lora"))
      return job_.out.problem(fmt::format("`{}`: there is no transform `lora` here", asked.origin));
    job_.out.set("adapter.plugin", std::string("lora"), asked);
    targets(asked);
    sizes();
    if (const Entry* root = job_.flat.take(names_.root); root && is_on(*root))
      job_.out.set("adapter.rslora", true, *root);
    if (const Entry* dora = job_.flat.take(names_.dora); dora && is_on(*dora))
      job_.out.set("adapter.dora", true, *dora);
    init();
    four_bits(asked);
    start(asked);
    others();
  }

 private:
  static bool is_on(const Entry& entry) { return as_flag(entry.value) == std::optional(true); }

  static bool is_off(const Value& value) {
    const auto* words = std::get_if<std::vector<std::string>>(&value);
    const std::string word = lower_case(as_text(value));
    return value.index() == 0 || as_flag(value) == std::optional(false) || as_number(value) == std::optional(0.0) ||
           (words && words->empty()) || (value.index() == 4 && (word.empty() || word == "none"));
  }

  void problem(const Entry& entry, const std::string& why) {
    job_.out.problem(fmt::format("`{}` = {}: {}", entry.origin, shown(entry), why));
  }

  // "*.q_proj" for q_proj. PEFT takes a list of names, or one regular expression.
  void targets(const Entry& asked) {
    const Entry* given = job_.flat.take(names_.targets);
    const Entry* linear = job_.trainer == "axolotl" ? job_.flat.take("lora_target_linear") : nullptr;
    const bool every = linear && is_on(*linear);
    if (!every && (!given || is_off(given->value))) return no_targets(asked);
    std::vector<std::string> words, patterns;
    if (every && (!given || is_off(given->value)))
      return static_cast<void>(job_.out.set("adapter.targets", all(), *linear));
    if (const auto* list = std::get_if<std::vector<std::string>>(&given->value)) words = *list;
    std::string word;
    for (char c : as_text(given->value) + ",") {
      if (c != ',' && c != ' ') word += c;
      if ((c == ',' || c == ' ') && !word.empty()) words.push_back(std::exchange(word, ""));
    }
    if (every) {  // there, those that are named besides
      for (const char* outside : {"embed_tokens", "lm_head"})
        if (among(words, outside)) return problem(*given, "lora_target_linear means the maps of the layers alone");
      return static_cast<void>(job_.out.set("adapter.targets", all(), *linear));
    }
    for (const std::string& one : words) {
      if (one == "all-linear" || one == "all") {
        if (words.size() > 1) return problem(*given, "all linear maps and some of them are both given");
        return static_cast<void>(job_.out.set("adapter.targets", all(), *given));
      }
      if (!std::all_of(one.begin(), one.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; }))
        return problem(*given, "a regular expression is not converted: give the names of the maps");
      if (one == "c_attn")
        of_gpt2(patterns);
      else
        patterns.push_back("*." + one);
    }
    if (patterns.empty()) return problem(*given, "it must be names of maps");
    job_.out.set("adapter.targets", patterns, *given);
  }

  // GPT-2's q, k and v, which PEFT takes as one map.
  void of_gpt2(std::vector<std::string>& patterns) {
    for (const char* map : {"*.attn.q", "*.attn.k", "*.attn.v"}) patterns.push_back(map);
    job_.out.note("c_attn is q, k and v here: each has a path of this rank, where PEFT has one A for the three");
  }

  static Value all() { return std::vector<std::string>{"all-linear"}; }

  void no_targets(const Entry& asked) {
    if (job_.trainer == "llamafactory")
      return static_cast<void>(job_.out.set("adapter.targets", all(), "LLaMA-Factory's default of lora_target"));
    if (job_.trainer == "axolotl")  // which passes an empty list to PEFT
      return job_.out.problem(fmt::format(
          "`{}`: neither lora_target_modules nor lora_target_linear is given; axolotl stops then, too", asked.origin));
    // PEFT's choice for these models.
    const Value* plugin = job_.out.get("model.plugin");
    const std::string model = plugin ? as_text(*plugin) : "";
    if (model == "llama" || model == "qwen2" || model == "opt")
      return static_cast<void>(job_.out.set("adapter.targets", std::vector<std::string>{"*.q_proj", "*.v_proj"},
                                            "PEFT's default of " + std::string(names_.targets)));
    if (model == "gpt2") {
      std::vector<std::string> patterns;
      of_gpt2(patterns);
      return static_cast<void>(
          job_.out.set("adapter.targets", patterns, "PEFT's default of " + std::string(names_.targets)));
    }
    job_.out.problem(fmt::format("`{}`: {} is not given, and PEFT's choice for this model is not known here: give it",
                                 asked.origin, names_.targets));
  }

  void sizes() {
    const Entry *rank = job_.flat.take(names_.rank), *alpha = job_.flat.take("lora_alpha"),
                *dropout = job_.flat.take("lora_dropout");
    const std::string whose = std::string(job_.trainer == "trl" ? "TRL" : "LLaMA-Factory") + "'s default of ";
    std::optional<int64_t> width = names_.of_rank;
    if (rank) {
      width = as_whole(rank->value);
      job_.out.set("adapter.rank", rank->value, *rank);
    } else if (width) {
      job_.out.set("adapter.rank", *width, whose + names_.rank);
    }
    if (alpha && !(job_.trainer == "llamafactory" && as_number(alpha->value) == std::optional(0.0)))
      job_.out.set("adapter.alpha", alpha->value, *alpha);
    else if (width && names_.of_rank)  // of LLaMA-Factory twice the rank; of TRL a number
      job_.out.set("adapter.alpha", job_.trainer == "trl" ? 32.0 : 2.0 * static_cast<double>(*width),
                   whose + "lora_alpha");
    if (!names_.of_rank && (!rank || !alpha))
      job_.out.problem("`lora_r` and `lora_alpha` must both be given with an adapter; axolotl asks for them, too");
    if (dropout)
      job_.out.set("adapter.dropout", dropout->value, *dropout);
    else if (names_.dropout > 0)
      job_.out.set("adapter.dropout", names_.dropout, whose + "lora_dropout");
  }

  void init() {
    const Entry* given = job_.flat.take("peft_init_lora_weights");
    if (!given || is_on(*given)) return;
    if (lower_case(as_text(given->value)) == "gaussian")
      job_.out.set("adapter.init", std::string("normal"), *given);
    else
      problem(*given, "A is initialised as PEFT does by default, or with \"gaussian\"");
  }

  // Frozen weights in 4 bits.
  void four_bits(const Entry& asked) {
    const bool factory = job_.trainer == "llamafactory", axolotl = job_.trainer == "axolotl";
    const char* const key = factory ? "quantization_bit" : "load_in_4bit";
    const Entry* given = job_.flat.take(key);
    const auto* eight = factory ? nullptr : job_.flat.take("load_in_8bit");
    const bool four = given && (factory ? as_whole(given->value) == std::optional<int64_t>(4) : is_on(*given));
    if (eight && is_on(*eight)) return problem(*eight, no_eight);
    if (given && factory && !four && !is_off(given->value)) return problem(*given, no_eight);
    if (lower_case(as_text(asked.value)) == "qlora" && !four)
      return job_.out.problem(
          fmt::format("`{}` = \"qlora\" needs load_in_4bit: true; axolotl asks for it, too", asked.origin));
    for (const char* name : {"quantization_method", "quantization_type", "double_quantization", "bnb_4bit_quant_type",
                             "use_bnb_nested_quant", "bnb_4bit_quant_storage", "bnb_4bit_compute_dtype"})
      settings_[name] = job_.flat.take(name);
    if (!four) return;
    const Entry *method = settings_["quantization_method"], *compute = settings_["bnb_4bit_compute_dtype"];
    if (method && !among({"bnb", "bitsandbytes"}, lower_case(as_text(method->value))))
      return problem(*method, "weights in 4 bits are those of bitsandbytes' nf4 here");
    if (const Entry* type = settings_[factory ? "quantization_type" : "bnb_4bit_quant_type"];
        type && lower_case(as_text(type->value)) != "nf4")
      return problem(*type, "weights in 4 bits are nf4 here");
    if (const Value* plugin = job_.out.get("precision.plugin");
        compute && foreign_value("precision.plugin", as_text(compute->value)) != (plugin ? as_text(*plugin) : "fp32"))
      return problem(*compute, "decoded weights have the type of [precision]: make both the same");
    const Entry* twice = settings_[factory ? "double_quantization" : "use_bnb_nested_quant"];
    const bool nested = twice ? is_on(*twice) : factory || axolotl;
    job_.out.set("precision.frozen", std::string(nested ? "nf4_double" : "nf4"), *given);
    if (nested)
      job_.out.note(
          fmt::format("`{}`: scales are quantised, too, as with bitsandbytes, but in a way of their own "
                      "(docs/precision.md): numbers differ a little; precision.frozen = \"nf4\" does not quantise them",
                      given->origin));
  }

  // An adapter stands beside weights that were trained: a model of new ones is no base.
  void start(const Entry& asked) {
    if (*names_.start)
      if (const Entry* from = job_.flat.take(names_.start); from && !is_off(from->value)) {
        if (from->value.index() != 4 || as_text(from->value).find(',') != std::string::npos)
          problem(*from, "a run starts from one adapter: merge the others into its model before");
        else
          job_.out.set("model.adapter", from->value, *from);
      }
    if (!job_.out.has("model.from")) base(job_, asked.origin, "an adapter stands beside published weights");
  }

  // Settings that the tables call idle without adapters are not idle here.
  void others() {
    for (const char* name : {"lora_fan_in_fan_out", "lora_on_cpu", "lora_task_type", "peft_autocast_adapter_dtype"})
      job_.flat.take(name);
    if (const Entry* bias = job_.flat.find("lora_bias"); bias && is_off(bias->value)) job_.flat.take("lora_bias");
    for (auto& [name, entry] : job_.flat.all) {
      const auto account = entry.used ? std::nullopt : account_of(entry.trainer, name, entry.value);
      if (!account || account->text != idle_text || (entry.odd.empty() && is_off(entry.value))) continue;
      entry.used = true;
      refuse(job_, entry, "adapters have no such setting here (docs/transforms.md)");
    }
  }

  static constexpr const char* no_eight =
      "the 8 bits of LLM.int8() are not here: train without it, and set precision.frozen = \"int8\" in the result";
  Job& job_;
  const Names& names_;
  std::map<std::string, const Entry*> settings_;
};

const Names* names_of(const Job& job) {
  const auto found = std::find_if(std::begin(trainers), std::end(trainers),
                                  [&](const Names& names) { return job.trainer == names.trainer; });
  return found == std::end(trainers) ? nullptr : &*found;
}

}  // namespace

bool trains_adapter(Job& job) {
  const Names* names = names_of(job);
  return names && Adapter(job, *names).asked();
}

void adapter(Job& job) {
  if (!trains_adapter(job)) return;
  Adapter adapter(job, *names_of(job));
  adapter.write(*adapter.asked());
}

}  // namespace eng::converter
