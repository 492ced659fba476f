// SPDX-License-Identifier: Apache-2.0
// The optimizer of DeepSpeed's file, or of Hugging Face's arguments, with the defaults that it has there.
#include "session/convert/job.hpp"
#include "session/foreign.hpp"

namespace eng::converter {
namespace {

struct Maker {
  Job& job;
  Target& out = job.out;
  bool theirs = job.deepspeed.has_section("optimizer");  // DeepSpeed makes it

  std::string plugin() const {
    const Value* name = out.get("optimizer.plugin");
    return name ? as_text(*name) : "";
  }

  // Whether its other keys can be written.
  bool choose() {
    std::optional<Entry> name;
    if (theirs)
      name = pick(job, "optimizer.type", "");
    else if (job.flat.has("optim"))
      name = *job.flat.take("optim");
    if (theirs && !name) out.problem("`optimizer.type` is missing; DeepSpeed refuses this too");
    if (!name && !job.huggingface) return false;
    if (!name) return out.set("optimizer.plugin", std::string("adamw"), "Hugging Face's default of optim");
    const auto foreign = foreign_name(theirs ? "optimizer" : "", theirs ? "type" : "optim", name->value);
    if (!foreign || foreign->plugin.empty()) {
      out.problem(fmt::format("`{}` must be the name of an optimizer, not {}", name->origin, shown(*name)));
      return false;
    }
    if (out.exists("optimizer", foreign->plugin)) return out.set("optimizer.plugin", foreign->plugin, *name);
    // A relative of Adam that is not there yet has the same arithmetic with other states.
    const bool adam =
        foreign->plugin.find("adam") != std::string::npos && foreign->plugin.find("lamb") == std::string::npos;
    out.note(fmt::format("`{}` = {}: {}; {}", name->origin, shown(*name), foreign->not_yet(),
                         adam ? "adamw is written" : "adamw is the default: choose another, and its learning rate"));
    if (adam) return out.set("optimizer.plugin", std::string("adamw"), *name);
    out.leave("optimizer.plugin", toml_text(foreign->plugin), name->origin + ": does not exist yet");
    return false;
  }

  // One of its keys. `fallback`: DeepSpeed's default; none: the key is not written.
  void param(const std::string& ours, const std::string& name, const std::string& argument, const Value& fallback) {
    // With DeepSpeed's optimizer, an argument counts through "auto" alone.
    std::optional<Entry> found;
    if (!theirs)
      found = pick(job, "", argument);
    else if (const Entry* given = job.deepspeed.take("optimizer.params." + name))
      found = *given;
    if (!theirs && !found) return;
    if (!found && fallback.index()) out.set(ours, fallback, "DeepSpeed's default of " + name);
    if (found) out.set(ours, found->value, *found);
  }

  void betas() {
    if (const Entry* both = theirs ? job.deepspeed.take("optimizer.params.betas") : nullptr) {
      const auto* pair = std::get_if<std::vector<double>>(&both->value);
      if (!pair || pair->size() != 2)
        return out.problem(fmt::format("`{}` must be a list of two numbers, not {}", both->origin, shown(*both)));
      out.set("optimizer.beta1", (*pair)[0], *both);
      out.set("optimizer.beta2", (*pair)[1], *both);
    } else if (theirs) {
      out.set("optimizer.beta1", 0.9, "DeepSpeed's default of betas");
      out.set("optimizer.beta2", 0.999, "DeepSpeed's default of betas");
    } else {
      param("optimizer.beta1", "", "adam_beta1", {});
      param("optimizer.beta2", "", "adam_beta2", {});
    }
  }

  void adamw() {
    betas();
    param("optimizer.eps", "eps", "adam_epsilon", 1e-8);
    const bool torch = job.deepspeed.flag("optimizer.params.torch_adam").value_or(false);
    const bool decoupled = job.deepspeed.flag("optimizer.params.adam_w_mode").value_or(true);
    param("optimizer.weight_decay", "weight_decay", "weight_decay", torch && decoupled ? 0.01 : 0.0);
    job.deepspeed.take("optimizer.params.torch_adam");
    job.deepspeed.take("optimizer.params.adam_w_mode");
    const Value* decay = out.get("optimizer.weight_decay");
    if (!decay || as_number(*decay).value_or(0) == 0) return;
    if (!decoupled)
      out.note(
          "`optimizer.params.adam_w_mode` = false adds the decay to the gradient; here adamw decays weights "
          "apart from the gradient");
    if (theirs && !job.huggingface)
      out.note(
          "`optimizer.params.weight_decay`: here norms and biases are not decayed; there, what the script's groups "
          "say");
  }

  void make() {
    const bool known = choose();
    if (theirs || job.huggingface) param("optimizer.learning_rate", "lr", "learning_rate", 1e-3);
    if (known && (plugin() == "adamw" || plugin() == "adamw8bit")) adamw();
    if (known && plugin() == "sgd") {
      param("optimizer.momentum", "momentum", "", {});
      param("optimizer.nesterov", "nesterov", "", {});
      param("optimizer.weight_decay", "weight_decay", "weight_decay", {});
    }
    if (known && plugin() == "muon") {
      param("optimizer.momentum", "momentum", "", {});
      param("optimizer.weight_decay", "weight_decay", "weight_decay", {});
      out.note("muon: updates are scaled as [optimizer] scale says: docs/config.md");
    }
    if (!theirs && !job.huggingface && job.has_deepspeed && !job.flat.has("lr") && !job.flat.has("learning_rate"))
      out.note("the file names no optimizer, the script makes it: set [optimizer]");
  }
};

}  // namespace

void optimizer(Job& job) {
  Maker{job}.make();
  if (const auto clip = pick(job, "gradient_clipping", "max_grad_norm"); clip) {
    job.out.set("train.grad_clip", clip->value, *clip);
  } else if (job.has_deepspeed) {
    job.out.set("train.grad_clip", 1.0, "DeepSpeed's default of gradient_clipping");
    job.out.note(
        "`gradient_clipping` is not given: new versions of DeepSpeed clip at 1.0, older ones do not clip "
        "(train.grad_clip = 0)");
  }
}

}  // namespace eng::converter
