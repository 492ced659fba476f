// SPDX-License-Identifier: Apache-2.0
// Training from preferences (DPO, IPO, SimPO, ORPO, KTO) of axolotl, LLaMA-Factory and TRL. The first two pass most
// settings on to TRL, or compute the same.
#include <algorithm>

#include "session/config/spelling.hpp"
#include "session/convert/job.hpp"

namespace eng::converter {
namespace {

// Losses by the words of TRL and LLaMA-Factory. Both take means over tokens for ipo.
struct Known {
  const char *word, *kind;
  bool average;
};
const Known losses[] = {{"sigmoid", "dpo", false},
                        {"sigmoid_norm", "dpo", true},
                        {"ipo", "ipo", true},
                        {"orpo", "orpo", false},
                        {"simpo", "simpo", false}};

class Preference {
 public:
  explicit Preference(Job& job)
      : job_(job), factory_(job.trainer == "llamafactory"), axolotl_(job.trainer == "axolotl") {}

  // The setting that asks for it; none if nothing does. It is not used yet.
  std::optional<Entry> asked() const {
    if (job_.trainer == "trl" && (job_.kind == "dpo" || job_.kind == "kto"))
      return Entry{job_.kind, "", "trl " + job_.kind};
    const Entry* given = factory_ ? job_.flat.find("stage") : axolotl_ ? job_.flat.find("rl") : nullptr;
    if (!given) return std::nullopt;
    const std::string word = lower_case(as_text(given->value));
    const bool pairs =
        word == "dpo" || word == "kto" || (axolotl_ && (word == "ipo" || word == "orpo" || word == "simpo"));
    return pairs ? std::optional(*given) : std::nullopt;
  }

  void write(const Entry& asked) {
    if (factory_) job_.flat.take("stage");
    if (axolotl_) job_.flat.take("rl");
    if (!job_.out.exists("loss", "preference"))
      return job_.out.problem(fmt::format("`{}`: there is no loss `preference` here", asked.origin));
    job_.out.set("loss.plugin", std::string("preference"), asked);
    if (!kind(asked)) return;
    weights();
    if (kind_ == "dpo" || kind_ == "ipo" || kind_ == "kto") reference(asked);
    samples(asked);
    if (job_.out.has("adapter.dropout")) no_dropout();
    others();
    if (!job_.out.has("model.from") && !job_.out.has("adapter.plugin"))
      base(job_, asked.origin, "training from preferences begins with published weights");
  }

 private:
  static bool is_on(const Entry& entry) {
    const auto* words = std::get_if<std::vector<std::string>>(&entry.value);
    const std::string word = lower_case(as_text(entry.value));
    const bool off = as_flag(entry.value) == std::optional(false) || as_number(entry.value) == std::optional(0.0) ||
                     (words && words->empty()) || (entry.value.index() == 4 && (word.empty() || word == "none"));
    return !off;
  }

  void problem(const Entry& entry, const std::string& why) {
    job_.out.problem(fmt::format("`{}` = {}: {}", entry.origin, shown(entry), why));
  }

  bool kind(const Entry& asked) {
    const Entry* given = job_.flat.take(factory_ ? "pref_loss" : axolotl_ ? "dpo_loss_type" : "loss_type");
    std::string word = lower_case(as_text(asked.value));
    if (word == "kto") return kto(asked, given);
    if (word == "dpo") word = "sigmoid";
    const bool names = given && (!axolotl_ || word == "sigmoid") && is_on(*given);
    if (names) {
      const auto* list = std::get_if<std::vector<std::string>>(&given->value);
      word = list ? (list->size() == 1 ? list->front() : "") : as_text(given->value);
    }
    const auto found = std::find_if(std::begin(losses), std::end(losses), [&](const Known& one) {
      return word == one.word && (factory_ || axolotl_ || std::string(one.kind) != "orpo");
    });
    if (found == std::end(losses) || (axolotl_ && word == "simpo" && !without_nll())) {
      problem(names ? *given : asked, word == "simpo" ? "with cpo_alpha, 1 by default, it has a term that is not here"
                                                      : "the losses of pairs here are dpo, ipo, simpo and orpo "
                                                        "(docs/losses.md)");
      return false;
    }
    kind_ = found->kind;
    job_.out.set("loss.kind", kind_, names ? *given : asked);
    if (found->average) job_.out.set("loss.average", true, "means over the tokens of an answer, as there");
    if (kind_ == "orpo" && axolotl_)
      job_.out.note(
          fmt::format("`{}`: TRL takes the log-probabilities of all preferred answers and their prompts together; "
                      "here it is the mean over the tokens of each answer, as in the paper (docs/losses.md)",
                      asked.origin));
    return true;
  }

  bool kto(const Entry& asked, const Entry* type) {
    if (type && job_.trainer == "trl" && as_text(type->value) != "kto") {
      problem(*type, "the loss of single answers here is kto (docs/losses.md)");
      return false;
    }
    kind_ = "kto";
    job_.out.set("loss.kind", kind_, asked);
    const std::string before = axolotl_ ? "kto_" : "";
    for (const auto& [theirs, ours] :
         {std::pair<std::string, const char*>{factory_ ? "kto_chosen_weight" : before + "desirable_weight",
                                              "desirable_weight"},
          {factory_ ? "kto_rejected_weight" : before + "undesirable_weight", "undesirable_weight"}})
      if (const Entry* given = job_.flat.take(theirs)) job_.out.set(std::string("loss.") + ours, given->value, *given);
    if (const Entry* nll = factory_ ? job_.flat.take("pref_ftx") : nullptr; nll && is_on(*nll))
      problem(*nll, "kto has no such term here: leave it out");
    return true;
  }

