// SPDX-License-Identifier: Apache-2.0
// The inputs of a conversion: the file, the launch line, and the files that these name; whose names they have; every
// key under the name that the rules know.
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "core/base/text.hpp"
#include "session/config/foreign.hpp"
#include "session/convert/job.hpp"
#include "session/convert/trainers.hpp"
#include "session/convert/words.hpp"

namespace eng::converter {
namespace {

bool has_any(const Json& json, const Words& names) {
  return std::any_of(names.begin(), names.end(), [&](const auto& name) { return json.contains(name); });
}

void must_be_utf8(const std::string& text, const std::string& name) {
  try {
    Json(text).dump();
  } catch (const JsonError&) {
    const bool wide = text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff");
    throw Error(Exit::usage, printable(name) + (wide ? " is UTF-16: save it as UTF-8" : " is not UTF-8"));
  }
}

// Without the byte order mark of an editor.
std::string fitting(std::string text, const std::string& name) {
  if (text.size() > max_bytes) throw Error(Exit::usage, printable(name) + " is larger than 1 MiB");
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) throw Error(Exit::usage, printable(name) + " is empty");
  must_be_utf8(text, name);
  return text;
}

// JSON begins with a bracket, after comments of either kind.
bool looks_like_json(const std::string& text, const std::string& name) {
  if (name.ends_with(".yaml") || name.ends_with(".yml")) return false;
  std::size_t at = text.find_first_not_of(" \t\r\n");
  while (at != std::string::npos &&
         (text[at] == '#' || text.compare(at, 2, "//") == 0 || text.compare(at, 2, "/*") == 0)) {
    const bool block = text.compare(at, 2, "/*") == 0;
    at = text.find(block ? "*/" : "\n", at + 1);
    if (at != std::string::npos) at = text.find_first_not_of(" \t\r\n", at + (block ? 2 : 1));
  }
  return at != std::string::npos ? text[at] == '{' : name.ends_with(".json");
}

class Intake {
 public:
  Intake(const ForeignRun& run, Job& job) : run_(run), job_(job) {}

  void take() {
    must_be_utf8(run_.arguments, "--args");
    launch_ = read_launch(run_.arguments);
    if (!run_.name.empty()) file(run_.name, run_.text, true);
    named_arguments();
    whose();
    other_jobs();
    for (Entries* level : {&launch_.flags, &arguments_, &job_.deepspeed, &launch_.accelerate, &accelerate_})
      ignore(*level);
    for (const std::string& name : wanted_)
      job_.out.problem(fmt::format("--ignore {}: no key of this name is given", printable(name, 80)));
    named_deepspeed();
    for (auto& one : job_.deepspeed.all) one.second.trainer = "deepspeed";
    for (const char* name : {"num_train_steps", "max_train_steps", "num_warmup_steps"})
      job_.no_trainer |= launch_.flags.has(name) || arguments_.has(name);
    job_.no_trainer |= launch_.script.ends_with("_no_trainer.py");
    add(std::move(launch_.flags), job_.trainer);
    add(std::move(arguments_), job_.trainer);
    add(std::move(launch_.accelerate), "accelerate");
    add(std::move(accelerate_), "accelerate");
    ranks();
  }

 private:
  void file(const std::string& name, const std::string& given, bool main) {
    if (name.ends_with(".toml"))
      throw Error(Exit::usage, printable(name) + " is TOML already",
                  "engine check " + printable(name) + " says whether it is a configuration");
    const std::string text = fitting(given, name);
    const bool json = looks_like_json(text, name);
    object(json ? read_json(text, name) : read_yaml(text, name), name, json, main);
  }

