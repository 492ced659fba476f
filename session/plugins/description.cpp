// SPDX-License-Identifier: Apache-2.0
// Reads the TOML description of a plugin (engine/plugin.h).
#include <algorithm>
#include <sstream>

#include "engine/chat.h"
#include "engine/comm.h"
#include "engine/data.h"
#include "engine/documents.h"
#include "engine/job.h"
#include "engine/loss.h"
#include "engine/model.h"
#include "engine/monitor.h"
#include "engine/observer.h"
#include "engine/op.h"
#include "engine/ops.h"
#include "engine/ops_step.h"
#include "engine/optimizer.h"
#include "engine/policy.h"
#include "engine/schedule.h"
#include "engine/tier.h"
#include "engine/tokenizer.h"
#include "session/config/spelling.hpp"
#include "session/config/toml.hpp"
#include "session/plugins/description_parts.hpp"
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

}  // namespace

std::string json_text(const toml::node& node) {
  std::ostringstream out;
  out << toml::json_formatter(node);
  return out.str();
}

void check_patterns(const std::vector<std::string>& patterns, const std::string& where) {
  std::set<size_t> numbers;
  for (const std::string& pattern : patterns) {
    size_t stars = 0;
    for (size_t k = 0; k < pattern.size(); ++k) {
      if (pattern[k] != '*' && pattern[k] != '#') continue;
      need((k == 0 || pattern[k - 1] == '.') && (k + 1 == pattern.size() || pattern[k + 1] == '.'),
           "{}: in '{}', `{}` must stand for a whole part of the name, between dots", where, pattern, pattern[k]);
      stars += pattern[k] == '*';
    }
    need(!pattern.empty(), "{}: a name is empty", where);
    numbers.insert(stars);
  }
  need(numbers.size() == 1, "{}: names must be given, all with the same number of `*`", where);
}

void read_regroup(const toml::node* list, bool split, const std::string& where, std::vector<Regroup>& out) {
  need(!list || list->is_array(), "{} must be a list of tables", where);
  Schema keys = {text("from"), text("to"), {"axis", Type::integer, int64_t{0}, 0, 5}, {"optional", Type::boolean}};
  keys[split ? 1 : 0].type = Type::strings;
  for (size_t k = 0; list && k < list->as_array()->size(); ++k) {
    const std::string entry = fmt::format("{} number {}", where, k + 1);
    const Preset given = read_table(list->as_array()->get(k), keys, entry);
    Regroup made{texts_in(given, "from"), texts_in(given, "to")};
    made.optional = given.count("optional") && std::get<bool>(given.at("optional"));
    if (given.count("axis")) made.axis = std::get<int64_t>(given.at("axis"));
    std::vector<std::string> all = made.files;
    all.insert(all.end(), made.model.begin(), made.model.end());
    check_patterns(all, entry);
    size_t numbers = 0, numbered = 0;
    for (const std::string& name : all) {
      const auto n = static_cast<size_t>(std::count(name.begin(), name.end(), '#'));
      numbers += n, numbered += n == 1 && name != all.back();
    }
    made.numbered = numbers > 0;
    need(!numbers || (!split && numbered == numbers && numbers == made.files.size() && made.axis == 0),
         "{}: `#` is for 'join' with axis 0, once in each name of 'from'", entry);
    need(all.size() > 2 || numbers, "{}: '{}' must have at least two names", entry, split ? "to" : "from");
    need(std::set(all.begin(), all.end()).size() == all.size(), "{}: a name is given twice", entry);
    out.push_back(std::move(made));
  }
}

