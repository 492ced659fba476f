// SPDX-License-Identifier: Apache-2.0
#include "huggingface_file.hpp"

#include <utf8proc.h>

#include <array>
#include <filesystem>
#include <unordered_set>
#include <utility>

#include "failure.hpp"
#include "hash.hpp"
#include "json_text.hpp"
#include "utf8.hpp"

namespace text_data {

const int nfc_form = UTF8PROC_STABLE | UTF8PROC_COMPOSE;

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Vocabulary = std::unordered_map<std::string, int32_t>;

constexpr int64_t most_ids = int64_t{1} << 21;  // far above any vocabulary; a table has a row for each id
constexpr const char* byte_regex = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// GPT-2's printable character for each byte: its Latin-1 character where that is printable, otherwise one above U+00FF.
struct ByteCharacters {
  std::array<char32_t, 256> of_byte{};
  std::array<int, 0x150> byte_of{};
  ByteCharacters() {
    byte_of.fill(-1);
    char32_t next = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      const bool plain = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
      of_byte[b] = plain ? b : next++;
      byte_of[of_byte[b]] = static_cast<int>(b);
    }
  }
  // The bytes that a text of the vocabulary stands for. False if the text has a character that stands for no byte.
  bool bytes(std::string_view text, std::string& out) const {
    out.clear();
    while (!text.empty()) {
      std::size_t length = 1;
      const char32_t c = utf8_decode(text, &length);
      if (c >= byte_of.size() || byte_of[c] < 0) return false;
      out += static_cast<char>(byte_of[c]);
      text.remove_prefix(length);
    }
    return true;
  }
};