  bool without_nll() {
    const Entry* alpha = job_.flat.take("cpo_alpha");
    return alpha && as_number(alpha->value) == std::optional(0.0);
  }

  void weights() {
    const char* beta = factory_ ? "pref_beta" : axolotl_ ? "rl_beta" : "beta";
    if (axolotl_ && !job_.flat.has("rl_beta") && job_.flat.has("orpo_alpha")) beta = "orpo_alpha";
    if (axolotl_) job_.flat.take("orpo_alpha");
    if (const Entry* given = job_.flat.take(beta))
      job_.out.set("loss.beta", given->value, *given);
    else
      job_.out.set("loss.beta", 0.1, fmt::format("the default of {} there", beta));
    const Entry* smooth = job_.flat.take(job_.trainer == "trl" ? "label_smoothing" : "dpo_label_smoothing");
    if (smooth && is_on(*smooth) && kind_ == "dpo") job_.out.set("loss.label_smoothing", smooth->value, *smooth);
    const Entry* margin = job_.flat.take("simpo_gamma");
    if (margin && kind_ == "simpo") job_.out.set("loss.margin", margin->value, *margin);
    if (!margin && kind_ == "simpo" && axolotl_)
      job_.out.problem("`simpo_gamma` must be given; axolotl has no default of it");
    if (!margin && kind_ == "simpo" && factory_)
      job_.out.set("loss.margin", 0.5, "LLaMA-Factory's default of simpo_gamma");
    if (const Entry* nll = factory_ ? job_.flat.take("pref_ftx") : nullptr; nll && is_on(*nll))
      job_.out.set("loss.nll", as_number(nll->value).value_or(0) + (kind_ == "orpo" ? 1 : 0), *nll);
  }

  void reference(const Entry& asked) {
    const Entry* other = factory_ ? job_.flat.take("ref_model") : nullptr;
    if (other && is_on(*other)) return static_cast<void>(job_.out.set("reference.from", other->value, *other));
    if (!job_.out.has("adapter.plugin"))
      return static_cast<void>(job_.out.set("reference.from", std::string("start"), asked));
    job_.out.set("reference.from", std::string("base"), asked);
    for (const char* start : {"adapter_name_or_path", "lora_model_dir"})
      if (const Entry* given = job_.flat.find(start); given && is_on(*given))
        problem(*given, "the reference is the model with this adapter: merge it into the model before");
  }

  // A sample is a pair there, and each of its answers a sequence here.
  void samples(const Entry& asked) {
    for (const char* key : {"train.micro_batch", "train.global_batch"})
      if (const Value* pairs = job_.out.get(key))
        job_.out.change(key, 2 * std::get<int64_t>(*pairs), "pairs, of two sequences each");
    job_.out.set("data.plugin", std::string("pairs"), asked);
    if (kind_ == "kto") job_.out.set("data.unpaired", true, asked);
    job_.out.set("data.too_long", std::string(axolotl_ ? "skip" : "cut"), "what is done there");
    job_.out.note(fmt::format("`{}`: each line of the data has the texts {}: docs/data.md#pairs-of-answers",
                              asked.origin,
                              kind_ == "kto" ? "prompt and completion, and label" : "prompt, chosen and rejected"));
  }

  // TRL and LLaMA-Factory turn dropout off for preferences, that of adapters as well.
  void no_dropout() {
    const Entry* given = job_.flat.take("disable_dropout");
    if (!given || is_on(*given)) job_.out.change("adapter.dropout", 0.0, "dropout is off with preferences there");
  }

  void others() {
    for (const char* name : {"precompute_ref_log_probs", "precompute_ref_batch_size", "disable_dropout"})
      job_.flat.take(name);
    if (const Entry* divergence = job_.flat.find("f_divergence_type");
        divergence && as_text(divergence->value) == "reverse_kl")
      job_.flat.take("f_divergence_type");
    // `rest` tells those that are on, if they are not told here.
    for (const char* name : {"packing", "sample_packing", "neat_packing", "padding_free", "use_weighting",
                             "sync_ref_model", "loss_weights", "ld_alpha", "discopop_tau", "dpo_use_weighting",
                             "dpo_norm_loss", "dpo_loss_weights", "rpo_alpha"})
      if (const Entry* given = job_.flat.find(name); given && !is_on(*given)) job_.flat.take(name);
    for (const char* name : {"ld_alpha", "ref_model_adapters", "ref_model_quantization_bit", "pref_bco_weight",
                             "max_prompt_length", "max_completion_length"})
      if (const Entry* given = job_.flat.take(name); given && is_on(*given))
        problem(*given, "there is no such setting here: leave it out");
  }

  Job& job_;
  const bool factory_, axolotl_;
  std::string kind_;
};

}  // namespace

bool trains_on_pairs(Job& job) {
  return Preference(job).asked().has_value();
}

void base(Job& job, const std::string& origin, const std::string& why) {
  job.out.comment_out("model");
  job.out.note(fmt::format("`{}`: {}: set model.from to their directory, and remove plugin and preset", origin, why));
}

void preference(Job& job) {
  Preference preference(job);
  if (const auto asked = preference.asked()) preference.write(*asked);
}

}  // namespace eng::converter