namespace {

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

// The kinds that this engine uses, each with the id of the draft that it speaks. Of a frozen kind this is the last
// draft, with the same tables, which a file need not state.
enum class Accepts : uint8_t {
  own,       // only this draft
  previous,  // the one before it too, with a warning: tables have only grown at their ends, what was there means what
             // it meant, and required_bytes of core/registry/registry.hpp tells which bytes of a table it had
  frozen
};
struct KnownKind {
  const char *id, *draft;
  Accepts accepts = Accepts::own;
};
constexpr size_t most_begin_bytes = 64;
constexpr KnownKind known_kinds[] = {
    {ENG_MODEL_KIND, ENG_MODEL_DRAFT, Accepts::previous},
    {ENG_OPTIMIZER_KIND, ENG_OPTIMIZER_DRAFT, Accepts::previous},
    {ENG_DATA_KIND, "eng.data/1-draft3", Accepts::frozen},
    {ENG_DOCUMENTS_KIND, ENG_DOCUMENTS_DRAFT},
    {ENG_TOKENIZER_KIND, "eng.tokenizer/1-draft1", Accepts::frozen},
    {ENG_CHAT_KIND, ENG_CHAT_DRAFT},
    {ENG_DEVICE_KIND, ENG_DEVICE_DRAFT, Accepts::previous},
    {ENG_KERNELS_KIND, ENG_KERNELS_DRAFT, Accepts::previous},  // but see changed_ops
    {ENG_OPS_KIND, ENG_OPS_DRAFT},                             // an eng_op, which lies in a list, has grown
    {ENG_COMM_KIND, ENG_COMM_DRAFT, Accepts::previous},
    {ENG_PRECISION_KIND, ENG_PRECISION_DRAFT, Accepts::previous},
    {ENG_ZERO_KIND, ENG_ZERO_DRAFT},  // one that computes with weights may take packed ones for numbers
    {ENG_TIER_KIND, ENG_TIER_DRAFT, Accepts::previous},
    {ENG_SCHEDULE_KIND, "eng.schedule/1-draft1", Accepts::frozen},
    {ENG_OBSERVER_KIND, ENG_OBSERVER_DRAFT, Accepts::previous},
    {ENG_MONITOR_KIND, ENG_MONITOR_DRAFT},
    {ENG_JOB_KIND, ENG_JOB_DRAFT, Accepts::previous},
    {ENG_TRANSFORM_KIND, ENG_TRANSFORM_DRAFT},
    {ENG_LOSS_KIND, ENG_LOSS_DRAFT},
};

// Ops that an engine of the draft before of eng.kernels/1 defines otherwise, by an input, an attribute or an order of
// summation. A kernel of that draft would compute what they were.
const std::vector<std::string> changed_ops = {
    ENG_OP_ROPE,          ENG_OP_ATTENTION,          ENG_OP_ATTENTION_GRAD, ENG_OP_POSITIONS, ENG_OP_POSITIONS_GRAD,
    ENG_OP_CROSS_ENTROPY, ENG_OP_CROSS_ENTROPY_GRAD, ENG_OP_PUT_ROW,        ENG_OP_FINISH};

constexpr std::string_view draft_mark = "-draft";

// The kind and the number of "eng.optimizer/1-draft6"; no number, and the text as it is, if it states no draft.
std::pair<std::string, std::string> split_draft(const std::string& id) {
  const size_t slash = id.find('/'), mark = slash == id.npos ? id.npos : id.find(draft_mark, slash);
  if (mark == id.npos || !id.starts_with("eng.")) return {id, ""};
  const std::string number = id.substr(mark + draft_mark.size());
  const bool good = !number.empty() && number.size() < 10 && number.find_first_not_of("0123456789") == number.npos;
  return good ? std::pair(id.substr(0, mark), number) : std::pair(id, std::string());
}

// The id of a draft that [drafts] states: "eng.optimizer/1-draft6" of 'eng.optimizer/1' = 'optimizer-6'. What has
// another form stays as it is, and is the draft of no engine.
std::string id_of_draft(const std::string& kind, const std::string& stated) {
  if (!kind.starts_with("eng.")) return stated;
  const std::string before = kind.substr(4, kind.find('/') - 4) + "-";
  return stated.starts_with(before) ? fmt::format("{}{}{}", kind, draft_mark, stated.substr(before.size())) : stated;
}

// Sets `refused` if this engine cannot use what was built from this draft, and `old` if it warns. Kinds outside "eng."
// are not checked, unless they are nearly one of the engine's.
void judge(Provided& one) {
  std::vector<std::string> all;
  for (const KnownKind& k : known_kinds) all.emplace_back(k.id);
  const auto near = nearest(one.kind, all);
  if (!one.kind.starts_with("eng.") && near.empty()) return;
  const auto* const known = std::find_if(std::begin(known_kinds), std::end(known_kinds),
                                         [&](const KnownKind& k) { return one.kind == k.id; });
  if (known == std::end(known_kinds)) {
    one.refused = fmt::format("this engine has no kind {}; {}", one.kind,
                              near.empty() ? fmt::format("the kinds are {}", fmt::join(all, ", "))
                                           : fmt::format("did you mean {}?", fmt::join(near, " or ")));
    return;
  }
  const bool frozen = known->accepts == Accepts::frozen;
  if (one.draft == known->draft || (frozen && one.draft.empty())) return;
  if (one.draft.empty()) {
    one.refused = fmt::format(
        "{}: the description does not say which draft of it the plugin was built from: write kind = '{}', the "
        "constant ENG_..._DRAFT of its header",
        one.kind, known->draft);
    return;
  }
  const auto number = [](const std::string& id) {
    const std::string text = split_draft(id).second;
    return text.empty() ? 0 : std::stol(text);
  };
  if (known->accepts != Accepts::previous || number(one.draft) == 0 || number(one.draft) + 1 != number(known->draft)) {
    one.refused = fmt::format("built from draft {}, this engine speaks {}{}: rebuild the plugin", one.draft,
                              frozen ? fmt::format("{} and its last draft ", one.kind) : "", known->draft);
    return;
  }
  if (one.kind == ENG_KERNELS_KIND) one.changed_ops = changed_ops;
  one.old = fmt::format("built from draft {}, which this engine still accepts{}: rebuild the plugin for {}", one.draft,
                        one.changed_ops.empty()
                            ? ""
                            : fmt::format(", but for kernels of {}, which have changed", fmt::join(changed_ops, ", ")),
                        known->draft);
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
    Option group{"group", Type::integer};
    group.min = 1, group.max = 64;
    all.push_back(group);
    for (const char* list : {"devices", "begins", "constants", "endings"}) all.push_back({list, Type::strings});
    all.push_back(text("fallback", false));
    for (const char* flag : {"usual", "weighted_mean"}) all.push_back({flag, Type::boolean});
    return all;
  }();
  return keys;
}

