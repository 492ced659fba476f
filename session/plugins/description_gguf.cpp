// SPDX-License-Identifier: Apache-2.0
// Reads [provides.gguf] of a plugin's description.
#include <algorithm>

#include "session/plugins/description_parts.hpp"

namespace eng {
namespace {

using Patterns = std::vector<std::string>;

// The values that options must have: { OPTION = VALUE, ... }.
std::map<std::string, Value> read_where(const toml::node* node, const Schema& options, const std::string& where) {
  std::map<std::string, Value> out;
  if (!node) return out;
  for (const auto& [option, value] : eng::entries(node, where + " 'where'")) {
    need(find_option(options, option) != nullptr, "{} 'where': there is no option '{}'", where, option);
    std::string odd;
    out[option] = value_of(*value, odd);
    need(odd.empty(), "{} 'where': '{}' has no usable value", where, option);
  }
  return out;
}

struct NamedKind {
  const char* name;
  GgufTerm::Kind kind;
  size_t least, most;  // factors
};
constexpr NamedKind kinds[] = {
    {"product", GgufTerm::Kind::product, 2, 16}, {"quotient", GgufTerm::Kind::quotient, 2, 2},
    {"ratio", GgufTerm::Kind::ratio, 2, 2},      {"root", GgufTerm::Kind::root, 1, 1},
    {"least", GgufTerm::Kind::least, 2, 16},     {"value", GgufTerm::Kind::product, 1, 1},
    {"length", GgufTerm::Kind::length, 1, 1},    {"entry", GgufTerm::Kind::entry, 2, 2}};

// "OPTION", 3, true, or { KIND = [...] } of such terms, with `where`.
GgufTerm read_term(const toml::node& node, const Schema& options, const std::string& where) {
  GgufTerm out;
  const toml::table* table = node.as_table();
  if (!table) {
    std::string odd;
    out.constant = value_of(node, odd);
    if (const auto* option = std::get_if<std::string>(&out.constant)) {
      need(find_option(options, *option) != nullptr, "{}: there is no option '{}'", where, *option);
      out.kind = GgufTerm::Kind::option, out.option = *option;
    } else {
      need(node.is_number() || node.is_boolean(), "{} must be the name of an option, a number, true or false", where);
    }
    return out;
  }
  const toml::node* condition = table->get("where");
  const auto found =
      std::find_if(std::begin(kinds), std::end(kinds), [&](const NamedKind& k) { return table->contains(k.name); });
  need(found != std::end(kinds) && table->size() == (condition ? 2u : 1u),
       "{} must be {{ product = [...] }}, {{ quotient = [...] }}, {{ ratio = [...] }}, {{ root = ... }}, "
       "{{ least = [...] }}, {{ length = OPTION }}, {{ entry = [OPTION, NUMBER] }} or {{ value = ... }}, with or "
       "without "
       "'where'",
       where);
  const toml::node& given = *table->get(found->name);
  std::vector<const toml::node*> factors;
  if (const toml::array* list = given.as_array())
    for (const toml::node& one : *list) factors.push_back(&one);
  else
    factors.push_back(&given);
  need(factors.size() >= found->least && factors.size() <= found->most, "{}: '{}' has {} to {} factors", where,
       found->name, found->least, found->most);
  for (const toml::node* factor : factors) {
    need(!factor->is_boolean() || found->most == 1, "{}: a factor must be the name of an option, or a number", where);
    out.factors.push_back(read_term(*factor, options, where));
  }
  out.kind = found->kind;
  if (std::string_view(found->name) == "value") out = GgufTerm(out.factors.front());
  if (out.kind == GgufTerm::Kind::length) {
    need(out.factors.front().kind == GgufTerm::Kind::option, "{}: 'length' is of an option", where);
    out.option = out.factors.front().option, out.factors.clear();
  }
  if (out.kind == GgufTerm::Kind::entry) {
    const auto* place = std::get_if<int64_t>(&out.factors[1].constant);
    need(out.factors[0].kind == GgufTerm::Kind::option && place && *place >= 0,
         "{}: 'entry' is of an option, and has the number of one of its entries, counted from 0", where);
    out.option = out.factors[0].option, out.place = *place, out.factors.clear();
  }
  for (auto& [option, value] : read_where(condition, options, where)) out.where[option] = std::move(value);
  return out;
}

// One term, or a list of which the first counts that has a value.
GgufValue read_value(const toml::node& node, const Schema& options, const std::string& where) {
  GgufValue out;
  const toml::array* list = node.as_array();
  if (!list) return {read_term(node, options, where)};
  need(!list->empty(), "{}: the list is empty", where);
  for (const toml::node& one : *list) out.push_back(read_term(one, options, where));
  return out;
}

// A key of a table that must be there.
const toml::node& part_of(const toml::node& node, const char* key, const std::string& where) {
  const toml::node* found = node.is_table() ? node.as_table()->get(key) : nullptr;
  need(found != nullptr, "{} must be a table with '{}'", where, key);
  return *found;
}

Value constant_at(const toml::node& node, const char* key, const std::string& where) {
  std::string odd;
  Value out = value_of(part_of(node, key, where), odd);
  need(odd.empty(), "{}: '{}' has no usable value", where, key);
  return out;
}

Patterns read_names(const toml::node& node, const std::string& where) {
  Patterns out;
  const toml::array* list = node.as_array();
  for (size_t k = 0; list && k < list->size(); ++k)
    if (list->get(k)->is_string()) out.push_back(**list->get(k)->as_string());
  need(list && !out.empty() && out.size() == list->size(), "{} must be a list of texts", where);
  return out;
}

// { from = "...", groups = ..., parts = [...], to = [...] }
GgufGrouped read_grouped(const toml::node& node, const Schema& options, const std::string& where) {
  const toml::node& from = part_of(node, "from", where);
  need(from.is_string() && node.as_table()->size() == 4, "{} must be {{ from, groups, parts, to }}", where);
  GgufGrouped out{**from.as_string(), read_value(part_of(node, "groups", where), options, where), {}, {}};
  const toml::node& parts = part_of(node, "parts", where);
  need(parts.is_array(), "{}: 'parts' must be a list", where);
  for (const toml::node& one : *parts.as_array()) out.parts.push_back(read_value(one, options, where + " 'parts'"));
  out.to = read_names(part_of(node, "to", where), where + " 'to'");
  Patterns all = out.to;
  all.push_back(out.from);
  check_patterns(all, where);
  need(out.to.size() == 1 || out.to.size() == out.parts.size(), "{}: 'to' has one name, or one for each part", where);
  return out;
}

// { of = [...], entries = [...], is = ..., others = ... }, of a list of numbers without entries; or { every, from, is,
// others }
GgufByLayer read_by_layer(const toml::node& node, const Schema& options, const std::string& where) {
  const auto value = [&](const char* key) { return read_value(part_of(node, key, where), options, where); };
  GgufByLayer out{{}, {}, value("is"), value("others")};
  if (node.as_table()->contains("every")) {
    out.every = value("every"), out.from = value("from");
    need(node.as_table()->size() == 4, "{} must be {{ every, from, is, others }}", where);
    return out;
  }
  out.options = read_names(part_of(node, "of", where), where + " 'of'");
  const toml::node* entries = node.as_table()->get("entries");
  if (entries) out.entries = read_names(*entries, where + " 'entries'");
  need(node.as_table()->size() == (entries ? 4u : 3u), "{} must be {{ of, entries, is, others }}", where);
  for (const std::string& option : out.options)
    need(find_option(options, option) != nullptr, "{}: there is no option '{}'", where, option);
  return out;
}

// [{ rows = ..., by = [...] }, ...]
std::vector<GgufScale> read_scale(const toml::node& node, const Schema& options, const std::string& where) {
  std::vector<GgufScale> out;
  const toml::array* parts = node.as_array();
  need(parts && !parts->empty(), "{} must be a list of {{ rows, by }}", where);
  for (const toml::node& one : *parts) {
    GgufScale& part = out.emplace_back();
    const toml::node& by = part_of(one, "by", where);
    need(by.is_array() && one.as_table()->size() == (parts->size() > 1 ? 2u : 1u),
         "{} must be {{ by = [...] }}, or several of {{ rows, by }}", where);
    if (parts->size() > 1) part.rows = read_value(part_of(one, "rows", where), options, where + " 'rows'");
    for (const toml::node& factor : *by.as_array()) part.by.push_back(read_value(factor, options, where + " 'by'"));
  }
  return out;
}

// { text = "...", given = "OPTION", where = {...} }
GgufNote read_note(const toml::node& node, const Schema& options, const std::string& where) {
  const toml::node& text = part_of(node, "text", where);
  const toml::node *condition = node.as_table()->get("where"), *given = node.as_table()->get("given");
  const size_t known = 1u + (condition ? 1u : 0u) + (given ? 1u : 0u);
  need(text.is_string() && (!given || given->is_string()) && node.as_table()->size() == known,
       "{} must be {{ text, given, where }}", where);
  GgufNote out{**text.as_string(), given ? **given->as_string() : "", read_where(condition, options, where)};
  need(!given || find_option(options, out.given), "{}: there is no option '{}'", where, out.given);
  return out;
}

// The items of a list of tables; none if it is not there.
std::vector<const toml::node*> listed(const toml::table& table, const char* key, const std::string& where) {
  std::vector<const toml::node*> out;
  const toml::node* node = table.get(key);
  need(!node || node->is_array(), "{} '{}' must be a list of tables", where, key);
  if (node)
    for (const toml::node& one : *node->as_array()) out.push_back(&one);
  return out;
}

// The entries of a table inside of `table`; none if it is not there.
std::vector<std::pair<std::string, const toml::node*>> inside(const toml::table& table, const char* key,
                                                              const std::string& where) {
  const toml::node* node = table.get(key);
  if (!node) return {};
  return eng::entries(node, fmt::format("{} '{}'", where, key));
}

using Names = std::vector<std::pair<std::string, std::string>>;
using Keys = std::vector<std::pair<std::string, GgufValue>>;

Names read_tensors(const toml::table& table, const std::string& where) {
  Names out;
  for (const auto& [name, to] : inside(table, "tensors", where)) {
    need(to->is_string(), "{} 'tensors': '{}' must be a text", where, name);
    check_patterns({name, **to->as_string()}, where + " 'tensors'");
    out.emplace_back(name, **to->as_string());
  }
  return out;
}

Keys read_keys(const toml::table& table, const Schema& options, const std::string& where) {
  Keys out;
  for (const auto& [key, value] : inside(table, "keys", where))
    out.emplace_back(key, read_value(*value, options, fmt::format("{} 'keys': '{}'", where, key)));
  return out;
}

// { where, architecture, tensors, keys }
GgufVariant read_variant(const toml::node& node, const Schema& options, const std::string& where) {
  const Preset given = read_table(&node, {{"architecture"}}, where, {"where", "tensors", "keys"});
  const toml::table& table = *node.as_table();
  GgufVariant out{read_where(&part_of(node, "where", where), options, where), text_in(given, "architecture"),
                  read_tensors(table, where), read_keys(table, options, where)};
  need(out.architecture.empty() || is_word(out.architecture, "-"), "{} 'architecture' is not a name (a-z, 0-9, _ -)",
       where);
  return out;
}

}  // namespace

std::shared_ptr<const GgufModel> read_gguf(const toml::node& node, const std::string& where, const Schema& options) {
  Schema keys = {{"none"}, {"architecture"}};
  for (const char* key : {"rope", "squeeze", "negative_exp", "plus_one", "f32", "transpose"})
    keys.push_back({key, Type::strings});
  const Preset given = read_table(&node, keys, where,
                                  {"tensors", "keys", "require", "fixed", "layers", "by_layer", "interleave", "rows",
                                   "grouped", "notes", "split", "join", "variants", "scale"});
  const toml::table& table = *node.as_table();
  auto out = std::make_shared<GgufModel>();
  out->none = text_in(given, "none");
  if (!out->none.empty()) {
    need(table.size() == 1, "{}: with 'none', the reason why there is no file, nothing else can be given", where);
    return out;
  }
  out->architecture = text_in(given, "architecture");
  need(is_word(out->architecture, "-"), "{} 'architecture' is not a name (a-z, 0-9, _ -)", where);
  out->rope = texts_in(given, "rope");
  const auto patterns = [&](const char* key) {
    const Patterns list = texts_in(given, key);
    for (const std::string& pattern : list) check_patterns({pattern}, fmt::format("{} '{}'", where, key));
    return list;
  };
  out->squeeze = patterns("squeeze"), out->negative_exp = patterns("negative_exp");
  out->plus_one = patterns("plus_one"), out->f32 = patterns("f32");
  out->arrangement.transpose = patterns("transpose");
  read_regroup(table.get("split"), true, where + " 'split'", out->arrangement.regroup);
  read_regroup(table.get("join"), false, where + " 'join'", out->arrangement.regroup);
  out->tensors = read_tensors(table, where), out->keys = read_keys(table, options, where);
  for (const auto& [key, value] : inside(table, "require", where))
    out->require[key] = read_value(*value, options, fmt::format("{} 'require': '{}'", where, key));
  const auto by_pattern = [&](const char* key, std::map<std::string, GgufValue>& to) {
    for (const auto& [pattern, value] : inside(table, key, where)) {
      check_patterns({pattern}, fmt::format("{} '{}'", where, key));
      to[pattern] = read_value(*value, options, fmt::format("{} '{}': '{}'", where, key, pattern));
    }
  };
  by_pattern("interleave", out->interleave), by_pattern("rows", out->rows);
  for (const auto& [pattern, parts] : inside(table, "scale", where)) {
    check_patterns({pattern}, where + " 'scale'");
    out->scale[pattern] = read_scale(*parts, options, fmt::format("{} 'scale': '{}'", where, pattern));
  }
  for (const auto& [option, entry] : inside(table, "layers", where)) {
    const std::string at = fmt::format("{} 'layers': '{}'", where, option);
    need(find_option(options, option) != nullptr, "{} 'layers': there is no option '{}'", where, option);
    need(entry->is_table() && entry->as_table()->size() == 3, "{} must be {{ every, is, others }}", at);
    out->layers[option] = {read_value(part_of(*entry, "every", at), options, at), constant_at(*entry, "is", at),
                           constant_at(*entry, "others", at)};
  }
  for (const auto& [key, value] : inside(table, "by_layer", where))
    out->by_layer[key] = read_by_layer(*value, options, fmt::format("{} 'by_layer': '{}'", where, key));
  for (const toml::node* one : listed(table, "grouped", where))
    out->grouped.push_back(read_grouped(*one, options, where + " 'grouped'"));
  for (const toml::node* one : listed(table, "variants", where))
    out->variants.push_back(read_variant(*one, options, where + " 'variants'"));
  for (const toml::node* one : listed(table, "notes", where))
    out->notes.push_back(read_note(*one, options, where + " 'notes'"));
  for (const auto& [option, value] : inside(table, "fixed", where)) {
    need(find_option(options, option) != nullptr, "{} 'fixed': there is no option '{}'", where, option);
    Patterns& supported = out->fixed[option];
    if (!value->is_array()) supported.push_back(json_text(*value));
    for (size_t k = 0; value->is_array() && k < value->as_array()->size(); ++k)
      supported.push_back(json_text(*value->as_array()->get(k)));
  }
  need(!out->tensors.empty(), "{} 'tensors' is missing: which name each tensor of the model has in the file", where);
  return out;
}

}  // namespace eng
