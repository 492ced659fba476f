// SPDX-License-Identifier: Apache-2.0
// Reads [provides.gguf] of a plugin's description.
#include "session/plugins/description_parts.hpp"

namespace eng {
namespace {

using Patterns = std::vector<std::string>;

bool is_number(const Value& value) {
  return std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
}

// The name of an option, or a constant.
std::variant<std::string, Value> read_factor(const toml::node& node, const Schema& options, const std::string& where) {
  std::string odd;
  const Value value = value_of(node, odd);
  if (const auto* option = std::get_if<std::string>(&value)) {
    need(find_option(options, *option) != nullptr, "{}: there is no option '{}'", where, *option);
    return *option;
  }
  need(is_number(value) || std::holds_alternative<bool>(value),
       "{} must be the name of an option, a number, true or false", where);
  return value;
}

// "OPTION", 3, { product = ["OPTION", 2] } or { quotient = ["OPTION", 16] }.
GgufTerm read_term(const toml::node& node, const Schema& options, const std::string& where) {
  GgufTerm out;
  const toml::table* table = node.as_table();
  if (!table) return out.factors.push_back(read_factor(node, options, where)), out;
  const toml::array* product = (*table)["product"].as_array();
  const toml::array* factors = product ? product : (*table)["quotient"].as_array();
  need(table->size() == 1 && factors, "{} must be {{ product = [...] }} or {{ quotient = [...] }}", where);
  need(product ? factors->size() > 1 : factors->size() == 2, "{}: {}", where,
       product ? "a product has at least two factors" : "a quotient has a dividend and a divisor");
  out.kind = product ? GgufTerm::Kind::product : GgufTerm::Kind::quotient;
  for (const toml::node& factor : *factors) {
    need(factor.is_string() || factor.is_number(), "{}: a factor must be the name of an option, or a number", where);
    out.factors.push_back(read_factor(factor, options, where));
  }
  return out;
}

// One term, or a list of which the first counts whose options all have a value.
GgufValue read_value(const toml::node& node, const Schema& options, const std::string& where) {
  GgufValue out;
  const toml::array* list = node.as_array();
  if (!list) return {read_term(node, options, where)};
  need(!list->empty(), "{}: the list is empty", where);
  for (const toml::node& one : *list) out.push_back(read_term(one, options, where));
  return out;
}

// The entries of a table inside of `table`; none if it is not there.
std::vector<std::pair<std::string, const toml::node*>> inside(const toml::table& table, const char* key,
                                                              const std::string& where) {
  const toml::node* node = table.get(key);
  if (!node) return {};
  return eng::entries(node, fmt::format("{} '{}'", where, key));
}

}  // namespace

std::shared_ptr<const GgufModel> read_gguf(const toml::node& node, const std::string& where, const Schema& options) {
  Schema keys = {{"none"}, {"architecture"}};
  for (const char* key : {"rope", "squeeze", "negative_exp", "f32", "transpose"}) keys.push_back({key, Type::strings});
  const Preset given =
      read_table(&node, keys, where, {"tensors", "keys", "require", "fixed", "interleave", "split", "join"});
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
  out->squeeze = patterns("squeeze"), out->negative_exp = patterns("negative_exp"), out->f32 = patterns("f32");
  out->arrangement.transpose = patterns("transpose");
  read_regroup(table.get("split"), true, where + " 'split'", out->arrangement.regroup);
  read_regroup(table.get("join"), false, where + " 'join'", out->arrangement.regroup);
  for (const auto& [name, to] : inside(table, "tensors", where)) {
    need(to->is_string(), "{} 'tensors': '{}' must be a text", where, name);
    check_patterns({name, **to->as_string()}, where + " 'tensors'");
    out->tensors.emplace_back(name, **to->as_string());
  }
  for (const auto& [key, value] : inside(table, "keys", where))
    out->keys.emplace_back(key, read_value(*value, options, fmt::format("{} 'keys': '{}'", where, key)));
  for (const auto& [key, value] : inside(table, "require", where))
    out->require[key] = read_value(*value, options, fmt::format("{} 'require': '{}'", where, key));
  for (const auto& [pattern, heads] : inside(table, "interleave", where)) {
    check_patterns({pattern}, where + " 'interleave'");
    out->interleave[pattern] = read_value(*heads, options, fmt::format("{} 'interleave': '{}'", where, pattern));
  }
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