class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  HuggingFaceFile read() {
    const bool parts = fs::path(file_).filename() == "vocab.json";
    const std::string text = read_whole(file_);
    Hash hash;
    hash.add_field(text);
    json all = parse_json(text, file_);
    read_config();
    if (parts) {
      const std::string merges = (fs::path(file_).parent_path() / "merges.txt").string();
      const std::string lines = read_whole(merges);
      hash.add_field(lines);
      all = assemble(std::move(all), lines);
    }
    if (!all.is_object()) refuse("the file", "is not an object, so it is not a tokenizer.json");
    model(at(all, "model", "model", json::value_t::object));
    added(all.value("added_tokens", json::array()));
    normalizer(all.value("normalizer", json()), "normalizer");
    pre_tokenizer(all.value("pre_tokenizer", json()), "pre_tokenizer");
    if (!byte_level_) {
      refuse("pre_tokenizer",
             "has no ByteLevel: only byte-level BPE is read from a tokenizer.json; give the folder's "
             "tokenizer.model instead, if there is one",
             ENG_UNSUPPORTED);
    }
    post_processor(all.value("post_processor", json()), "post_processor");
    pieces();
    ends();
    hash.add_field(std::to_string(out_.info.bos) + "," + std::to_string(out_.info.eos) + "," +
                   std::to_string(out_.info.eot));
    for (const auto* list : {&out_.prefix, &out_.suffix})
      for (const int32_t id : *list) hash.add_field(std::to_string(id));
    out_.info.hash = hash.text();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& place, const std::string& what, eng_status status = ENG_INVALID) const {
    throw Failure(status, file_ + ": " + place + " " + what);
  }
  [[noreturn]] void unsupported(const std::string& place, const json& value, const char* instead) const {
    refuse(place,
           "is " + printable(value.dump(-1, ' ', true, json::error_handler_t::replace), 60) +
               ", which is not supported: " + instead,
           ENG_UNSUPPORTED);
  }

  const json& at(const json& object, const char* key, const std::string& place, json::value_t type) const {
    const auto found = object.find(key);
    if (found == object.end()) refuse(place, "is missing");
    if (found->type() != type)
      refuse(place, std::string("is a ") + found->type_name() + ", not " + json(type).type_name());
    return *found;
  }
  std::string type_of(const json& object, const std::string& place) const {
    if (!object.is_object()) refuse(place, std::string("is a ") + object.type_name() + ", not an object");
    return at(object, "type", place + ".type", json::value_t::string).get<std::string>();
  }
  bool flag(const json& object, const char* key, const std::string& place, bool fallback) const {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return fallback;
    if (!found->is_boolean()) refuse(place + "." + key, "is not true or false");
    return found->get<bool>();
  }
  int32_t id_of(const json& value, const std::string& place) const {
    if (!value.is_number_integer()) refuse(place, "is not a whole number");
    if (value.is_number_unsigned() ? value.get<uint64_t>() >= uint64_t{most_ids} : true)
      refuse(place, "is out of range: ids are from 0 to " + std::to_string(most_ids - 1));
    return value.get<int32_t>();
  }

  // Reads the two files beside the tokenizer that say which tokens begin and end a text.
  void read_config() {
    const fs::path folder = fs::path(file_).parent_path();
    for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {  // the second overrides the first
      const std::string path = (folder / name).string(), text = read_if_there(path);
      if (text.empty()) continue;
      const json config = parse_json(text, path);
      if (!config.is_object()) throw Failure(ENG_INVALID, path + ": is not an object");
      for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
        const auto found = config.find(key);
        if (found == config.end()) continue;
        if (found->is_string()) special_[key] = found->get<std::string>();
        if (found->is_object() && found->contains("content") && found->at("content").is_string())
          special_[key] = found->at("content").get<std::string>();
      }
      for (const char* key : {"add_bos_token", "add_eos_token", "add_prefix_space"})
        if (const auto found = config.find(key); found != config.end() && found->is_boolean())
          flags_[key] = found->get<bool>();
    }
  }

  // vocab.json and merges.txt as the tokenizer.json that GPT-2 and OPT would have.
  json assemble(json vocab, const std::string& lines) {
    json merges = json::array();
    for (std::size_t begin = 0; begin < lines.size();) {
      const std::size_t end = std::min(lines.find('\n', begin), lines.size());
      std::string line = lines.substr(begin, end - begin);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (!line.empty() && !(begin == 0 && line.rfind("#version", 0) == 0)) {
        if (utf8_prefix(line) != line.size()) refuse("merges.txt", "is not UTF-8");
        merges.push_back(line);
      }
      begin = end + 1;
    }
    json added = json::array();
    std::unordered_set<std::string> seen;
    for (const auto& [key, content] : special_)
      if (vocab.is_object() && vocab.contains(content) && seen.insert(content).second)
        added.push_back({{"content", content}, {"id", vocab[content]}, {"normalized", false}});
    json all{{"model", {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", std::move(merges)}}},
             {"added_tokens", std::move(added)},
             {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", flags_["add_prefix_space"]}}}};
    const auto piece = [](const std::string& token) { return json{{"SpecialToken", {{"id", token}}}}; };
    json around = json::array(), ids = json::object();
    if (flags_["add_bos_token"] && special_.count("bos_token")) around.push_back(piece(special_["bos_token"]));
    around.push_back({{"Sequence", {{"id", "A"}}}});
    if (flags_["add_eos_token"] && special_.count("eos_token")) around.push_back(piece(special_["eos_token"]));
    all["post_processor"] = {{"type", "TemplateProcessing"}, {"single", around}, {"special_tokens", ids}};
    return all;
  }

  void model(const json& model) {
    if (model.contains("type") && model["type"] != "BPE") unsupported("model.type", model["type"], "it must be BPE");
    if (const auto d = model.find("dropout"); d != model.end() && !d->is_null() && *d != 0)
      unsupported("model.dropout", *d, "it must be null");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (const auto v = model.find(key); v != model.end() && !v->is_null() && *v != "")
        unsupported(std::string("model.") + key, *v, "it must be null or empty");
    if (flag(model, "byte_fallback", "model", false))
      unsupported("model.byte_fallback", true,
                  "this is not byte-level BPE; give the folder's tokenizer.model instead, if there is one");
    const json& vocab = at(model, "vocab", "model.vocab", json::value_t::object);
    vocabulary_.reserve(vocab.size());
    for (const auto& [text, id] : vocab.items()) {
      const int32_t number = id_of(id, "model.vocab[\"" + printable(text, 40) + "\"]");
      add_piece(number, text, "model.vocab[\"" + printable(text, 40) + "\"]");
      vocabulary_.emplace(text, number);
      std::string bytes;
      if (!characters_.bytes(text, bytes)) continue;
      if (bytes.size() == 1) out_.bpe.bytes[static_cast<unsigned char>(bytes[0])] = number;
      if (flag(model, "ignore_merges", "model", false)) out_.bpe.whole.emplace(bytes, number);
    }
    if (const auto unk = model.find("unk_token"); unk != model.end() && unk->is_string() && *unk != "") {
      const auto found = vocabulary_.find(unk->get<std::string>());
      if (found == vocabulary_.end()) refuse("model.unk_token", "is not in model.vocab");
      out_.bpe.unknown = found->second;
      out_.bpe.fuse_unknown = flag(model, "fuse_unk", "model", false);
    }
    merges(at(model, "merges", "model.merges", json::value_t::array));
  }

  void merges(const json& list) {
    std::vector<Bpe::Merge> all;
    all.reserve(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string place = "model.merges[" + std::to_string(i) + "]";
      std::string left, right;
      if (list[i].is_string()) {
        const auto& text = list[i].get_ref<const std::string&>();
        const std::size_t space = text.find(' ');
        if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
          refuse(place, "is not two tokens with a space between them");
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else if (list[i].is_array() && list[i].size() == 2 && list[i][0].is_string() && list[i][1].is_string()) {
        left = list[i][0].get<std::string>();
        right = list[i][1].get<std::string>();
      } else {
        refuse(place, "is neither \"left right\" nor [\"left\", \"right\"]");
      }
      if (left.empty() || right.empty()) refuse(place, "merges an empty token");
      const auto id = [&](const std::string& token) {
        const auto found = vocabulary_.find(token);
        if (found == vocabulary_.end())
          refuse(place, "names a token that is not in model.vocab: " + printable(token, 40));
        return found->second;
      };
      all.push_back({id(left), id(right), id(left + right)});
    }
    out_.bpe.set_merges(all);
  }

  void added(const json& list) {
    if (!list.is_array()) refuse("added_tokens", "is not a list");
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string place = "added_tokens[" + std::to_string(i) + "]";
      const json& entry = list[i];
      if (!entry.is_object()) refuse(place, "is not an object");
      HuggingFaceFile::Added token;
      token.token.content = at(entry, "content", place + ".content", json::value_t::string).get<std::string>();
      if (token.token.content.empty()) continue;
      const auto known = vocabulary_.find(token.token.content);
      if (known != vocabulary_.end()) {
        token.token.id = known->second;
      } else {
        if (!entry.contains("id")) refuse(place + ".id", "is missing");
        token.token.id = id_of(entry["id"], place + ".id");
        add_piece(token.token.id, token.token.content, place + ".id");
        vocabulary_.emplace(token.token.content, token.token.id);
      }
      literal_.insert(token.token.id);
      token.token.single_word = flag(entry, "single_word", place, false);
      token.token.lstrip = flag(entry, "lstrip", place, false);
      token.token.rstrip = flag(entry, "rstrip", place, false);
      token.normalised = flag(entry, "normalized", place, !flag(entry, "special", place, false));
      out_.added.push_back(std::move(token));
    }
  }

  void normalizer(const json& value, const std::string& place) {
    if (value.is_null()) return;
    const std::string type = type_of(value, place);
    if (type == "Sequence") {
      const json& list = at(value, "normalizers", place + ".normalizers", json::value_t::array);
      for (std::size_t i = 0; i < list.size(); ++i)
        normalizer(list[i], place + ".normalizers[" + std::to_string(i) + "]");
      return;
    }
    const int compose = UTF8PROC_STABLE | UTF8PROC_COMPOSE, decompose = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    int form = 0;
    if (type == "NFC") form = compose;
    if (type == "NFKC") form = compose | UTF8PROC_COMPAT;
    if (type == "NFD") form = decompose;
    if (type == "NFKD") form = decompose | UTF8PROC_COMPAT;
    if (form == 0) unsupported(place + ".type", type, "use NFC, NFD, NFKC or NFKD");
    if (out_.form != 0 && out_.form != form) unsupported(place + ".type", type, "all normalizers must have one type");
    out_.form = form;
  }

  void pre_tokenizer(const json& value, const std::string& place) {
    if (value.is_null()) return;
    const std::string type = type_of(value, place);
    if (type == "Sequence") {
      const json& list = at(value, "pretokenizers", place + ".pretokenizers", json::value_t::array);
      for (std::size_t i = 0; i < list.size(); ++i)
        pre_tokenizer(list[i], place + ".pretokenizers[" + std::to_string(i) + "]");
      return;
    }
    if (byte_level_) unsupported(place + ".type", type, "ByteLevel must be the last pre-tokenizer");
    HuggingFaceFile::Step step;
    if (type == "ByteLevel") {
      byte_level_ = true;
      step.prefix_space = flag(value, "add_prefix_space", place, true);
      if (flag(value, "use_regex", place, true))
        step.pattern = std::make_shared<Pattern>(byte_regex, file_ + ": " + place);
    } else if (type == "Split") {
      split(value, place, step);
    } else if (type == "Digits") {
      const bool one = flag(value, "individual_digits", place, false);
      step.pattern = std::make_shared<Pattern>(one ? "\\p{N}" : "\\p{N}+", file_ + ": " + place);
    } else {
      unsupported(place + ".type", type, "use ByteLevel, Split, Digits or Sequence");
    }
    out_.steps.push_back(std::move(step));
    if (out_.steps.size() > 16) refuse(place, "is the 17th pre-tokenizer; at most 16 are supported");
  }

  void split(const json& value, const std::string& place, HuggingFaceFile::Step& step) {
    const json& pattern = at(value, "pattern", place + ".pattern", json::value_t::object);
    const bool regex = pattern.contains("Regex");
    const char* key = regex ? "Regex" : "String";
    const std::string inside = place + ".pattern." + key;
    const std::string text = at(pattern, key, inside, json::value_t::string).get<std::string>();
    step.pattern = std::make_shared<Pattern>(regex ? text : Pattern::literal(text), file_ + ": " + inside);
    step.invert = flag(value, "invert", place, false);
    const json behavior = value.value("behavior", json("Isolated"));
    step.remove = behavior == "Removed";
    if (!step.remove && behavior != "Isolated") unsupported(place + ".behavior", behavior, "use Isolated or Removed");
  }

  void post_processor(const json& value, const std::string& place) {
    if (value.is_null()) return;
    const std::string type = type_of(value, place);
    if (type == "ByteLevel") return;  // affects offsets only
    if (type == "Sequence") {
      const json& list = at(value, "processors", place + ".processors", json::value_t::array);
      for (std::size_t i = 0; i < list.size(); ++i)
        post_processor(list[i], place + ".processors[" + std::to_string(i) + "]");
    } else if (type == "TemplateProcessing") {
      around(value, place);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      out_.prefix.insert(out_.prefix.begin(), pair_id(value, "cls", place));
      out_.suffix.push_back(pair_id(value, "sep", place));
    } else {
      unsupported(place + ".type", type, "use TemplateProcessing, RobertaProcessing, BertProcessing or ByteLevel");
    }
  }

  int32_t pair_id(const json& value, const char* key, const std::string& place) const {
    const json& pair = at(value, key, place + "." + key, json::value_t::array);
    if (pair.size() != 2) refuse(place + "." + key, "is not [token, id]");
    return known_id(id_of(pair[1], place + "." + key + "[1]"), place + "." + key);
  }
  int32_t known_id(int32_t id, const std::string& place) const {
    if (static_cast<std::size_t>(id) >= out_.pieces.size()) refuse(place, "is an id that no token has");
    return id;
  }

  void around(const json& value, const std::string& place) {
    const json& single = at(value, "single", place + ".single", json::value_t::array);
    const json tokens = value.value("special_tokens", json::object());
    std::vector<int32_t> before, after;
    bool text = false;
    for (std::size_t i = 0; i < single.size(); ++i) {
      const std::string here = place + ".single[" + std::to_string(i) + "]";
      if (!single[i].is_object()) refuse(here, "is not an object");
      if (single[i].contains("Sequence")) {
        if (text) refuse(here, "is a second place for the text");
        text = true;
        continue;
      }
      const json& token = at(single[i], "SpecialToken", here + ".SpecialToken", json::value_t::object);
      const std::string name = at(token, "id", here + ".SpecialToken.id", json::value_t::string).get<std::string>();
      std::vector<int32_t>& list = text ? after : before;
      const auto known = tokens.is_object() ? tokens.find(name) : tokens.end();
      if (known != tokens.end() && known->is_object()) {
        const std::string there = place + ".special_tokens[\"" + printable(name, 40) + "\"].ids";
        for (const json& id : at(*known, "ids", there, json::value_t::array))
          list.push_back(known_id(id_of(id, there), there));
      } else if (const auto found = vocabulary_.find(name); found != vocabulary_.end()) {
        list.push_back(found->second);
      } else {
        refuse(here, "names a token that is neither in special_tokens nor in the vocabulary: " + printable(name, 40));
      }
    }
    if (!text) refuse(place + ".single", "has no place for the text");
    out_.prefix.insert(out_.prefix.begin(), before.begin(), before.end());
    out_.suffix.insert(out_.suffix.end(), after.begin(), after.end());
  }

  void add_piece(int32_t id, const std::string& text, const std::string& place) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= out_.pieces.size()) {
      out_.pieces.resize(at + 1);
      taken_.resize(at + 1);
    }
    if (taken_[at]) refuse(place, "has the id " + std::to_string(id) + ", which another token has too");
    taken_[at] = true;
    out_.pieces[at] = text;
  }

  // From the characters of the file to bytes.
  void pieces() {
    if (out_.pieces.empty()) refuse("model.vocab", "is empty");
    std::string bytes;
    for (std::size_t id = 0; id < out_.pieces.size(); ++id)
      if (!literal_.count(static_cast<int32_t>(id)) && characters_.bytes(out_.pieces[id], bytes))
        out_.pieces[id] = bytes;
  }

  int32_t first_of(std::initializer_list<const char*> names) const {
    for (const char* name : names)
      if (const auto found = vocabulary_.find(name); found != vocabulary_.end() && literal_.count(found->second))
        return found->second;
    return -1;
  }

  void ends() {
    const auto named = [&](const char* key) {
      const auto token = special_.find(key);
      const auto found = token == special_.end() ? vocabulary_.end() : vocabulary_.find(token->second);
      return found == vocabulary_.end() ? -1 : found->second;
    };
    Tokenizer::Info& info = out_.info;
    info.vocabulary = static_cast<int64_t>(out_.pieces.size());
    info.bos = out_.prefix.empty() ? named("bos_token") : out_.prefix[0];
    if (info.bos < 0) info.bos = first_of({"<s>", "<|begin_of_text|>", "<bos>", "<|endoftext|>"});
    info.eos = named("eos_token");
    if (info.eos < 0) info.eos = first_of({"<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>"});
    info.eot = first_of({"<|end_of_text|>", "<|endoftext|>"});
    if (info.eot < 0) info.eot = info.eos;
  }

  std::string file_;
  HuggingFaceFile out_;
  Vocabulary vocabulary_;
  std::vector<bool> taken_;              // by id
  std::unordered_set<int32_t> literal_;  // ids of added tokens; their text is not written in byte characters
  std::unordered_map<std::string, std::string> special_;
  std::unordered_map<std::string, bool> flags_;
  ByteCharacters characters_;
  bool byte_level_ = false;
};

}  // namespace

HuggingFaceFile read_huggingface(const std::string& file) {
  return Reader(file).read();
}

}  // namespace text_data
