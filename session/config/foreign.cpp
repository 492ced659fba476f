// SPDX-License-Identifier: Apache-2.0
#include "session/config/foreign.hpp"

#include <algorithm>
#include <set>

#include "session/config/spelling.hpp"
#include "session/config/toml.hpp"
#include "session/foreign_text.hpp"

namespace eng {
namespace {

struct Row {
  Fate fate = Fate::ours;
  std::string of, text;
  toml::table more;  // the row of [ours], or the table that lists the name
};
using Rows = std::map<std::string, Row>;

std::string text_of(const toml::table& entry, const char* key) {
  return entry[key].value_or(std::string());
}

// One file of names. Of a name that two files have everywhere, the first counts.
void take_file(const char* text, Rows& out) {
  const toml::table file = parse_toml(text);
  const std::string of = text_of(file, "of"), trainer = text_of(file, "trainer");
  const auto put = [&](const std::string& name, const Row& row) {
    const bool everywhere =
        trainer.empty() || file["everywhere"].value_or(false) || row.more["everywhere"].value_or(false);
    if (everywhere) out.emplace(name, row);
    if (!trainer.empty()) out.emplace(trainer + ":" + name, row);
  };
  const auto list = [&](const toml::table& table, const char* key, const Row& row) {
    if (const toml::array* names = table[key].as_array())
      for (const auto& name : *names) put(name.value_or(std::string()), row);
  };
  if (const toml::table* rows = file["ours"].as_table())
    for (const auto& [name, row] : *rows) {
      const toml::table& more = *row.as_table();
      put(std::string(name.str()), {Fate::ours, more["of"].value_or(of), "", more});
    }
  if (const toml::table* rows = file["alias"].as_table())
    for (const auto& [name, to] : *rows)
      put(std::string(name.str()), {Fate::alias, of, to.value_or(std::string()), {}});
  for (const auto& [fate, key] : {std::pair(Fate::none, "none"),
                                  {Fate::same, "same"},
                                  {Fate::told, "told"},
                                  {Fate::refused, "refused"},
                                  {Fate::job, "job"}})
    if (const toml::array* groups = file[key].as_array())
      for (const auto& group : *groups) {
        const toml::table& table = *group.as_table();
        list(table, "keys", {fate, of, text_of(table, "text"), table});
      }
  list(file, "rules", {Fate::rule, of, "", {}});
  list(file, "sections", {Fate::rule, of, "", toml::table{{"section", true}}});
}

const Rows& names() {
  static const Rows all = [] {
    Rows out;
    for (const char* text : foreign_toml) take_file(text, out);
    return out;
  }();
  return all;
}

const Row* row(const std::string& name) {
  const auto found = names().find(name);
  return found == names().end() ? nullptr : &found->second;
}

std::string bare(const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text ? *text : value.index() == 0 ? "none" : toml_text(value);
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
  } else if (const auto scale = entry["scale"].value<double>()) {
    const auto* whole = std::get_if<int64_t>(&value);
    const auto* number = std::get_if<double>(&value);
    if (whole || number) write((whole ? double(*whole) : *number) * *scale);
  } else if (const toml::array* into = entry["into"].as_array()) {
    spread(*into, value, out);
  } else {
    out.same = !entry.contains("differs");
  }
}

Foreign made(const Row& found, const Value& value) {
  Foreign out{found.of, text_of(found.more, "is")};
  out.why = text_of(found.more, found.more.contains("differs") ? "differs" : "why");
  if (found.fate != Fate::ours) out.why = "remove it: " + found.text;
  out.part_of_steps = found.more["of_steps"].value_or(false);
  if (!out.here.empty()) translate(found.more, value, out);
  if (out.here.empty() || value.index() || !found.more.contains("null")) return out;
  std::string odd;
  out.values = {{out.here, value_of(*found.more.get("null"), odd)}};
  return out;
}

// Sections of DeepSpeed's file whose keys are known by their last word.
const std::set<std::string> by_word = {"zero_optimization", "activation_checkpointing"};

// The row of a name, and how many characters at the name's end are not in it: 0, or those below a section's.
std::pair<const Row*, std::size_t> find_row(const std::string& trainer, const std::string& name) {
  for (const std::string& known : {trainer + ":" + name, name})
    if (const Row* found = row(known)) return {found, 0};
  if (name.starts_with("_")) return {row("_"), 0};  // a comment, as a key
  const auto dot = name.find('.');
  if (dot == std::string::npos || name.size() > 200) return {nullptr, 0};  // longer than every name that is known
  if (by_word.count(name.substr(0, dot)))
    if (const auto inner = find_row(trainer, name.substr(dot + 1)); inner.first) return inner;
  for (auto end = name.rfind('.'); end != std::string::npos && end > 0; end = name.rfind('.', end - 1))
    for (const std::string& known : {trainer + ":" + name.substr(0, end), name.substr(0, end)})
      if (const Row* found = row(known); found && found->fate != Fate::ours && found->fate != Fate::alias &&
                                         (found->fate != Fate::rule || found->more["section"].value_or(false)))
        return {found, name.size() - end};
  return {nullptr, 0};
}

bool equal(const toml::node& listed, const Value& value) {
  const std::string mine = listed.is_string() ? listed.value_or(std::string()) : "";
  const auto* flag = std::get_if<bool>(&value);
  const auto* whole = std::get_if<int64_t>(&value);
  const auto* number = std::get_if<double>(&value);
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (listed.is_boolean()) return lower_case(*text) == (listed.value_or(false) ? "true" : "false");
    return listed.is_string() && lower_case(mine) == lower_case(*text);
  }
  if (flag) return listed.is_boolean() && listed.value_or(false) == *flag;
  if (listed.is_boolean())
    return (whole || number) && (whole ? double(*whole) : *number) == (listed.value_or(false) ? 1 : 0);
  return (whole || number) && listed.is_number() && listed.value_or(0.0) == (whole ? double(*whole) : *number);
}

