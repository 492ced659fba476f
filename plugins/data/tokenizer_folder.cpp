// SPDX-License-Identifier: Apache-2.0
#include "tokenizer_folder.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <string_view>

#include "tokenizer.hpp"
#include "tokenizer_class.hpp"
#include "utf8.hpp"

namespace text_data {
namespace {

namespace fs = std::filesystem;

// Switches that change ids when they are not what they usually are.
struct Switch {
  const char* key;
  bool usual;
  const char* what;
};
constexpr Switch switches[] = {
    {"split_special_tokens", false, "special tokens in a text would be split like any other text"},
    {"fix_mistral_regex", false, "another pattern than the one of tokenizer.json would be used"}};
constexpr const char* flag_names[] = {"add_bos_token", "add_eos_token", "add_prefix_space", "legacy"};

bool is_name(const std::string& key) {
  return std::find(std::begin(token_names), std::end(token_names), key) != std::end(token_names);
}

json read_object(const fs::path& path, bool& there) {
  const std::string text = read_if_there(path.string());
  there = !text.empty();
  if (!there) return json::object();
  json out = parse_json(text, path.string());
  if (!out.is_object()) throw Failure(ENG_INVALID, path.string() + ": is not an object");
  return out;
}

FileToken special_token(const JsonReader& reader, const json& value, const std::string& place) {
  FileToken out;
  if (value.is_object()) {
    out = read_file_token(reader, value, place);
    out.normalised = reader.flag(value, "normalized", place, false);
  } else if (value.is_string()) {
    out.content = value.get<std::string>();
    out.bare = true;
    out.place = reader.file() + ": " + place;
  } else {
    reader.refuse(place, "is neither a text nor an object with \"content\"");
  }
  out.special = true;
  return out;
}

class FolderReader {
 public:
  explicit FolderReader(const fs::path& folder) : folder_(folder) {}

  TokenizerFolder read(const std::function<std::vector<FileToken>()>& own) {
    bool there = false;
    const JsonReader reader((folder_ / "tokenizer_config.json").string());
    const json config = read_object(reader.file(), there);
    for (const Switch& s : switches)
      if (reader.flag(config, s.key, "", s.usual) != s.usual)
        reader.refuse(s.key, std::string("is ") + (s.usual ? "false" : "true") + ", which is not supported: " + s.what,
                      ENG_UNSUPPORTED);
    for (const char* key : flag_names)
      if (const auto found = config.find(key); found != config.end() && found->is_boolean())
        out_.flags[key] = found->get<bool>();
    take_class(config, reader.file());
    take_named(reader, config);
    const char* const list = config.contains("extra_special_tokens") && !config["extra_special_tokens"].empty()
                                 ? "extra_special_tokens"
                                 : "additional_special_tokens";
    take_extra(reader, config, list);
    if (const auto found = config.find("added_tokens_decoder"); found != config.end())
      decoder(reader, *found);
    else
      legacy(own());
    std::stable_sort(out_.added.begin(), out_.added.end(),
                     [](const FileToken& a, const FileToken& b) { return a.id < b.id; });
    // A named token has the properties of the added one of the same text.
    for (auto& [name, token] : out_.named)
      for (const FileToken& added : out_.added)
        if (token && token->content == added.content) token = added;
    return std::move(out_);
  }

 private:
  void take_class(const json& config, const std::string& file) {
    const auto take = [&](const json& from, const std::string& place) {
      const auto found = from.find("tokenizer_class");
      if (!out_.class_name.empty() || found == from.end() || !found->is_string()) return;
      out_.class_name = found->get<std::string>();
      out_.class_place = place + ": tokenizer_class";
    };
    take(config, file);
    bool there = false;
    const std::string model = (folder_ / "config.json").string();
    json of_model;
    try {
      of_model = read_object(model, there);
    } catch (const Failure&) {
      return;  // whoever reads the model says what is wrong with it
    }
    take(of_model, model);
    std::string type;
    if (const auto found = of_model.find("model_type"); found != of_model.end() && found->is_string())
      type = found->get<std::string>();
    const std::string of_type = tokenizer_class_of_model(type, out_.class_name);
    if (!of_type.empty()) {
      out_.class_name = of_type;
      out_.class_place = model + ": model_type";
    }
    out_.class_given = out_.class_name;
    if (std::string_view(out_.class_name).ends_with("Fast")) out_.class_name.resize(out_.class_name.size() - 4);
  }

  void take_named(const JsonReader& reader, const json& from) {
    for (const auto& [key, value] : from.items()) {
      if (is_name(key)) {
        out_.named[key] = value.is_null() ? std::nullopt : std::optional(special_token(reader, value, key));
      } else if (key.size() > 6 && std::string_view(key).ends_with("_token") && value.is_string()) {
        out_.named[key] = special_token(reader, value, key);
        out_.more_names.push_back(key);
      }
    }
  }

  void take_extra(const JsonReader& reader, const json& from, const char* key) {
    const auto found = from.find(key);
    if (found == from.end() || found->is_null()) return;
    if (found->is_object()) {  // tokens with names of their own
      for (const auto& [name, value] : found->items()) {
        out_.named[name] = special_token(reader, value, std::string(key) + "." + name);
        out_.more_names.push_back(name);
      }
      return;
    }
    if (!found->is_array()) reader.refuse(key, "is neither a list nor an object");
    for (std::size_t i = 0; i < found->size(); ++i)
      out_.extra.push_back(special_token(reader, (*found)[i], std::string(key) + "[" + std::to_string(i) + "]"));
  }

