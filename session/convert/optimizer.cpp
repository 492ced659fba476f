// SPDX-License-Identifier: Apache-2.0
// The optimizer of DeepSpeed's file, or of the arguments, with the defaults that it has there.
#include "session/config/foreign.hpp"
#include "session/convert/job.hpp"

namespace eng::converter {
namespace {

const std::string given_params = "optimizer.params.";

struct Maker {
  Job& job;
  Target& out = job.out;
  bool theirs = job.deepspeed.has_section("optimizer");  // DeepSpeed makes it

  std::string plugin() const {
    const Value* name = out.get("optimizer.plugin");
    return name ? as_text(*name) : "";
  }

  // Its name, as DeepSpeed or an argument says it.
  std::optional<Entry> given() {
    if (theirs) return pick(job, "optimizer.type", "");
    for (const auto& [flag, word] : {std::pair("use_muon", "muon"), {"adafactor", "adafactor"}})
      if (const Entry* on = job.flat.take(flag); on && as_flag(on->value).value_or(false))
        return Entry{std::string(word), "", on->origin, on->trainer};
    if (const Entry* name = job.flat.take(job.trainer == "megatron" ? "optimizer" : "optim")) return *name;
    return std::nullopt;
  }

  // Chooses the optimizer; true if its other keys can be written.
  bool choose() {
    std::optional<Entry> name = given();
    if (theirs && !name) out.problem("`optimizer.type` is missing; DeepSpeed refuses this too");
    if (!name && !job.defaults) return false;
    const bool megatron = job.trainer == "megatron";
    if (!name)
      return out.set("optimizer.plugin", std::string("adamw"),
                     job.huggingface ? "Hugging Face's default of optim" : "the script's default");
    const auto foreign = theirs ? translation("deepspeed", "optimizer.type", name->value)
                                : translation(job.trainer, megatron ? "optimizer" : "optim", name->value);
    if (as_text(name->value).empty()) {
      out.problem(fmt::format("`{}` must be the name of an optimizer, not {}", name->origin, shown(*name)));
      return false;
    }
    if (foreign && !foreign->plugin.empty() && out.exists("optimizer", foreign->plugin))
      return out.set("optimizer.plugin", foreign->plugin, *name);
    // A plugin of somebody else's may have just this name.
    if (out.exists("optimizer", as_text(name->value))) return out.set("optimizer.plugin", as_text(name->value), *name);
    Entry whole = *name;
    if (theirs) whole.origin = "optimizer";
    refuse(job, whole,
           "there is no such optimizer here (engine plugins ls lists those that there are): name another, and the "
           "learning rate that it needs");
    for (auto& [key, entry] : job.deepspeed.all) entry.used |= theirs && key.starts_with("optimizer.");
    return false;
  }

  // One of its keys. `fallback`: the default there; none: the key is not written.
  void param(const std::string& ours, const std::string& name, const std::string& argument, const Value& fallback) {
    // With DeepSpeed's optimizer, an argument counts through "auto" alone.
    std::optional<Entry> found;
    if (!theirs)
      found = pick(job, "", argument);
    else if (const Entry* given = job.deepspeed.take(given_params + name))
      found = *given;
    if (!theirs && !found) return;
    if (!found && fallback.index()) out.set(ours, fallback, "DeepSpeed's default of " + name);
    if (found) out.set(ours, found->value, *found);
  }

  void betas(double second) {
    if (const Entry* both = theirs ? job.deepspeed.take(given_params + "betas") : nullptr) {
      const auto* pair = std::get_if<std::vector<double>>(&both->value);
      if (!pair || pair->size() != 2)
        return out.problem(fmt::format("`{}` must be a list of two numbers, not {}", both->origin, shown(*both)));
      out.set("optimizer.beta1", (*pair)[0], *both);
      out.set("optimizer.beta2", (*pair)[1], *both);
    } else if (theirs) {
      out.set("optimizer.beta1", 0.9, "DeepSpeed's default of betas");
      out.set("optimizer.beta2", second, "DeepSpeed's default of betas");
    } else {
      param("optimizer.beta1", "", "adam_beta1", {});
      param("optimizer.beta2", "", "adam_beta2", {});
    }
  }