  void object(Json json, const std::string& name, bool strict, bool main) {
    if (json.contains("model_type") && json.contains("architectures"))
      throw Error(Exit::usage, printable(name) + " describes a model, not a run",
                  "its directory is [model] from = \"DIR\"; `engine eval DIR` and `engine generate DIR` read it too");
    const auto& members = json.members();
    const bool grouped = std::any_of(members.begin(), members.end(), [](const auto& one) {
      const bool deepspeeds = one.key == "optimizer" || one.key == "scheduler" || one.key == "checkpoint";
      return one.value.is_object() && is_group(one.key) && !deepspeeds;
    });
    const bool deepspeed =
        strict ? has_any(json, of_deepspeed)
               : has_any(json, {"zero_optimization", "train_micro_batch_size_per_gpu", "steps_per_print"});
    const bool accelerate = json.contains("compute_environment") || json.contains("distributed_type");
    if (accelerate) return flatten(json, "", accelerate_);
    if (deepspeed && !grouped && !has_any(json, of_huggingface)) {
      job_.has_deepspeed = true;
      flatten(json, "", job_.deepspeed);
      return old_names();
    }
    if (const Json* inner = json.find("deepspeed"); inner && inner->is_object()) {
      job_.has_deepspeed = true;
      flatten(*inner, "", job_.deepspeed);
      old_names();
      json.erase("deepspeed");
    }
    Entries all;
    flatten(json, "", all);
    const bool known = std::any_of(all.all.begin(), all.all.end(), [&](const auto& one) {
      return account_of("huggingface", one.first, {}) || account_of("huggingface", without_group(one.first), {});
    });
    if (strict && main && !known)
      throw Error(Exit::usage,
                  printable(name) + " has no key of a DeepSpeed file or of Hugging Face's training arguments",
                  "a DeepSpeed file has train_micro_batch_size_per_gpu or zero_optimization; training arguments have "
                  "per_device_train_batch_size or output_dir");
    for (auto& one : all.all) arguments_.all.insert(one);
  }

  // The section bf16 was called bfloat16.
  void old_names() {
    const std::string old = "bfloat16";
    for (auto at = job_.deepspeed.all.lower_bound(old); at != job_.deepspeed.all.end() && at->first.starts_with(old);) {
      job_.deepspeed.all.emplace("bf16" + at->first.substr(old.size()), at->second);
      at = job_.deepspeed.all.erase(at);
    }
  }

  // A path in a launch line is relative to the working directory, and so trainers read one in a file of arguments. If
  // it is not there, it may lie beside that file.
  std::pair<std::string, std::string> read_named(const std::string& path, bool launch) const {
    const std::filesystem::path beside = std::filesystem::path(run_.name).parent_path() / path;
    try {
      return {run_.read(path), path};
    } catch (const Error& here) {
      if (launch || path.starts_with('/') || beside == path) throw;
      try {
        return {run_.read(beside.string()), beside.string()};
      } catch (const Error&) {
        throw Error(here.exit(), here.what(),
                    fmt::format("it was looked for in the working directory and beside {}", printable(run_.name)));
      }
    }
  }

  static std::string base(const std::string& path) { return path.substr(path.rfind('/') + 1); }

  // Files of arguments that the launch line names: `trl sft --config FILE`, `accelerate launch --config_file FILE`.
  void named_arguments() {
    Words named = launch_.files;
    for (const char* flag : {"config", "config_file", "args_file", "yaml", "cfg"}) {
      Entry* entry = nullptr;
      if (const auto found = launch_.flags.all.find(flag); found != launch_.flags.all.end()) entry = &found->second;
      const std::string path = entry ? as_text(entry->value) : "";
      if (path.empty() || path.ends_with(".toml")) continue;
      if (!path.ends_with(".yaml") && !path.ends_with(".yml") && !path.ends_with(".json")) continue;
      if (among(run_.ignored, flag)) continue;
      named.push_back(path);
      launch_.flags.all.erase(flag);
    }
    for (const char* flag : {"config_file"})
      if (const Entry* entry = launch_.accelerate.find(flag); entry && !among(run_.ignored, flag)) {
        named.push_back(as_text(entry->value));
        launch_.accelerate.all.erase(flag);
      }
    for (const std::string& path : named) {
      if (base(path) == base(run_.name) || path.empty()) continue;
      if (!run_.read) continue;
      const auto [text, from] = read_named(path, true);
      file(from, text, false);
    }
  }

  void whose() {
    Entries all = arguments_;
    for (const auto& one : launch_.flags.all) all.all.insert(one);
    const std::string program = launch_.program == "accelerate" ? "" : launch_.program;
    job_.trainer = !program.empty() ? program : trainer_of(all, "huggingface");
    if (job_.trainer == "accelerate") job_.trainer = "huggingface";
    const Entry* stage = all.find("stage");
    if (stage && stage->value.index() == 4 && job_.trainer == "huggingface") job_.trainer = "llamafactory";
    for (const auto& one : all.all)
      if (const auto dot = one.first.find('.'); dot != std::string::npos)
        if (is_group(one.first.substr(0, dot)) && !account_of(job_.trainer, one.first, {}) &&
            job_.trainer == "huggingface")
          job_.trainer = "script";
  }