bool among(const toml::array* list, const Value& value) {
  if (const auto* words = std::get_if<std::vector<std::string>>(&value))
    return !words->empty() &&
           std::all_of(words->begin(), words->end(), [&](const auto& word) { return among(list, Value(word)); });
  return list && std::any_of(list->begin(), list->end(), [&](const auto& one) { return equal(one, value); });
}

// Turned off, or empty.
bool is_off(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    const std::string word = lower_case(*text);
    return word.empty() || word == "none" || word == "no" || word == "false" || word == "null";
  }
  const auto* texts = std::get_if<std::vector<std::string>>(&value);
  const auto* numbers = std::get_if<std::vector<double>>(&value);
  return value.index() == 0 || (texts && texts->empty()) || (numbers && numbers->empty()) || value == Value(false) ||
         value == Value(int64_t{0}) || value == Value(0.0);
}

}  // namespace

std::optional<Foreign> foreign_name(const std::string& section, const std::string& name, const Value& value) {
  const std::string word = name.substr(name.rfind('.') + 1), table = name.substr(0, name.find('.'));
  for (const std::string& known : {section + "." + name, section + "." + word, section + "." + table, table, word}) {
    const Row* found = row(known);
    if (found && found->fate == Fate::alias && !found->text.starts_with("deepspeed:")) {
      const Row* meant = row(found->text);
      if (meant) found = meant;
    }
    if (!found || found->fate == Fate::rule || found->fate == Fate::alias) continue;
    // A name that we have too is no stranger's.
    const std::string here = text_of(found->more, "is");
    if (here.substr(here.find('.') + 1) == known || found->more["conversion"].value_or(false)) continue;
    return made(*found, value);
  }
  return std::nullopt;
}

std::optional<Foreign> translation(const std::string& trainer, const std::string& name, const Value& value) {
  const Row* found = find_row(trainer, name).first;
  if (!found || found->fate != Fate::ours) return std::nullopt;
  Foreign out = made(*found, value);
  if (!found->more.contains("values") || (value.index() == 0 && found->more.contains("null"))) return out;
  // A word that is not listed is none that is known; nor is null.
  const std::string theirs = value.index() ? lower_case(bare(value)) : "";
  for (const auto& [key, ours] : *found->more["values"].as_table())
    if (lower_case(std::string(key.str())) == theirs) return out;
  out.values.clear();
  out.write.clear();
  out.plugin.clear();
  return out;
}

std::optional<Account> account_of(const std::string& trainer, const std::string& name, const Value& value) {
  const auto [found, below] = find_row(trainer, name);
  if (!found) return std::nullopt;
  Account out{found->fate, found->text, below};
  const toml::table& more = found->more;
  const auto listed = [&](const char* key) { return among(more[key].as_array(), value); };
  if (out.fate == Fate::same && more.contains("when") && value.index() && !listed("when")) {
    const bool other = !more.contains("job") || listed("other");
    out.fate = !other ? Fate::job : more["mild"].value_or(false) ? Fate::told : Fate::refused;
    out.text = text_of(more, other ? "otherwise" : "job");
  } else if (out.fate == Fate::told || out.fate == Fate::refused || out.fate == Fate::job) {
    if (value.index() == 0 || (more.contains("off") ? listed("off") : is_off(value))) out.fate = Fate::off;
  }
  return out;
}

std::string foreign_value(const std::string& key, const std::string& word) {
  static const std::set<std::string> ambiguous = {"true", "false", "none"};  // they belong to a name of theirs
  if (ambiguous.count(lower_case(word))) return "";
  for (const auto& [name, known] : names()) {
    const toml::table* values = text_of(known.more, "is") == key ? known.more["values"].as_table() : nullptr;
    if (!values) continue;
    for (const auto& [theirs, ours] : *values)
      if (lower_case(std::string(theirs.str())) == lower_case(word)) return ours.value_or(std::string());
  }
  return "";
}

std::vector<std::string> foreign_names() {
  std::vector<std::string> out;
  for (const auto& entry : names()) out.push_back(entry.first);
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
       "give the TOML file without a flag: engine run CONFIG; `engine config convert FILE` makes one of DeepSpeed's "
       "file or another trainer's"},
      {{"resume_from_checkpoint", "load_checkpoint", "resume_from"},
       "give the run's directory to resume it: engine run RUN"},
      {{"output_dir", "save_dir"}, "--out DIR sets the run's directory"},
      {{"local_rank", "master_addr", "master_port", "nnodes", "node_rank"},
       "ranks find each other through mpirun or srun: docs/ranks.md"},
      {{"max_restarts"},
       "`engine run CONFIG --ranks N --restarts R` starts ranks again after a failure: docs/ranks.md"},
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
