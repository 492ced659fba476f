// SPDX-License-Identifier: Apache-2.0
// What a plugin file says about itself: section .eng_plugin of the ELF file, and the TOML in it.
#include <elf.h>
#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "core/config/source.hpp"
#include "core/registry/plugin_file.hpp"

namespace eng {
namespace {

// Throws std::runtime_error unless `right`: caught in read_elf and parse_description.
template <class... Args>
void need(bool right, fmt::format_string<Args...> text, Args&&... args) {
  if (!right) throw std::runtime_error(fmt::format(text, std::forward<Args>(args)...));
}

static_assert(std::endian::native == std::endian::little, "the ELF reader copies little-endian fields as they are");

#if defined(__x86_64__)
constexpr uint16_t this_machine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t this_machine = EM_AARCH64;
#else
#error "name this machine's ELF number here"
#endif

constexpr uint64_t most_bytes = 16u << 20;  // of one table

// `count` rows at `offset`. No offset or size of the file is believed.
template <class Row>
std::vector<Row> rows(std::istream& in, uint64_t offset, uint64_t count, const char* what) {
  need(count <= most_bytes / sizeof(Row), "malformed ELF file: its {} has {} entries", what, count);
  std::vector<Row> out(count);
  const auto size = static_cast<std::streamsize>(count * sizeof(Row));
  in.clear();
  in.seekg(static_cast<std::streamoff>(offset));
  in.read(reinterpret_cast<char*>(out.data()), size);
  need(in.gcount() == size, "truncated ELF file: its {} ends behind the end of the file", what);
  return out;
}

std::string text_of(std::istream& in, const Elf64_Shdr& section, const char* what) {
  need(section.sh_type != SHT_NOBITS, "malformed ELF file: its {} has no bytes", what);
  const auto bytes = rows<char>(in, section.sh_offset, section.sh_size, what);
  return std::string(bytes.begin(), bytes.end());
}

// The NUL-terminated string at `offset`, or "" if it starts or ends outside.
std::string string_at(const std::string& strings, uint64_t offset) {
  const size_t end = strings.find('\0', offset);
  return end == std::string::npos ? "" : strings.substr(offset, end - offset);
}

void read(std::istream& in, ElfFile& out) {
  char magic[SELFMAG] = {};
  in.read(magic, SELFMAG);
  need(std::memcmp(magic, ELFMAG, SELFMAG) == 0, "not an ELF file");
  const Elf64_Ehdr head = rows<Elf64_Ehdr>(in, 0, 1, "header")[0];
  need(head.e_ident[EI_CLASS] == ELFCLASS64, "not a 64-bit ELF file");
  need(head.e_machine == this_machine, "built for ELF machine {}, this is {}", +head.e_machine, +this_machine);
  need(head.e_type == ET_DYN, "an ELF file, but no shared object");
  need(head.e_shentsize == sizeof(Elf64_Shdr) && head.e_shnum < SHN_LORESERVE, "malformed ELF section table");
  const auto sections = rows<Elf64_Shdr>(in, head.e_shoff, head.e_shnum, "section table");
  need(head.e_shstrndx < sections.size(), "malformed ELF file: no section names");
  const std::string names = text_of(in, sections[head.e_shstrndx], "section name table");
  std::set<std::string> exports;  // defined symbols that others can see
  for (const Elf64_Shdr& section : sections) {
    if (string_at(names, section.sh_name) == ".eng_plugin") {
      need(out.description.empty(), "malformed ELF file: two sections .eng_plugin");
      out.description = text_of(in, section, "section .eng_plugin");
      // One text; instrumented builds pad it.
      out.description.erase(out.description.find_last_not_of('\0') + 1);
      need(out.description.find('\0') == std::string::npos,
           "use ENG_DESCRIPTION once per plugin: section .eng_plugin holds two texts");
    }
    if (section.sh_type != SHT_DYNSYM) continue;
    need(section.sh_entsize == sizeof(Elf64_Sym) && section.sh_link < sections.size(), "malformed ELF symbol table");
    const std::string strings = text_of(in, sections[section.sh_link], "dynamic string table");
    for (const Elf64_Sym& symbol :
         rows<Elf64_Sym>(in, section.sh_offset, section.sh_size / sizeof(Elf64_Sym), "dynamic symbol table")) {
      const auto seen = ELF64_ST_VISIBILITY(symbol.st_other);
      const bool defined = symbol.st_shndx != SHN_UNDEF && symbol.st_shndx != SHN_ABS;
      if (defined && ELF64_ST_BIND(symbol.st_info) != STB_LOCAL && (seen == STV_DEFAULT || seen == STV_PROTECTED))
        exports.insert(string_at(strings, symbol.st_name));
    }
  }
  for (const char* linker : {"", "_init", "_fini", "_end", "_edata", "__bss_start"}) exports.erase(linker);
  const std::string prefix = "eng_plugin_query_", entry = prefix + std::to_string(ENG_ABI_MAJOR);
  const bool found = exports.count(entry);
  const auto other = exports.lower_bound(prefix);
  need(found || other == exports.end() || !other->starts_with(prefix), "built for ABI {}, this engine speaks {}",
       other == exports.end() ? "" : other->substr(prefix.size()), ENG_ABI_MAJOR);
  need(found, "exports no {}: define it with ENG_QUERY", entry);
  std::erase_if(exports, [&](const std::string& name) { return name.starts_with(prefix); });
  need(exports.empty(), "exports {} besides {} ({} in all): hide it (-fvisibility=hidden and a version script)",
       exports.empty() ? "" : *exports.begin(), entry, exports.size());
}

const std::map<std::string, Type> types = {{"bool", Type::boolean},  {"int", Type::integer}, {"float", Type::number},
                                           {"string", Type::string}, {"bytes", Type::bytes}, {"strings", Type::strings},
                                           {"floats", Type::numbers}};

// Made of a-z, 0-9, _ and `more`.
bool is_word(const std::string& text, const std::string& more) {
  return !text.empty() && text.size() <= 100 &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_" + more) == std::string::npos;
}

bool is_dotted(const std::string& text) {  // "org.example.name"
  return is_word(text, ".-") && text.find('.') != std::string::npos;
}

// A node as it is written; nothing for a table, a date or a mixed list.
Value written(const toml::node& node) {
  if (const auto flag = node.value_exact<bool>()) return *flag;
  if (const auto whole = node.value_exact<int64_t>()) return *whole;
  if (const auto number = node.value_exact<double>()) return *number;
  if (const auto text = node.value_exact<std::string>()) return *text;
  const toml::array* list = node.as_array();
  std::vector<std::string> texts;
  std::vector<double> numbers;
  for (size_t k = 0; list && k < list->size(); ++k) {
    if (const auto text = list->get(k)->value_exact<std::string>()) texts.push_back(*text);
    if (list->get(k)->is_number()) numbers.push_back(list->get(k)->value_or(0.0));
  }
  if (list && texts.size() == list->size()) return texts;
  if (list && numbers.size() == list->size()) return numbers;
  return {};
}

// `node` as the option takes it, within the option's own limits.
Value fitted(const toml::node& node, const Option& option, const std::string& what) {
  Value value = written(node);
  need(value.index() != 0, "{} must be: {}", what, describe(option));
  const Misfit wrong = fit(option, value);
  need(wrong.text.empty(), "{} {}", what, wrong.text);
  return value;
}

// `keys`: all that may be in it, if any are given.
const toml::table& table_at(const toml::node* node, const std::string& where,
                            const std::set<std::string_view>& keys = {}) {
  need(node, "{} is missing", where);
  need(node->is_table(), "{} must be a table", where);
  for (const auto& [key, value] : *node->as_table())
    need(keys.empty() || keys.count(key.str()), "{}: unknown key '{}'", where, key.str());
  return *node->as_table();
}

// Nothing if the key is absent.
Value value_at(const toml::table& table, const char* key, Type type, const std::string& where) {
  Option as;
  as.type = type;
  return table.contains(key) ? fitted(*table.get(key), as, fmt::format("{}: '{}'", where, key)) : Value();
}

std::string text_at(const toml::table& table, const char* key, const std::string& where, bool required = true) {
  const Value value = value_at(table, key, Type::string, where);
  const std::string text = value.index() ? std::get<std::string>(value) : "";
  need(!required || !text.empty(), "{}: '{}' is missing", where, key);
  return text;
}

// One text, or a list of them.
std::vector<std::string> texts_at(const toml::table& table, const char* key, const std::string& where,
                                  std::vector<std::string> absent = {}) {
  if (!table.contains(key)) return absent;
  if (const auto text = table[key].value_exact<std::string>()) return {*text};
  return std::get<std::vector<std::string>>(value_at(table, key, Type::strings, where));
}

std::string json_text(const toml::node& node) {
  std::ostringstream out;
  out << toml::json_formatter(node);
  return out.str();
}

Option parse_option(const std::string& key, const toml::node& node, const std::string& owner) {
  const std::string where = owner + " option '" + key + "'";
  need(is_word(key, ""), "{}: a key is made of a-z, 0-9 and _", where);
  const toml::table& table = table_at(&node, where,
                                      {"type", "default", "min", "max", "choices", "help", "required", "json",
                                       "json_none", "json_multiple", "adjustable"});
  Option option;
  option.key = key;
  option.json = texts_at(table, "json", where, {key});
  option.json_none = text_at(table, "json_none", where, false);
  option.json_multiple = text_at(table, "json_multiple", where, false);
  option.adjustable = value_at(table, "adjustable", Type::boolean, where) == Value(true);
  const std::string type = text_at(table, "type", where);
  need(types.count(type), "{}: unknown type '{}' (bool, int, float, string, bytes, strings, floats)", where, type);
  option.type = types.at(type);
  const bool bytes = option.type == Type::bytes;
  for (const auto& [name, limit] : {std::pair("min", &option.min), std::pair("max", &option.max)}) {
    const Value bound = value_at(table, name, bytes ? Type::bytes : Type::number, where);
    const bool numeric = bytes || type == "int" || type == "float" || type == "floats";
    need(numeric || !bound.index(), "{}: '{}' goes with numbers only", where, name);
    if (const auto* whole = std::get_if<int64_t>(&bound)) *limit = static_cast<double>(*whole);
    if (const auto* number = std::get_if<double>(&bound)) *limit = *number;
  }
  need(!option.min || !option.max || *option.min <= *option.max, "{}: min is above max", where);
  if (const Value choices = value_at(table, "choices", Type::strings, where); choices.index()) {
    need(option.type == Type::string, "{}: 'choices' goes with type string only", where);
    option.choices = std::get<std::vector<std::string>>(choices);
  }
  option.help = text_at(table, "help", where, false);
  option.required = value_at(table, "required", Type::boolean, where) == Value(true);
  if (const toml::node* fallback = table.get("default")) {
    need(!option.required, "{}: a required option has no default", where);
    option.fallback = fitted(*fallback, option, where + ": 'default'");
  }
  return option;
}

Preset parse_preset(const toml::node& node, const Schema& schema, const std::string& where) {
  Preset preset;
  for (const auto& [name, value] : table_at(&node, where)) {
    const std::string key(name.str());
    const auto option = std::find_if(schema.begin(), schema.end(), [&](const auto& o) { return o.key == key; });
    const bool called = option == schema.end() && key == "called";  // the size that people give it
    need(called || option != schema.end(), "{}: there is no option '{}'", where, key);
    preset.emplace(key, called ? Value(text_at(*node.as_table(), "called", where))
                               : fitted(value, *option, fmt::format("{}: '{}'", where, option->key)));
  }
  return preset;
}

Pretrained::Pairs parse_pairs(const toml::table& table, const char* key, const std::string& where) {
  Pretrained::Pairs out;
  const toml::node* list = table.get(key);
  need(!list || list->is_array(), "{}: '{}' must be a list of pairs of texts", where, key);
  for (size_t k = 0; list && k < list->as_array()->size(); ++k) {
    const toml::array* pair = list->as_array()->get(k)->as_array();
    need(pair && pair->size() == 2 && pair->is_homogeneous<std::string>(), "{}: '{}' must be a list of pairs of texts",
         where, key);
    out.emplace_back(**pair->get_as<std::string>(0), **pair->get_as<std::string>(1));
  }
  return out;
}

Pretrained parse_pretrained(const toml::node& node, const std::string& where) {
  const toml::table& table = table_at(
      &node, where,
      {"model_type", "architectures", "recognise", "fixed", "write", "ignore", "rename", "tied", "ignore_tensors"});
  Pretrained out;
  out.model_type = text_at(table, "model_type", where);
  out.architectures = texts_at(table, "architectures", where);
  out.recognise = texts_at(table, "recognise", where);
  out.ignore = texts_at(table, "ignore", where);
  out.ignore_tensors = texts_at(table, "ignore_tensors", where);
  out.rename = parse_pairs(table, "rename", where);
  out.tied = parse_pairs(table, "tied", where);
  if (const toml::node* fixed = table.get("fixed"))
    for (const auto& [path, value] : table_at(fixed, where + " 'fixed'")) {
      auto& supported = out.fixed[std::string(path.str())];
      if (!value.is_array()) supported.push_back(json_text(value));
      for (size_t k = 0; value.is_array() && k < value.as_array()->size(); ++k)
        supported.push_back(json_text(*value.as_array()->get(k)));
    }
  if (const toml::node* write = table.get("write"))
    for (const auto& [path, value] : table_at(write, where + " 'write'"))
      out.write[std::string(path.str())] = json_text(value);
  return out;
}

bool has_form(const std::string& kind) {  // "org.example.name/1"
  const size_t slash = std::min(kind.find('/'), kind.size());
  return is_dotted(kind.substr(0, slash)) && slash + 1 < kind.size() &&
         kind.find_first_not_of("0123456789", slash + 1) == std::string::npos;
}

Provided parse_provided(const toml::node& node, size_t number) {
  std::string where = fmt::format("description, [[provides]] number {}", number);
  const toml::table& table = table_at(&node, where, {"kind", "name", "summary", "options", "presets", "pretrained"});
  Provided out;
  out.kind = text_at(table, "kind", where);
  out.name = text_at(table, "name", where);
  need(has_form(out.kind), "{}: kind '{}' is not of the form eng.optimizer/1 or org.example.thing/1", where, out.kind);
  need(is_word(out.name, "-."), "{}: '{}' is no name (a-z, 0-9, _ - .)", where, out.name);
  out.summary = text_at(table, "summary", where, false);
  where = fmt::format("description of {} '{}',", out.kind, out.name);
  if (const toml::node* options = table.get("options"))
    for (const auto& [key, option] : table_at(options, where + " 'options'"))
      out.schema.options.push_back(parse_option(std::string(key.str()), option, where));
  if (const toml::node* pretrained = table.get("pretrained"))
    out.schema.pretrained = parse_pretrained(*pretrained, where + " 'pretrained'");
  if (const toml::node* presets = table.get("presets"))
    for (const auto& [key, preset] : table_at(presets, where + " 'presets'")) {
      const std::string name(key.str());
      out.schema.presets[name] = parse_preset(preset, out.schema.options, where + " preset '" + name + "'");
    }
  return out;
}

void parse(const toml::table& root, Description& out) {
  // The draft comes first: a description of another draft may hold keys that this engine does not know.
  const std::string draft = text_at(root, "draft", "description");
  need(draft == ENG_ABI_DRAFT_ID, "built from ABI draft '{}', this engine speaks draft '{}': build the plugin again",
       draft, ENG_ABI_DRAFT_ID);
  table_at(&root, "description", {"draft", "plugin", "provides"});
  const std::string where = "description, [plugin]";
  const auto& plugin = table_at(root.get("plugin"), where, {"id", "name", "version", "license", "summary"});
  out.id = text_at(plugin, "id", where);
  need(is_dotted(out.id), "{}: id '{}' is not of the form org.example.name", where, out.id);
  out.name = text_at(plugin, "name", where);
  out.version = text_at(plugin, "version", where);
  out.license = text_at(plugin, "license", where);
  out.summary = text_at(plugin, "summary", where, false);
  const toml::array* provides = root["provides"].as_array();
  need(provides && !provides->empty(), "description: [[provides]] is missing: the plugin offers nothing");
  std::set<std::pair<std::string, std::string>> seen;
  for (const toml::node& node : *provides) {
    Provided one = parse_provided(node, out.provides.size() + 1);
    need(seen.emplace(one.kind, one.name).second, "description: {} '{}' is provided twice", one.kind, one.name);
    out.provides.push_back(std::move(one));
  }
}

}  // namespace

ElfFile read_elf(std::istream& in) {
  ElfFile out;
  try {
    read(in, out);
  } catch (const std::exception& refusal) {
    out.problem = refusal.what();
  }
  return out;
}

std::string parse_description(const std::string& text, Description& out) {
  out = Description();
  out.text = text;
  try {
    const auto bad = forbidden_toml(text);
    need(!bad, "description is not TOML: {}", bad ? bad->message : "");
    parse(toml::parse(text), out);
    return "";
  } catch (const toml::parse_error& error) {
    const auto& at = error.source().begin;
    return fmt::format("description is not TOML: line {}, column {}: {}", at.line, at.column, error.description());
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace eng