  // `trl dpo`, `llamafactory-cli export`.
  void other_jobs() {
    const std::string& job = job_.kind = launch_.job;
    if (job_.trainer == "trl" && (job == "dpo" || job == "kto")) return;
    if (job.empty() || job == "train" || job == "sft" || job == "pretrain") return;
    job_.out.problem(
        fmt::format("`{} {}`: this is another kind of training or none, which does not exist here yet; "
                    "`engine run` trains all weights, or LoRA, on text or preferences",
                    printable(launch_.program, 40), printable(job, 40)));
  }

  // Removes what the person does not want to be read.
  void ignore(Entries& entries) {
    if (&entries == &launch_.flags) wanted_ = run_.ignored;
    for (auto name = wanted_.begin(); name != wanted_.end();) {
      std::string bare = name->substr(std::min(name->find_first_not_of('-'), name->size()));
      std::string underscored = bare;
      std::replace(underscored.begin(), underscored.end(), '-', '_');
      const auto account =
          account_of(job_.trainer, underscored, entries.has(underscored) ? entries.find(underscored)->value : Value());
      if (account && account->fate == Fate::job) {
        job_.out.problem(fmt::format("--ignore {}: this is another kind of training", printable(*name, 80)));
        name = wanted_.erase(name);
      } else if (entries.drop(bare) || entries.drop(underscored)) {
        job_.out.note(fmt::format("`{}` is ignored, as --ignore says", bare));
        name = wanted_.erase(name);
      } else {
        ++name;
      }
    }
  }

  // --deepspeed FILE, --deepspeed_config FILE; also as keys of the arguments.
  void named_deepspeed() {
    for (Entries* level : {&launch_.flags, &arguments_, &launch_.accelerate, &accelerate_})
      for (const char* key :
           {"deepspeed", "deepspeed_config", "deepspeed_config_file", "deepspeed_config.deepspeed_config_file"}) {
        const Entry* named = level->take(key);
        if (!named || as_text(named->value).empty()) {
          if (named) level->all.erase(key);  // a flag alone
          continue;
        }
        const std::string path = as_text(named->value);
        if (job_.has_deepspeed) {
          if (base(path) != base(run_.name))
            job_.out.note(fmt::format("`{}` names {}; {} is read instead", named->origin, path, run_.name));
        } else if (run_.read) {
          const auto [text, from] = read_named(path, named->origin.starts_with("--"));
          job_.has_deepspeed = true;
          flatten(read_json(fitting(text, from), from), "", job_.deepspeed);
          old_names();
        }
        level->all.erase(key);
      }
  }

  // The name that the rules know.
  std::string meant(const std::string& trainer, const std::string& given) const {
    std::string name = given;
    auto account = account_of(trainer, name, {});
    if (!account || account->below) {
      const std::string bare = without_group(name);
      if (const auto inner = account_of(trainer, bare, {}); inner && bare != name) name = bare, account = inner;
    }
    if (account && account->fate == Fate::alias) return account->text;
    return name;
  }

  // `--no_flag`, which turns a flag off.
  void negated(std::string& name, Entry& entry, const std::string& trainer) const {
    if (!name.starts_with("no_") || entry.value != Value(true) || account_of(trainer, name, {})) return;
    const std::string bare = name.substr(3);
    if (!account_of(trainer, bare, {})) return;
    name = bare;
    entry.value = false;
  }

  // A value that is the shell's variable: an error where it matters. Whether the entry is dealt with.
  bool open_variable(const std::string& name, const Entry& entry) {
    const std::string text = as_text(entry.value);
    const auto dollar = text.find('$');
    const bool variable = dollar != std::string::npos && dollar + 1 < text.size() && entry.origin.starts_with("-") &&
                          (text[dollar + 1] == '{' || text[dollar + 1] == '(' || text[dollar + 1] == '_' ||
                           std::isalnum(static_cast<unsigned char>(text[dollar + 1])));
    const auto account = variable ? account_of(entry.trainer, name, {}) : std::nullopt;
    if (!account || (account->fate != Fate::ours && account->fate != Fate::rule)) return false;
    const auto ours = translation(entry.trainer, name, {});
    const bool path =
        ours && (ours->here.starts_with("run.") || ours->here.starts_with("data.") || ours->here == "model.from");
    if (path) {
      job_.out.note(
          fmt::format("`{}` = {} is a variable of the shell: not converted", entry.origin, printable(text, 80)));
      return true;
    }
    if (!ours) return false;  // a rule says what is wrong
    job_.out.problem(
        fmt::format("`{}` = {} is a variable of the shell: give its value", entry.origin, printable(text, 80)));
    return true;
  }

