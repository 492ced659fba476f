// SPDX-License-Identifier: Apache-2.0
// Reads the TOML description of a plugin (engine/plugin.h).
#include <algorithm>
#include <sstream>

#include "engine/comm.h"
#include "engine/data.h"
#include "engine/documents.h"
#include "engine/job.h"
#include "engine/loss.h"
#include "engine/model.h"
#include "engine/monitor.h"
#include "engine/observer.h"
#include "engine/op.h"
#include "engine/optimizer.h"
#include "engine/policy.h"
#include "engine/schedule.h"
#include "engine/tokenizer.h"
#include "session/config/spelling.hpp"
#include "session/config/toml.hpp"
#include "session/plugins/plugin_file.hpp"

namespace eng {
namespace {

Option text(const char* key, bool required = true) {
  Option option{key};
  option.required = required;
  return option;
}

bool is_dotted(const std::string& text) {  // "org.example.name"
  return is_word(text, ".-") && text.find('.') != std::string::npos;
}

bool is_kind(const std::string& kind) {  // "org.example.name/1"
  const size_t slash = std::min(kind.find('/'), kind.size());
  return is_dotted(kind.substr(0, slash)) && slash + 1 < kind.size() &&
         kind.find_first_not_of("0123456789", slash + 1) == std::string::npos;
}

std::string json_text(const toml::node& node) {
  std::ostringstream out;
  out << toml::json_formatter(node);
  return out.str();
}

// [["from", "to"], ...]
Pretrained::Pairs read_pairs(const toml::node* list, const std::string& where) {
  Pretrained::Pairs out;
  need(!list || list->is_array(), "{} must be a list of pairs of texts", where);
  for (size_t k = 0; list && k < list->as_array()->size(); ++k) {
    std::string odd;
    const Value pair = value_of(*list->as_array()->get(k), odd);
    const auto* texts = std::get_if<std::vector<std::string>>(&pair);
    need(texts && texts->size() == 2, "{} must be a list of pairs of texts", where);
    out.emplace_back(texts->front(), texts->back());
  }
  return out;
}

// In a pattern of a name, `*` stands for one part between dots; patterns of one entry have as many of them.
void check_patterns(const std::vector<std::string>& patterns, const std::string& where) {
  std::set<size_t> numbers;
  for (const std::string& pattern : patterns) {
    size_t stars = 0;
    for (size_t k = 0; k < pattern.size(); ++k) {
      if (pattern[k] != '*') continue;
      need((k == 0 || pattern[k - 1] == '.') && (k + 1 == pattern.size() || pattern[k + 1] == '.'),
           "{}: in '{}', `*` must stand for a whole part of the name, between dots", where, pattern);
      ++stars;
    }
    need(!pattern.empty(), "{}: a name is empty", where);
    numbers.insert(stars);
  }
  need(numbers.size() == 1, "{}: names must be given, all with the same number of `*`", where);
}

// [{ from = "...", to = ["...", ...], axis = 0 }, ...]; in `join` it is `from` that is a list.
void read_regroup(const toml::node* list, bool split, const std::string& where, std::vector<Regroup>& out) {
  need(!list || list->is_array(), "{} must be a list of tables", where);
  Schema keys = {text("from"), text("to"), {"axis", Type::integer, int64_t{0}, 0, 5}};
  keys[split ? 1 : 0].type = Type::strings;
  for (size_t k = 0; list && k < list->as_array()->size(); ++k) {
    const std::string entry = fmt::format("{} number {}", where, k + 1);
    const Preset given = read_table(list->as_array()->get(k), keys, entry);
    Regroup made{texts_in(given, "from"), texts_in(given, "to")};
    if (given.count("axis")) made.axis = std::get<int64_t>(given.at("axis"));
    std::vector<std::string> all = made.files;
    all.insert(all.end(), made.model.begin(), made.model.end());
    check_patterns(all, entry);
    need(all.size() > 2, "{}: '{}' must have at least two names", entry, split ? "to" : "from");
    need(std::set(all.begin(), all.end()).size() == all.size(), "{}: a name is given twice", entry);
    out.push_back(std::move(made));
  }
}

Pretrained read_pretrained(const toml::node& node, const std::string& where) {
  const toml::table* inside = node.as_table();
  Schema keys = {text("model_type")};
  if (inside && (*inside)["model_type"].is_array()) keys[0].type = Type::strings;
  for (const char* key : {"architectures", "recognise", "ignore", "ignore_tensors", "transpose"})
    keys.push_back({key, Type::strings});
  const Preset given = read_table(&node, keys, where, {"fixed", "write", "rename", "tied", "split", "join"});
  const toml::table& table = *inside;
  Pretrained out{texts_in(given, "model_type"),
                 texts_in(given, "architectures"),
                 texts_in(given, "recognise"),
                 {},
                 {},
                 texts_in(given, "ignore"),
                 read_pairs(table.get("rename"), where + " 'rename'"),
                 read_pairs(table.get("tied"), where + " 'tied'"),
                 texts_in(given, "ignore_tensors"),
                 texts_in(given, "transpose"),
                 {}};
  for (const std::string& pattern : out.transpose) check_patterns({pattern}, where + " 'transpose'");
  read_regroup(table.get("split"), true, where + " 'split'", out.regroup);
  read_regroup(table.get("join"), false, where + " 'join'", out.regroup);
  need(!out.model_types.empty() && !std::count(out.model_types.begin(), out.model_types.end(), ""),
       "{} 'model_type' must be one or more names", where);
  if (const toml::node* fixed = table.get("fixed"))
    for (const auto& [path, value] : eng::entries(fixed, where + " 'fixed'")) {
      auto& supported = out.fixed[path];
      if (!value->is_array()) supported.push_back(json_text(*value));
      for (size_t k = 0; value->is_array() && k < value->as_array()->size(); ++k)
        supported.push_back(json_text(*value->as_array()->get(k)));
    }
  if (const toml::node* write = table.get("write"))
    for (const auto& [path, value] : eng::entries(write, where + " 'write'")) out.write[path] = json_text(*value);
  return out;
}

// The kinds that this engine uses. `draft`: the one that it speaks; of a frozen kind, the last one, with the same
// tables, which a file need not state.
struct KnownKind {
  const char *id, *draft;
  bool frozen = false;
};
constexpr size_t most_begin_bytes = 64;
constexpr KnownKind known_kinds[] = {
    {ENG_MODEL_KIND, ENG_MODEL_DRAFT},         {ENG_OPTIMIZER_KIND, ENG_OPTIMIZER_DRAFT},
    {ENG_DATA_KIND, "data-3", true},           {ENG_DOCUMENTS_KIND, ENG_DOCUMENTS_DRAFT},
    {ENG_TOKENIZER_KIND, "tokenizer-1", true}, {ENG_DEVICE_KIND, ENG_DEVICE_DRAFT},
    {ENG_KERNELS_KIND, ENG_KERNELS_DRAFT},     {ENG_OPS_KIND, ENG_OPS_DRAFT},
    {ENG_COMM_KIND, ENG_COMM_DRAFT},           {ENG_PRECISION_KIND, ENG_PRECISION_DRAFT},
    {ENG_ZERO_KIND, ENG_ZERO_DRAFT},           {ENG_TIER_KIND, ENG_TIER_DRAFT},
    {ENG_SCHEDULE_KIND, "schedule-1", true},   {ENG_OBSERVER_KIND, ENG_OBSERVER_DRAFT},
    {ENG_MONITOR_KIND, ENG_MONITOR_DRAFT},     {ENG_JOB_KIND, ENG_JOB_DRAFT},
    {ENG_TRANSFORM_KIND, ENG_TRANSFORM_DRAFT}, {ENG_LOSS_KIND, ENG_LOSS_DRAFT},
};

// The reason why this engine cannot use a kind, given the plugin's `drafts`; "" if it can. Kinds outside "eng." are not
// checked, unless they are nearly one of the engine's.
std::string refusal(const std::string& kind, const Preset& drafts) {
  std::vector<std::string> all;
  for (const KnownKind& k : known_kinds) all.emplace_back(k.id);
  const auto near = nearest(kind, all);
  if (!kind.starts_with("eng.") && near.empty()) return "";
  const auto* const known =
      std::find_if(std::begin(known_kinds), std::end(known_kinds), [&](const KnownKind& k) { return kind == k.id; });
  if (known == std::end(known_kinds)) {
    return fmt::format("this engine has no kind {}; {}", kind,
                       near.empty() ? fmt::format("the kinds are {}", fmt::join(all, ", "))
                                    : fmt::format("did you mean {}?", fmt::join(near, " or ")));
  }
  if (!drafts.count(kind)) {
    if (known->frozen) return "";
    return fmt::format(
        "{}: the description does not say which draft of it the plugin was built from: include its header before "
        "ENG_DESCRIPTION or, in a description written by hand, add [drafts] '{}' = '{}'",
        kind, kind, known->draft);
  }
  const std::string theirs = text_in(drafts, kind);
  if (theirs == known->draft) return "";
  return fmt::format("{}: built from draft '{}' of it, this engine speaks {}draft '{}': rebuild the plugin", kind,
                     theirs, known->frozen ? "1.0 and its last " : "", known->draft);
}

Preset read_drafts(const toml::table& root) {
  Preset out;
  if (const toml::node* drafts = root.get("drafts"))
    for (const auto& [kind, node] : eng::entries(drafts, "description, [drafts]")) {
      need(node->is_string(), "description, [drafts]: '{}' must be a text", kind);
      out[kind] = **node->as_string();
    }
  return out;
}

// The keys of an entry of [[provides]] that are no tables.
const Schema& provided_keys() {
  static const Schema keys = [] {
    Schema all = {text("kind"), text("name"), text("summary", false)};
    Option arch{"least_arch", Type::integer};
    arch.min = 0, arch.max = UINT32_MAX;
    all.push_back(arch);
    for (const char* list : {"devices", "begins", "endings"}) all.push_back({list, Type::strings});
    all.push_back(text("fallback", false));
    return all;
  }();
  return keys;
}

Provided read_provided(const toml::node& node, size_t number, const Preset& drafts) {
  std::string where = fmt::format("description, [[provides]] number {}", number);
  need(node.is_table(), "{} must be a table", where);
  // The draft is checked first: another draft may have keys that this engine does not know.
  Provided out{(*node.as_table())["kind"].value_or(std::string()), {}, {}, {}};
  out.refused = is_kind(out.kind) ? refusal(out.kind, drafts) : "";
  if (!out.refused.empty()) {
    out.name = (*node.as_table())["name"].value_or(std::string());
    need(is_word(out.name, "-."), "{}: '{}' is not a name (a-z, 0-9, _ - .)", where, out.name);
    return out;
  }
  out.facts = read_table(&node, provided_keys(), where, {"options", "presets", "pretrained"});
  out.name = text_in(out.facts, "name"), out.summary = text_in(out.facts, "summary");
  need(is_kind(out.kind), "{}: kind '{}' is not of the form eng.optimizer/1 or org.example.thing/1", where, out.kind);
  need(is_word(out.name, "-."), "{}: '{}' is not a name (a-z, 0-9, _ - .)", where, out.name);
  where = fmt::format("description of {} '{}',", out.kind, out.name);
  for (const std::string& bytes : texts_in(out.facts, "begins"))
    need(!bytes.empty() && bytes.size() % 2 == 0 && bytes.size() <= 2 * most_begin_bytes &&
             bytes.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos,
         "{} begins: '{}' is not 1 to {} bytes in hexadecimal", where, bytes, most_begin_bytes);
  for (const std::string& ending : texts_in(out.facts, "endings"))
    need(ending.size() > 1 && ending[0] == '.', "{} endings: '{}' does not begin with a dot", where, ending);
  const toml::table& table = *node.as_table();
  if (const toml::node* options = table.get("options")) out.schema.options = read_options(options, where);
  for (const Option& option : out.schema.options)
    need(option.type != Type::tables, "{} option '{}': no plugin can read tables", where, option.key);
  // [offload] has the options of all tiers.
  for (const Option& option : out.schema.options)
    need(out.kind != ENG_TIER_KIND || option.key.starts_with(out.name + "_"),
         "{} option '{}': the name of a tier's option begins with that of the tier: {}_", where, option.key, out.name);
  if (const toml::node* pretrained = table.get("pretrained"))
    out.schema.pretrained = read_pretrained(*pretrained, where + " 'pretrained'");
  Schema keys = out.schema.options;
  for (Option& option : keys) option.required = false;  // a preset need not set every option
  if (!find_option(keys, "called")) keys.push_back({"called"});
  if (const toml::node* presets = table.get("presets"))
    for (const auto& [name, preset] : eng::entries(presets, where + " 'presets'"))
      out.schema.presets[name] = read_table(preset, keys, fmt::format("{} preset '{}'", where, name));
  return out;
}

void read_description(const toml::table& root, Description& out) {
  // The draft is checked first: another draft may have keys that this engine does not know.
  const std::string draft = root["draft"].value_or(std::string(ENG_ABI_DRAFT_ID));  // a key from before the freeze
  need(speaks(draft), "built from ABI draft '{}', this engine speaks ABI {}: rebuild the plugin", draft,
       ENG_ABI_DRAFT_ID);
  read_table(&root, {text("draft", false)}, "description", {"drafts", "plugin", "provides"});
  const Preset drafts = read_drafts(root);
  const std::string where = "description, [plugin]";
  const Preset plugin = read_table(root.get("plugin"),
                                   {text("id"), text("name"), text("version"), text("license"), text("summary", false),
                                    Option{"uses", Type::strings}},
                                   where);
  out.id = text_in(plugin, "id");
  need(is_dotted(out.id), "{}: id '{}' is not of the form org.example.name", where, out.id);
  out.name = text_in(plugin, "name");
  out.version = text_in(plugin, "version");
  out.license = text_in(plugin, "license");
  out.summary = text_in(plugin, "summary");
  out.uses = texts_in(plugin, "uses");
  for (const std::string& op : out.uses)
    need(is_kind(op), "{}: 'uses' has '{}', which is not the id of an op, such as org.example.scan/1", where, op);
  const toml::array* provides = root["provides"].as_array();
  need(provides && !provides->empty(), "description: [[provides]] is missing: the plugin offers nothing");
  std::set<std::pair<std::string, std::string>> seen;
  for (const toml::node& node : *provides) {
    const Provided& one = out.provides.emplace_back(read_provided(node, out.provides.size() + 1, drafts));
    need(seen.emplace(one.kind, one.name).second, "description: {} '{}' is provided twice", one.kind, one.name);
  }
}

}  // namespace

std::string parse_description(const std::string& text, Description& out) {
  out = Description();
  out.text = text;
  try {
    read_description(parse_toml(text), out);
    return "";
  } catch (const BadToml& bad) {
    return fmt::format("description is not TOML: line {}, column {}: {}", bad.line, bad.column, bad.what());
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace eng