// [provides.fit]: `engine plan --fit` may choose it.
Preset read_fit(const toml::node* node, const std::string& kind, const std::string& where) {
  Option order{"order", Type::integer};
  order.required = true, order.min = 0, order.max = 1e6;
  const bool optimizer = kind == ENG_OPTIMIZER_KIND, tier = kind == ENG_TIER_KIND, zero = kind == ENG_ZERO_KIND;
  need(optimizer || tier || zero || kind == ENG_PRECISION_KIND,
       "{}: --fit chooses only number formats, strategies, tiers and optimizers", where);
  Option instead{"instead_of", Type::strings};
  instead.required = optimizer;
  Schema keys = {order, text("effect", optimizer)};
  if (optimizer) keys.push_back(instead);
  if (zero) keys.push_back({"same_as", Type::strings}), keys.push_back(text("group", false));
  if (zero) keys.push_back({"lossy", Type::strings});
  if (tier) keys.push_back({"discrete", Type::boolean});
  return read_table(node, keys, where);
}

Provided read_provided(const toml::node& node, size_t number, const Preset& drafts) {
  std::string where = fmt::format("description, [[provides]] number {}", number);
  need(node.is_table(), "{} must be a table", where);
  // The draft is checked first: another draft may have keys that this engine does not know.
  Provided out{split_draft((*node.as_table())["kind"].value_or(std::string())).first, {}, {}, {}};
  const std::string stated = (*node.as_table())["kind"].value_or(std::string());
  out.draft = stated != out.kind       ? stated
              : drafts.count(out.kind) ? id_of_draft(out.kind, text_in(drafts, out.kind))
                                       : "";
  if (is_kind(out.kind)) judge(out);
  if (!out.refused.empty()) {
    out.name = (*node.as_table())["name"].value_or(std::string());
    need(is_word(out.name, "-."), "{}: '{}' is not a name (a-z, 0-9, _ - .)", where, out.name);
    return out;
  }
  out.facts = read_table(&node, provided_keys(), where, {"options", "presets", "pretrained", "gguf", "fit"});
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
  if (const toml::node* fit = table.get("fit")) out.fit = read_fit(fit, out.kind, where + " 'fit'");
  if (const toml::node* pretrained = table.get("pretrained"))
    out.schema.pretrained = std::make_shared<const Pretrained>(read_pretrained(*pretrained, where + " 'pretrained'"));
  if (const toml::node* gguf = table.get("gguf")) {
    Pretrained with = pretrained_of(out.schema);
    with.gguf = read_gguf(*gguf, where + " 'gguf'", out.schema.options);
    out.schema.pretrained = std::make_shared<const Pretrained>(std::move(with));
  }
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
