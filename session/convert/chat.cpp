// SPDX-License-Identifier: Apache-2.0
// Fine-tuning on conversations (SFT) of LLaMA-Factory and axolotl: which tokens train, and what becomes of long rows.
#include "session/convert/job.hpp"

namespace eng::converter {
namespace {

bool is_on(const Entry* entry) {
  return entry && as_flag(entry->value) == std::optional(true);
}

bool has_source(const Job& job) {
  return job.out.exists("data", "chat") && !job.out.has("data.plugin");
}

// The policy for a row that is longer than a sample, as axolotl has it.
void too_long(Job& job) {
  const Entry* given = job.flat.take("excess_length_strategy");
  const std::string word = given ? as_text(given->value) : "drop";
  const char* const ours = word == "truncate" ? "cut" : word == "raise" ? "stop" : "skip";
  if (given)
    job.out.set("data.too_long", std::string(ours), *given);
  else
    job.out.set("data.too_long", std::string(ours), "axolotl's default of excess_length_strategy");
}

}  // namespace

void conversations(Job& job) {
  const Entry* stage = job.trainer == "llamafactory" ? job.flat.find("stage") : nullptr;
  if (job.trainer != "llamafactory" || !has_source(job) || (stage && as_text(stage->value) != "sft")) return;
  job.flat.take("stage");
  const Entry asked = stage ? *stage : Entry{std::string("sft"), "", "LLaMA-Factory's default of stage"};
  job.out.set("data.plugin", std::string("chat"), asked);
  job.out.set("data.too_long", std::string("cut"), "what is done there");
  const Entry *prompt = job.flat.take("train_on_prompt"), *history = job.flat.take("mask_history");
  if (is_on(prompt))
    job.out.set("data.train_on", std::string("all"), *prompt);
  else if (is_on(history))
    job.out.set("data.train_on", std::string("last"), *history);
  job.out.note(
      fmt::format("`{}`: answers are trained, in the words of the chat template of data.tokenizer's folder, which "
                  "`template` does not choose here; `engine data inspect` shows both (docs/data.md#conversations)",
                  asked.origin));
}

bool chat_rows(Job& job, const std::string& above) {
  if (!has_source(job)) return job.out.get("data.plugin") && as_text(*job.out.get("data.plugin")) == "chat";
  const Entry* type = job.flat.find(above + ".type");
  job.out.set("data.plugin", std::string("chat"), *type);
  too_long(job);
  if (const Entry* field = job.flat.take(above + ".field_messages")) job.out.set("data.field", field->value, *field);
  if (const Entry* prompts = job.flat.take("train_on_inputs"); is_on(prompts))
    job.out.set("data.train_on", std::string("all"), *prompts);
  return true;
}

}  // namespace eng::converter