  void decoder(const JsonReader& reader, const json& list) {
    if (!list.is_object()) reader.refuse("added_tokens_decoder", "is not an object");
    for (const auto& [id, entry] : list.items()) {
      const std::string place = "added_tokens_decoder[\"" + printable(id, 20) + "\"]";
      FileToken token = read_file_token(reader, entry, place);
      const auto [end, error] = std::from_chars(id.data(), id.data() + id.size(), token.id);
      if (error != std::errc() || end != id.data() + id.size() || token.id < 0) reader.refuse(place, "is not an id");
      out_.added.push_back(std::move(token));
    }
  }

  // Without added_tokens_decoder the older files count, and those of tokenizer.json.
  void legacy(const std::vector<FileToken>& own) {
    bool there = false;
    const JsonReader map((folder_ / "special_tokens_map.json").string());
    const json special = read_object(map.file(), there);
    take_named(map, special);
    if (out_.extra.empty()) take_extra(map, special, "additional_special_tokens");
    take_extra(map, special, "extra_special_tokens");
    const JsonReader reader((folder_ / "added_tokens.json").string());
    const json added = read_object(reader.file(), there);
    std::set<std::string> special_texts;
    for (const auto& [name, token] : out_.named)
      if (token) special_texts.insert(token->content);
    for (const FileToken& token : out_.extra) special_texts.insert(token.content);
    std::map<int64_t, FileToken> by_id;
    for (const auto& [content, id] : added.items()) {
      FileToken token;
      const std::string place = "\"" + printable(content, 40) + "\"";
      token.content = content;
      token.id = reader.id_of(id, place);
      token.place = reader.file() + ": " + place;
      token.special = special_texts.count(content) != 0;
      token.normalised = !token.special;
      if (!by_id.emplace(token.id, token).second) reader.refuse(place, "has an id that another token has too");
    }
    for (const FileToken& token : own) by_id[token.id] = token;
    for (auto& [id, token] : by_id) out_.added.push_back(std::move(token));
  }

  fs::path folder_;
  TokenizerFolder out_;
};

}  // namespace

FileToken read_file_token(const JsonReader& reader, const json& entry, const std::string& place) {
  if (!entry.is_object()) reader.refuse(place, "is not an object");
  FileToken out;
  out.content = reader.text(entry, "content", place);
  out.single_word = reader.flag(entry, "single_word", place, false);
  out.lstrip = reader.flag(entry, "lstrip", place, false);
  out.rstrip = reader.flag(entry, "rstrip", place, false);
  out.special = reader.flag(entry, "special", place, false);
  out.normalised = reader.flag(entry, "normalized", place, !out.special);
  out.place = reader.file() + ": " + place;
  return out;
}

TokenizerFolder read_tokenizer_folder(const std::string& folder, const std::function<std::vector<FileToken>()>& own) {
  return FolderReader(folder).read(own);
}

int32_t TokenTable::id(const std::string& content) const {
  const auto found = by_text_.find(content);
  return found == by_text_.end() ? find_(content) : static_cast<int32_t>(tokens_[found->second].id);
}

void TokenTable::add(const FileToken& token) {
  if (token.content.empty()) return;
  const auto known = by_text_.find(token.content);
  FileToken now = token;
  now.id = id(token.content);
  if (now.id < 0) now.id = std::max(largest_ + 1, static_cast<int64_t>(vocabulary_));
  if (token.id >= 0 && token.id != now.id)
    throw Failure(ENG_INVALID, token.place + " says that " + printable(token.content, 40) + " has the id " +
                                   std::to_string(token.id) + ", but it has " + std::to_string(now.id) +
                                   ": added tokens follow the vocabulary without a gap, as in the tokenizers library");
  if (now.id >= JsonReader::most_ids)
    throw Failure(ENG_INVALID, token.place + " is one token too many: there are at most " +
                                   std::to_string(JsonReader::most_ids) + " ids");
  largest_ = std::max(largest_, now.id);
  if (known != by_text_.end()) {
    tokens_[known->second] = std::move(now);
    return;
  }
  by_text_.emplace(token.content, tokens_.size());
  tokens_.push_back(std::move(now));
}

void TokenTable::add(const TokenizerFolder& folder, Again again) {
  for (const FileToken& token : folder.added) add(token);
  // A named token is added unless it was listed, and counts as it is named last.
  std::vector<FileToken> named;
  const auto take = [&](const std::string& name) {
    const auto found = folder.named.find(name);
    if (found != folder.named.end() && found->second) named.push_back(*found->second);
  };
  for (const char* name : token_names) take(name);
  for (const std::string& name : folder.more_names) take(name);
  named.insert(named.end(), folder.extra.begin(), folder.extra.end());
  std::vector<FileToken> news;
  for (FileToken& token : named) {
    token.id = -1;
    const auto same = [&](const FileToken& t) { return t.bare == token.bare && t.key() == token.key(); };
    if (by_text_.count(token.content) == 0 && std::none_of(news.begin(), news.end(), same)) news.push_back(token);
  }
  for (const FileToken& token : news) add(token);
  for (FileToken& token : named) {
    if (again == Again::never) break;
    if (again == Again::plain) token.single_word = token.lstrip = token.rstrip = token.normalised = false;
    add(token);
  }
}

bool TokenTable::cuttable() const {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return std::none_of(tokens_.begin(), tokens_.end(), [&](const FileToken& token) {
    const std::string& text = token.content;
    bool beside = letter(text.front()) || letter(text.back());
    for (std::size_t i = 1; i < text.size(); ++i)
      beside = beside || (text[i - 1] == ' ' && letter(text[i])) || (letter(text[i - 1]) && text[i] == ' ');
    return beside;
  });
}

}  // namespace text_data
