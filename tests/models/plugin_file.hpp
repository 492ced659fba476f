// SPDX-License-Identifier: Apache-2.0
// A plugin loaded by itself, without the engine: its description, its tables, options made by hand.
#pragma once

#include <dlfcn.h>

#include <toml++/toml.h>
#include <map>
#include <stdexcept>
#include <string>

#include "core/config/value.hpp"
#include "engine/plugin.h"

namespace models {

using Values = std::map<std::string, eng::Value>;

inline eng::Value from_toml(const toml::node& node) {
  if (auto b = node.as_boolean()) return b->get();
  if (auto i = node.as_integer()) return i->get();
  if (auto f = node.as_floating_point()) return f->get();
  if (auto s = node.as_string()) return s->get();
  std::vector<double> list;
  if (auto a = node.as_array())
    for (const auto& element : *a) list.push_back(element.value<double>().value());
  return list;
}

class PluginFile {
 public:
  // `name`: "llama" for plugins/llama/llama.eng.so.
  explicit PluginFile(const std::string& name) : PluginFile(std::string(ENGINE_PLUGIN_DIR) + "/" + name, name) {}
  PluginFile(const std::string& folder, const std::string& name) {
    const std::string path = folder + "/" + name + ".eng.so";
    void* file = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!file) throw std::runtime_error(dlerror());
    root_ = reinterpret_cast<eng_plugin_query_fn>(dlsym(file, "eng_plugin_query_1"))(ENG_ABI_MINOR);
    about_ = toml::parse(std::string(root_->describe()));
  }

  template <class Table>
  const Table& table(const char* kind, const std::string& name) const {
    const void* found = root_->get_interface(kind, name.c_str());
    if (!found) throw std::runtime_error("no " + name);
    return *static_cast<const Table*>(found);
  }
  const eng_plugin& root() const { return *root_; }

  std::vector<std::string> presets(const std::string& name) const {
    std::vector<std::string> out;
    if (auto table = provided(name)["presets"].as_table())
      for (const auto& [key, value] : *table) out.emplace_back(key.str());
    return out;
  }
  Values preset(const std::string& name, const std::string& preset) const {
    const toml::table* table = provided(name)["presets"][preset].as_table();
    if (!table) throw std::runtime_error("no preset " + preset);
    Values out;
    for (const auto& [key, value] : *table) out[std::string(key.str())] = from_toml(value);
    return out;
  }
  // Every key of the schema; monostate where there is no default.
  Values defaults(const std::string& name) const {
    Values out;
    if (auto table = provided(name)["options"].as_table())
      for (const auto& [key, option] : *table) {
        const toml::node* fallback = option.as_table()->get("default");
        out[std::string(key.str())] = fallback ? from_toml(*fallback) : eng::Value{};
      }
    return out;
  }
  std::string type(const std::string& name, const std::string& key) const {
    return provided(name)["options"][key]["type"].value_or(std::string());
  }

 private:
  toml::node_view<const toml::node> provided(const std::string& name) const {
    for (const auto& entry : *about_["provides"].as_array())
      if ((*entry.as_table())["name"].value_or(std::string()) == name) return toml::node_view<const toml::node>(entry);
    throw std::runtime_error("no " + name);
  }
  const eng_plugin* root_ = nullptr;
  toml::table about_;
};

// Collects the text of an error.
struct ErrorText : eng_error {
  std::string text;
  ErrorText() : eng_error{sizeof(eng_error), ENG_OK, nullptr, put} {}
  static void put(eng_error* self, eng_status code, const char* text, uint64_t length) {
    self->code = code;
    static_cast<ErrorText*>(self)->text.assign(text, length);
  }
};

// Options as a host gives them: the schema's defaults with `given` on top.
class FakeOptions : public eng_options {
 public:
  FakeOptions(const PluginFile& plugin, const std::string& name, const Values& given)
      : eng_options{sizeof(eng_options), 0,        nullptr,  bool_of,   int_of,   float_of,
                    string_of,           count_of, float_at, string_at, is_set_of},
        values_(plugin.defaults(name)),
        given_(given) {
    for (const auto& [key, value] : given) {
      if (!values_.count(key)) throw std::runtime_error("the schema has no " + key);
      const auto* integer = std::get_if<int64_t>(&value);
      const bool widen = integer && plugin.type(name, key) == "float";
      values_[key] = widen ? eng::Value(static_cast<double>(*integer)) : value;
    }
  }

 private:
  static const FakeOptions& self(const eng_options* o) { return *static_cast<const FakeOptions*>(o); }
  template <class T, class Out>
  static eng_status read(const eng_options* o, const char* key, Out* out, eng_error* error) {
    const auto& values = self(o).values_;
    const auto found = values.find(key);
    const T* value = found == values.end() ? nullptr : std::get_if<T>(&found->second);
    if (!value) {
      const std::string text = std::string("the host has no value of this type for ") + key;
      if (error) error->set(error, ENG_NOT_FOUND, text.data(), text.size());
      return ENG_NOT_FOUND;
    }
    if constexpr (std::is_same_v<T, std::string>)
      *out = value->c_str();
    else
      *out = static_cast<Out>(*value);
    return ENG_OK;
  }
  static eng_status bool_of(const eng_options* o, const char* k, int32_t* out, eng_error* e) {
    return read<bool>(o, k, out, e);
  }
  static eng_status int_of(const eng_options* o, const char* k, int64_t* out, eng_error* e) {
    return read<int64_t>(o, k, out, e);
  }
  static eng_status float_of(const eng_options* o, const char* k, double* out, eng_error* e) {
    return read<double>(o, k, out, e);
  }
  static eng_status string_of(const eng_options* o, const char* k, const char** out, eng_error* e) {
    return read<std::string>(o, k, out, e);
  }
  static eng_status count_of(const eng_options* o, const char* k, uint32_t* out, eng_error*) {
    const eng::Value& value = self(o).values_.at(k);
    const auto* list = std::get_if<std::vector<double>>(&value);
    const auto* texts = std::get_if<std::vector<std::string>>(&value);
    *out = static_cast<uint32_t>(list ? list->size() : texts ? texts->size() : 0);
    return ENG_OK;
  }
  static eng_status float_at(const eng_options* o, const char* k, uint32_t i, double* out, eng_error*) {
    *out = std::get<std::vector<double>>(self(o).values_.at(k)).at(i);
    return ENG_OK;
  }
  static eng_status string_at(const eng_options* o, const char* k, uint32_t i, const char** out, eng_error*) {
    *out = std::get<std::vector<std::string>>(self(o).values_.at(k)).at(i).c_str();
    return ENG_OK;
  }
  static int32_t is_set_of(const eng_options* o, const char* key) { return self(o).given_.count(key) != 0; }

  Values values_, given_;
};

}  // namespace models