  void adamw() {
    betas(0.999);
    param("optimizer.eps", "eps", "adam_epsilon", 1e-8);
    const bool torch = job.deepspeed.flag(given_params + "torch_adam").value_or(false);
    const Entry* type = job.deepspeed.find("optimizer.type");
    const bool named_adamw = type && as_text(type->value).size() > 4;  // AdamW decays apart, whatever adam_w_mode says
    const Entry* mode = job.deepspeed.take(given_params + "adam_w_mode");
    const bool decoupled = named_adamw || !mode || as_flag(mode->value).value_or(true);
    param("optimizer.weight_decay", "weight_decay", "weight_decay", torch && decoupled ? 0.01 : 0.0);
    job.deepspeed.take(given_params + "torch_adam");
    const Value* decay = out.get("optimizer.weight_decay");
    if (!decay || as_number(*decay).value_or(0) == 0) return;
    if (!decoupled)
      refuse(job, *mode, "it adds the decay to the gradient; here adamw decays weights apart from the gradient");
    if (theirs && !job.huggingface)
      out.note(
          "`optimizer.params.weight_decay`: here norms and biases are not decayed; there, what the script's groups "
          "say");
  }

  // DeepSpeed's has two rates, one for matrices and one for the rest. Others have one, and the scale of Liu et al.
  void muon() {
    param("optimizer.momentum", "momentum", "", {});
    param("optimizer.nesterov", "nesterov", "", {});
    betas(0.95);
    param("optimizer.eps", "eps", "adam_epsilon", 1e-10);
    param("optimizer.weight_decay", "weight_decay", "weight_decay", 0.0);
    if (!theirs) {
      param("optimizer.learning_rate", "", "learning_rate", {});
      out.set("optimizer.scale", std::string("rms"), "matrices have updates as large as AdamW's");
      return;
    }
    const Entry *both = job.deepspeed.take(given_params + "lr"),
                *matrices = job.deepspeed.take(given_params + "muon_lr"),
                *others = job.deepspeed.take(given_params + "adam_lr");
    if (!matrices) matrices = both;
    if (!others) others = both;
    const Entry first{0.02, "", "DeepSpeed's default of muon_lr"}, second{3e-4, "", "DeepSpeed's default of adam_lr"};
    const Entry &of_matrices = matrices ? *matrices : first, &rest = others ? *others : second;
    const auto fast = as_number(of_matrices.value), slow = as_number(rest.value);
    out.set("optimizer.scale", std::string("shape"), "DeepSpeed's Muon");
    if (!out.set("optimizer.learning_rate", rest.value, rest) || !fast || !slow || *slow <= 0) {
      if (!fast) out.problem(fmt::format("`{}` must be a number, not {}", of_matrices.origin, shown(of_matrices)));
      return;
    }
    if (*fast == *slow) return;
    if (job.deepspeed.has_section("scheduler"))
      return refuse(job, of_matrices, "the scheduler gives both parts one rate there: write one rate in both places");
    out.set("optimizer.matrix_rate", *fast / *slow,
            fmt::format("{} = {} / {} = {}", of_matrices.origin, *fast, rest.origin, *slow));
  }

  void make() {
    const bool known = choose();
    const bool is_muon = known && plugin() == "muon";
    if (job.trainer == "axolotl" && !theirs && !is_muon && !job.flat.has("learning_rate")) {
      out.leave("optimizer.learning_rate", "2e-5", "axolotl has no default of learning_rate");
      out.note("`learning_rate` is not given, and axolotl has no default of it: set optimizer.learning_rate");
    } else if ((theirs || job.defaults) && !is_muon) {
      param("optimizer.learning_rate", "lr", "learning_rate", 1e-3);
    }
    if (known && (plugin() == "adamw" || plugin() == "adamw8bit")) adamw();
    if (known && plugin() == "sgd") {
      param("optimizer.momentum", "momentum", "", {});
      param("optimizer.nesterov", "nesterov", "", {});
      param("optimizer.weight_decay", "weight_decay", "weight_decay", 0.0);
    }
    if (is_muon) muon();
    if (!theirs && !job.huggingface && job.has_deepspeed && !job.flat.has("lr") && !job.flat.has("learning_rate"))
      out.note("the file names no optimizer, the script makes it: set [optimizer]");
  }
};

}  // namespace

void optimizer(Job& job) {
  Maker{job}.make();
  if (const auto clip = pick(job, "gradient_clipping", "max_grad_norm"); clip) {
    job.out.set("train.grad_clip", clip->value, *clip);
  } else if (is_null(job.deepspeed, "gradient_clipping")) {
    job.out.set("train.grad_clip", 0.0, "gradient_clipping = null");
  } else if (job.has_deepspeed) {
    job.out.set("train.grad_clip", 1.0, "DeepSpeed's default of gradient_clipping");
    job.out.note(
        "`gradient_clipping` is not given: new versions of DeepSpeed clip at 1.0, older ones do not clip "
        "(train.grad_clip = 0)");
  }
}

}  // namespace eng::converter