  void add(Entries from, const std::string& trainer) {
    std::map<std::string, const Entry*> here;
    for (auto& [given, entry] : from.all) {
      if (entry.used) continue;
      std::string name = given;
      negated(name, entry, trainer);
      name = meant(trainer, name);
      entry.trainer = trainer;
      if (open_variable(name, entry)) continue;
      const bool deepspeed = name.starts_with("deepspeed:");
      if (deepspeed) name = name.substr(10), entry.trainer = "deepspeed";
      if (const auto [before, fresh] = here.emplace(name, &entry); !fresh) {
        if (before->second->value != entry.value)
          job_.out.problem(fmt::format("`{}` = {} and `{}` = {} are the same setting", before->second->origin,
                                       shown(*before->second), entry.origin, shown(entry)));
        continue;
      }
      Entries& into = deepspeed ? job_.deepspeed : job_.flat;
      const auto [kept, fresh] = into.all.emplace(name, entry);
      if (!fresh && trainer == "accelerate" && kept->second.value != entry.value &&
          kept->second.value != Value(std::string("auto")))
        job_.out.note(fmt::format("`{}` = {} is not used: `{}` = {} counts", entry.origin, shown(entry),
                                  kept->second.origin, shown(kept->second)));
    }
  }

  void ranks() {
    job_.ranks = launch_.ranks;
    job_.ranks_from = launch_.ranks_from;
    job_.ranks_open = launch_.ranks_open;
    for (const char* name :
         {"num_processes", "num_gpus", "nproc_per_node", "n_gpus", "ngpus", "gpus", "n_gpu", "devices"}) {
      const Entry* entry = job_.flat.take(name);
      const auto number = entry ? as_whole(entry->value) : std::nullopt;
      if (!number || *number < 1 || *number > 1'000'000 || job_.ranks || !job_.ranks_open.empty()) continue;
      job_.ranks = *number;
      job_.ranks_from = entry->origin;
    }
    job_.flat.take("num_machines");
    for (const std::string& word : launch_.left)
      if (word.ends_with(".py") && !word.starts_with("-")) {
        job_.configured = true;
        job_.out.note(
            fmt::format("`{}` is a program, which is not read: give what it sets as flags", printable(word, 80)));
      }
    if (!launch_.left.empty())
      job_.out.note(fmt::format("of the launch line, not converted: {}; how ranks are started: docs/ranks.md",
                                fmt::join(launch_.left, " ")));
    for (const std::string& word : launch_.variables)
      job_.out.problem(fmt::format("`{}` is a variable of the shell: give its value", printable(word, 80)));
    if (!job_.ranks_open.empty() && !job_.ranks)
      job_.out.note(fmt::format("`{}` says no number, so the number of ranks is not known: engine run FILE --ranks N",
                                job_.ranks_open));
  }

  const ForeignRun& run_;
  Job& job_;
  Launch launch_;
  Entries arguments_, accelerate_;
  Words wanted_;
};

}  // namespace

void intake(const ForeignRun& run, Job& job) {
  Intake(run, job).take();
  if (job.deepspeed.all.empty() && job.flat.all.empty())
    throw Error(Exit::usage, "there is nothing to convert: no key and no flag was given",
                "engine config convert ds_config.json --args \"--num_gpus 4 --preset 7b\"");
  const std::string& trainer = job.trainer;
  job.huggingface = trainer == "trl" || trainer == "axolotl" || trainer == "llamafactory";
  for (const std::string& name : of_huggingface) job.huggingface |= trainer == "huggingface" && job.flat.has(name);
  if (trainer == "huggingface" || trainer == "script")
    for (const auto& one : job.deepspeed.all) job.huggingface |= one.second.value == Value(std::string("auto"));
  // A file of nanoGPT's that sets others is a program, and is not read.
  job.defaults = job.huggingface || trainer == "megatron" || (trainer == "nanogpt" && !job.configured);
}

}  // namespace eng::converter
