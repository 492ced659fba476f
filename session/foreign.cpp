// SPDX-License-Identifier: Apache-2.0
#include "session/foreign.hpp"

#include <algorithm>
#include <set>

#include "core/config/names.hpp"
#include "core/config/toml.hpp"
#include "session/foreign_text.hpp"

namespace eng {
namespace {

const toml::table& names() {
  static const toml::table all = parse_toml(foreign_toml);
  return all;
}

std::string bare(const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text ? *text : value.index() == 0 ? "none" : toml_text(value);
}

std::string text_of(const toml::table& entry, const char* key) {
  return entry[key].value_or(std::string());
}

// "beta1 = 0.9, beta2 = 0.95" for [0.9, 0.95].
void spread(const toml::array& keys, const Value& value, Foreign& out) {
  const auto* numbers = std::get_if<std::vector<double>>(&value);
  if (!numbers || numbers->size() != keys.size()) return;
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const auto& [key, ours] = out.values.emplace_back(keys[k].value_or(std::string()), (*numbers)[k]);
    out.write += fmt::format("{}{} = {}", k ? ", " : "", key, toml_text(ours));
  }
}

void translate(const toml::table& entry, const Value& value, Foreign& out) {
  const auto write = [&](const Value& ours) {
    out.write = out.here + " = " + toml_text(ours);
    out.values = {{out.here, ours}};
  };
  const auto plugin = [&](const std::string& name) {
    out.plugin = name;
    write(name);
  };
  const bool names_plugin = out.here.ends_with(".plugin");
  if (const toml::table* values = entry["values"].as_table(); values || names_plugin) {
    const std::string theirs = bare(value);
    for (const auto& [key, ours] : values ? *values : toml::table{})
      if (lower_case(std::string(key.str())) == lower_case(theirs))
        return names_plugin ? plugin(ours.value_or(std::string())) : write(ours.value_or(std::string()));
    if (names_plugin && std::holds_alternative<std::string>(value)) plugin(lower_case(theirs));
  } else if (const auto times = entry["times"].value<int64_t>()) {
    const auto* whole = std::get_if<int64_t>(&value);
    const auto* number = std::get_if<double>(&value);
    if (whole && *whole > 0 && *whole < INT64_MAX / *times) write(*whole * *times);
    if (number && *number > 0 && *number < 0x1p62 / double(*times)) write(static_cast<int64_t>(*number) * *times);
  } else if (const toml::array* into = entry["into"].as_array()) {
    spread(*into, value, out);
  } else {
    out.same = !entry.contains("differs");
  }
}

}  // namespace

std::optional<Foreign> foreign_name(const std::string& section, const std::string& name, const Value& value) {
  const std::string word = name.substr(name.rfind('.') + 1), table = name.substr(0, name.find('.'));
  for (const std::string& known : {section + "." + name, section + "." + word, section + "." + table, table, word}) {
    const toml::table* entry = names()[known].as_table();
    if (!entry) continue;
    Foreign out{text_of(*entry, "of"), text_of(*entry, "is")};
    out.why = text_of(*entry, entry->contains("differs") ? "differs" : "why");
    out.part_of_steps = (*entry)["of_steps"].value_or(false);
    translate(*entry, value, out);
    return out;
  }
  return std::nullopt;
}

std::string foreign_value(const std::string& key, const std::string& word) {
  static const std::set<std::string> ambiguous = {"true", "false", "none"};  // they belong to a name of theirs
  if (ambiguous.count(lower_case(word))) return "";
  for (const auto& [name, entry] : names()) {
    const toml::table& known = *entry.as_table();
    const toml::table* values = text_of(known, "is") == key ? known["values"].as_table() : nullptr;
    if (!values) continue;
    for (const auto& [theirs, ours] : *values)
      if (lower_case(std::string(theirs.str())) == lower_case(word)) return ours.value_or(std::string());
  }
  return "";
}

std::vector<std::string> foreign_names() {
  std::vector<std::string> out;
  for (const auto& entry : names()) out.emplace_back(entry.first.str());
  return out;
}

std::string foreign_flag(const std::string& word, const std::string& next) {
  static const std::pair<std::vector<std::string>, const char*> flags[] = {
      {{"num_gpus", "num_processes", "nproc_per_node", "np", "gpus"},
       "ranks are started by `engine run CONFIG --ranks N`"},
      {{"dry_run", "validate"}, "`engine check CONFIG` checks everything without training"},
      {{"check_memory", "estimate_memory"}, "`engine plan CONFIG` prints the memory that a run needs"},
      {{"preset"},
       "a preset is a key of the model: model.preset=NAME; `engine init MODEL/PRESET` writes a configuration"},
      {{"deepspeed", "deepspeed_config", "config", "config_file", "args"},
       "give the TOML file without a flag: engine run CONFIG; docs/config.md says what DeepSpeed's keys are "
       "called here"},
      {{"resume_from_checkpoint", "load_checkpoint", "resume_from"},
       "give the run's directory to resume it: engine run RUN"},
      {{"output_dir", "save_dir"}, "--out DIR sets the run's directory"},
      {{"local_rank", "master_addr", "master_port", "nnodes", "node_rank"},
       "ranks find each other through mpirun or srun: docs/ranks.md"},
      {{"port", "main_process_port", "rdzv_endpoint", "rdzv_backend", "host"},
       "a run listens on no port: ranks find each other through mpirun or srun (docs/ranks.md), and `engine report "
       "RUN` "
       "writes a page to open in a browser"},
      {{"print_config", "show_config"}, "`engine config show CONFIG` prints every value"}};
  const auto equals = std::min(word.find('='), word.size());
  std::string name = word.substr(0, equals);
  name.erase(0, name.find_first_not_of('-'));
  std::replace(name.begin(), name.end(), '-', '_');
  for (const auto& [all, help] : flags)
    if (std::find(all.begin(), all.end(), name) != all.end()) return help;
  // A key that was written as a flag.
  const std::string text = equals < word.size() ? word.substr(equals + 1) : next.starts_with('-') ? "" : next;
  Value value;
  try {
    std::string odd;
    const toml::table one = parse_toml("x = " + text);
    value = value_of(*one.get("x"), odd);
  } catch (const BadToml&) {
    if (!text.empty()) value = text;
  }
  const auto foreign = foreign_name("", name, value);
  if (!foreign) return "";
  if (foreign->here.empty()) return fmt::format("`{}` is {} name: {}", name, foreign->whose, foreign->why);
  const bool section = foreign->here.starts_with('[');
  std::string write = foreign->write;
  if (write.empty() && foreign->same && !section && value.index()) write = foreign->here + " = " + toml_text(value);
  return fmt::format("`{}` is {} name; here it is `{}`{}", name, foreign->whose, write.empty() ? foreign->here : write,
                     section ? " of the configuration" : ", in the configuration or as an override without dashes");
}

}  // namespace eng
