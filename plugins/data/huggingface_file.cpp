// SPDX-License-Identifier: Apache-2.0
#include "huggingface_file.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <unordered_map>
#include <utility>

#include "byte_characters.hpp"
#include "hash.hpp"
#include "huggingface_around.hpp"
#include "huggingface_steps.hpp"
#include "piece_decoder.hpp"
#include "serde_json.hpp"
#include "tokenizer_class.hpp"

namespace text_data {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view metaspace = "\xe2\x96\x81";  // U+2581, which stands for a space
using Vocabulary = std::unordered_map<std::string, int32_t>;

std::string byte_name(unsigned byte) {
  char name[8];
  std::snprintf(name, sizeof name, "<0x%02X>", byte);
  return name;
}

class Reader {
 public:
  explicit Reader(const std::string& file) : reader_(file), folder_path_(fs::path(file).parent_path().string()) {}

  HuggingFaceFile read() {
    const bool parts = fs::path(reader_.file()).filename() == "vocab.json";
    const std::string text = read_whole(reader_.file());
    Hash hash;
    hash.add_field(text);
    json all = parse_serde_json(text, reader_.file());
    if (parts) {
      const std::string lines = read_whole((fs::path(folder_path_) / "merges.txt").string());
      hash.add_field(lines);
      folder_ = read_tokenizer_folder(folder_path_, [] { return std::vector<FileToken>(); });
      all = assemble_tokenizer(std::move(all), merges_of(lines), class_of_folder(), folder_);
    }
    if (!all.is_object()) reader_.refuse("the file", "is not an object, so it is not a tokenizer.json");
    const auto part = [&](const char* key) { return all.value(key, json()); };
    read_normalizer(reader_, part("normalizer"), "normalizer", out_.normaliser);
    read_pre_tokenizer(reader_, part("pre_tokenizer"), "pre_tokenizer", steps_);
    if (out_.normaliser.prepends() && steps_.splitter.asks_for_first())
      reader_.unsupported("normalizer", "Prepend", "a Metaspace with prepend_scheme \"first\" cannot follow it");
    const json& model = reader_.at(all, "model", "model", json::value_t::object);
    read_model(model);
    TokenTable table([this](const std::string& token) { return find(token); },
                     out_.unigram.empty() ? vocabulary_.size() : out_.pieces.size());
    const std::vector<FileToken> own = added(part("added_tokens"));
    for (const FileToken& token : own) add(table, token);
    if (!parts) folder_ = read_tokenizer_folder(folder_path_, [&] { return own; });
    table.add(folder_, parts ? class_of_folder().again : Again::never);
    take(table);
    const auto id_of = [&](const std::string& token) { return table.id(token); };
    Around around = read_post_processor(reader_, part("post_processor"), "post_processor", id_of, out_.pieces.size());
    out_.prefix = std::move(around.prefix);
    out_.suffix = std::move(around.suffix);
    show_pieces(part("decoder"));
    ends(table);
    hash_rest(hash, table, own);
    steps_.splitter.drop_idle();
    out_.splitter = std::move(steps_.splitter);
    return std::move(out_);
  }

 private:
  const TokenizerClass& class_of_folder() const {
    if (const TokenizerClass* known = find_tokenizer_class(folder_.class_name)) return *known;
    throw Failure(ENG_UNSUPPORTED,
                  folder_.class_place + " is " + printable(folder_.class_given, 60) +
                      ": how it splits a text is not known from its vocab.json and merges.txt. Save it with "
                      "transformers' save_pretrained, which writes a tokenizer.json; known classes are " +
                      known_tokenizer_classes());
  }

  json merges_of(const std::string& lines) const {
    json merges = json::array();
    for (std::size_t begin = 0; begin < lines.size();) {
      const std::size_t end = std::min(lines.find('\n', begin), lines.size());
      std::string line = lines.substr(begin, end - begin);
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (!line.empty() && !(begin == 0 && line.rfind("#version", 0) == 0)) {
        if (utf8_prefix(line) != line.size()) reader_.refuse("merges.txt", "is not UTF-8");
        merges.push_back(std::move(line));
      }
      begin = end + 1;
    }
    return merges;
  }

  int32_t find(const std::string& token) const {
    const auto found = vocabulary_.find(token);
    return found == vocabulary_.end() ? -1 : found->second;
  }

  void read_model(const json& model) {
    const auto vocab = model.find("vocab");
    const json type = model.value("type", json(vocab != model.end() && vocab->is_array() ? "Unigram" : "BPE"));
    if (type == "Unigram") return unigram(model);
    if (type == "WordPiece" || type == "WordLevel") return word_piece(model, type == "WordLevel");
    if (type != "BPE") reader_.unsupported("model.type", type, "it must be BPE, Unigram, WordPiece or WordLevel");
    if (const auto d = model.find("dropout"); d != model.end() && !d->is_null() && *d != 0)
      reader_.unsupported("model.dropout", *d, "it must be null, since ids would be drawn by chance");
    out_.bpe.prefix = optional_text(model, "continuing_subword_prefix", "");
    if (std::any_of(out_.bpe.prefix.begin(), out_.bpe.prefix.end(), [](char c) { return (c & 0x80) != 0; }))
      reader_.unsupported("model.continuing_subword_prefix", out_.bpe.prefix, "its characters must be of ASCII");
    out_.bpe.suffix = optional_text(model, "end_of_word_suffix", "");
    const bool ignore_merges = reader_.flag(model, "ignore_merges", "model", false);
    out_.bpe.by_character = !steps_.bytes;
    const json& words = reader_.at(model, "vocab", "model.vocab", json::value_t::object);
    vocabulary_.reserve(words.size());
    std::string bytes;
    for (const auto& [text, id] : words.items()) {
      const int32_t number = piece(text, id);
      if (out_.bpe.by_character)
        character(text, number, ignore_merges);
      else if (characters_.bytes(text, bytes)) {
        if (bytes.size() == 1) out_.bpe.bytes[static_cast<unsigned char>(bytes[0])] = number;
        if (ignore_merges) out_.bpe.whole.emplace(bytes, number);
      }
    }
    if (reader_.flag(model, "byte_fallback", "model", false)) {
      if (!out_.bpe.by_character)
        reader_.unsupported("model.byte_fallback", true,
                            "the pre-tokenizer ByteLevel leaves nothing to fall back from");
      for (unsigned b = 0; b < 256; ++b) out_.bpe.bytes[b] = find(byte_name(b));
    }
    if (const auto unk = model.find("unk_token"); unk != model.end() && unk->is_string() && *unk != "") {
      out_.bpe.unknown = find(unk->get<std::string>());
      if (out_.bpe.unknown < 0) reader_.refuse("model.unk_token", "is not in model.vocab");
      out_.bpe.fuse_unknown = reader_.flag(model, "fuse_unk", "model", false);
    }
    if (!out_.bpe.prefix.empty() || !out_.bpe.suffix.empty()) out_.bpe.affixed = vocabulary_;
    merges(reader_.at(model, "merges", "model.merges", json::value_t::array));
  }

  std::string optional_text(const json& model, const char* key, const char* otherwise) const {
    const auto found = model.find(key);
    return found == model.end() || found->is_null() ? otherwise : reader_.text(model, key, "model");
  }

  // Takes a piece of a vocabulary that names the ids; returns its id.
  int32_t piece(const std::string& text, const json& id) {
    const auto place = [&] { return "model.vocab[\"" + printable(text, 40) + "\"]"; };
    const int32_t number = id.is_number_unsigned() && id.get<uint64_t>() < uint64_t{JsonReader::most_ids}
                               ? id.get<int32_t>()
                               : reader_.id_of(id, place());
    if (!add_piece(number, text)) reader_.refuse(place(), taken(number));
    vocabulary_.emplace(text, number);
    return number;
  }

  // The words of a model without bytes are texts, also behind ByteLevel.
  void read_characters() {
    if (!steps_.bytes) return;
    steps_.bytes = false;
    steps_.byte_characters = steps_.splitter.last().byte_characters = true;
  }

  void check_size(std::size_t bytes) const {  // each of them takes 32 in the table
    if (bytes > std::size_t{16} << 20) reader_.refuse("model.vocab", "has pieces of more than 16 MiB");
  }

  void word_piece(const json& model, bool whole) {
    read_characters();
    std::size_t bytes = 0;
    const json& words = reader_.at(model, "vocab", "model.vocab", json::value_t::object);
    vocabulary_.reserve(words.size());
    for (const auto& [text, id] : words.items()) {
      piece(text, id);
      bytes += text.size();
    }
    check_size(bytes);
    WordPiece::Rules rules;
    rules.whole = whole;
    rules.unknown = find(optional_text(model, "unk_token", whole ? "<unk>" : "[UNK]"));
    rules.prefix = whole ? "" : optional_text(model, "continuing_subword_prefix", "##");
    rules.most_characters = 100;
    if (const auto most = model.find("max_input_chars_per_word"); !whole && most != model.end())
      rules.most_characters = static_cast<std::size_t>(reader_.id_of(*most, "model.max_input_chars_per_word"));
    out_.word_piece.set(vocabulary_, std::move(rules));
    out_.cuttable = steps_.by_word;
  }

  // A piece of a model that begins with characters.
  void character(const std::string& text, int32_t id, bool ignore_merges) {
    std::size_t length = 0;
    const char32_t c = text.empty() ? 0 : utf8_decode(text, &length);
    if (length == text.size() && length > 0) {
      if (c >= out_.bpe.characters.size()) out_.bpe.characters.resize(c + 1, -1);
      out_.bpe.characters[c] = id;
    }
    if (ignore_merges) out_.bpe.whole.emplace(text, id);
  }

  void unigram(const json& model) {
    read_characters();
    const json& list = reader_.at(model, "vocab", "model.vocab", json::value_t::array);
    if (list.size() > static_cast<std::size_t>(JsonReader::most_ids))
      reader_.refuse("model.vocab", "has too many pieces");
    std::vector<std::pair<std::string, double>> pieces;
    pieces.reserve(list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      const json& entry = list[i];
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
        reader_.refuse("model.vocab[" + std::to_string(i) + "]", "is not [piece, score]");
      pieces.emplace_back(entry[0].get<std::string>(), entry[1].get<double>());
      add_piece(static_cast<int32_t>(i), pieces.back().first);
      vocabulary_[pieces.back().first] = static_cast<int32_t>(i);
    }
    std::size_t bytes = 0;
    for (const auto& [piece, score] : pieces) bytes += piece.size();
    check_size(bytes);
    int32_t unknown = -1;
    if (const auto id = model.find("unk_id"); id != model.end() && !id->is_null()) {
      unknown = reader_.id_of(*id, "model.unk_id");
      if (static_cast<std::size_t>(unknown) >= pieces.size())
        reader_.refuse("model.unk_id", "is an id that no piece has");
    }
    out_.unigram.set(pieces, unknown, reader_.flag(model, "byte_fallback", "model", false));
    out_.cuttable = steps_.by_word;
  }

  void merges(const json& list) {
    std::vector<Bpe::Merge> all;
    all.reserve(list.size());
    std::string left, right;
    bool crosses = false;  // a merge may reach over a space between two words
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto place = [i] { return "model.merges[" + std::to_string(i) + "]"; };
      if (list[i].is_string()) {
        const auto& text = list[i].get_ref<const std::string&>();
        const std::size_t space = text.find(' ');
        if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
          reader_.refuse(place(), "is not two tokens with a space between them");
        left = text.substr(0, space);
        right = text.substr(space + 1);
      } else if (list[i].is_array() && list[i].size() == 2 && list[i][0].is_string() && list[i][1].is_string()) {
        left = list[i][0].get<std::string>();
        right = list[i][1].get<std::string>();
      } else {
        reader_.refuse(place(), "is neither \"left right\" nor [\"left\", \"right\"]");
      }
      if (left.empty() || right.empty()) reader_.refuse(place(), "merges an empty token");
      const auto id = [&](const std::string& token) {
        const auto found = vocabulary_.find(token);
        if (found == vocabulary_.end())
          reader_.refuse(place(), "names a token that is not in model.vocab: " + printable(token, 40));
        return found->second;
      };
      const int32_t first = id(left), second = id(right);
      const std::size_t prefix = out_.bpe.prefix.size();  // dropped from the second part, whatever it is
      if (right.size() <= prefix) reader_.refuse(place(), "merges a token that is not longer than the prefix");
      right.erase(0, prefix);
      crosses = crosses || (begins_with_space(right) && !ends_in_space(left));
      all.push_back({first, second, id(left += right)});
    }
    out_.bpe.set_merges(all);
    out_.cuttable = steps_.by_word || steps_.bytes || (!crosses && out_.bpe.affixed.empty());
    // A character without ids would let its neighbours merge.
    const bool none_dropped = out_.bpe.unknown >= 0 || std::none_of(out_.bpe.bytes.begin(), out_.bpe.bytes.end(),
                                                                    [](int32_t id) { return id < 0; });
    if (out_.bpe.by_character && none_dropped && !crosses && out_.bpe.affixed.empty() && out_.bpe.whole.empty() &&
        out_.bpe.characters.size() > 0x2581 && out_.bpe.characters[0x2581] >= 0)
      out_.bpe.cut_before = metaspace;
  }
  static bool begins_with_space(std::string_view text) { return text[0] == ' ' || text.starts_with(metaspace); }
  static bool ends_in_space(std::string_view text) { return text.back() == ' ' || text.ends_with(metaspace); }

  std::vector<FileToken> added(const json& list) const {
    std::vector<FileToken> out;
    if (list.is_null()) return out;
    if (!list.is_array()) reader_.refuse("added_tokens", "is not a list");
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string place = "added_tokens[" + std::to_string(i) + "]";
      FileToken token = read_file_token(reader_, list[i], place);
      if (token.content.empty()) continue;
      if (const auto id = list[i].find("id"); id != list[i].end())
        token.id = reader_.id_of(*id, place + ".id");
      else if (find(token.content) < 0)
        reader_.refuse(place + ".id", "is missing");
      token.place = reader_.file() + ": " + place + ".id";
      out.push_back(std::move(token));
    }
    return out;
  }

  void add(TokenTable& table, const FileToken& token) const {
    if (table.id(token.content) < 0 && token.id >= 0 && static_cast<std::size_t>(token.id) < taken_.size() &&
        taken_[static_cast<std::size_t>(token.id)])
      throw Failure(ENG_INVALID, token.place + " " + taken(static_cast<int32_t>(token.id)));
    table.add(token);
  }

  static std::string taken(int32_t id) { return "has the id " + std::to_string(id) + ", which another token has too"; }

  // False if another token has the id.
  bool add_piece(int32_t id, const std::string& text) {
    const auto at = static_cast<std::size_t>(id);
    if (at >= out_.pieces.size()) {
      out_.pieces.resize(at + 1);
      taken_.resize(at + 1);
    }
    if (taken_[at]) return false;
    taken_[at] = true;
    out_.pieces[at] = text;
    return true;
  }

  void take(const TokenTable& table) {
    for (const FileToken& token : table.tokens()) {
      const auto id = static_cast<int32_t>(token.id);
      if (vocabulary_.find(token.content) == vocabulary_.end() && !add_piece(id, token.content))
        throw Failure(ENG_INVALID, token.place + " " + taken(id));
      literal_.resize(std::max(literal_.size(), out_.pieces.size()));
      literal_[static_cast<std::size_t>(id)] = true;
    }
    out_.added = table.tokens();
    out_.cuttable = out_.cuttable && !steps_.drops && table.cuttable();
    if (out_.pieces.empty()) reader_.refuse("model.vocab", "is empty");
  }

  // From the characters of the file to bytes.
  void show_pieces(const json& decoder) {
    PieceDecoder shown;
    shown.read(reader_, decoder, "decoder");
    shown.byte_level = shown.byte_level || steps_.bytes || steps_.byte_characters;
    shown.spaced =
        shown.spaced || (decoder.is_null() && !out_.word_piece.empty() && !shown.byte_level && steps_.space.empty());
    if (shown.word_end.empty()) shown.word_end = out_.bpe.suffix;
    if (shown.replaced.empty() && !steps_.space.empty()) shown.replaced.emplace_back(steps_.space, " ");
    literal_.resize(out_.pieces.size());
    for (std::size_t id = 0; id < out_.pieces.size(); ++id) out_.pieces[id] = shown.show(out_.pieces[id], literal_[id]);
  }

  void ends(const TokenTable& table) {
    const auto named = [&](const char* key) {
      const std::string text = folder_.text(key);
      return text.empty() ? -1 : table.id(text);
    };
    const auto first_of = [&](std::initializer_list<const char*> names) {
      for (const char* name : names)
        if (const int32_t id = table.id(name); id >= 0 && literal_[static_cast<std::size_t>(id)]) return id;
      return -1;
    };
    Tokenizer::Info& info = out_.info;
    info.vocabulary = static_cast<int64_t>(out_.pieces.size());
    info.bos = out_.prefix.empty() ? named("bos_token") : out_.prefix[0];
    if (info.bos < 0) info.bos = first_of({"<s>", "<|begin_of_text|>", "<bos>", "<|endoftext|>"});
    info.eos = info.eot = named("eos_token");  // where a text ends is what the folder says
    if (info.eos < 0) info.eos = first_of({"<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>"});
    if (info.eot < 0) info.eot = first_of({"<|end_of_text|>", "<|endoftext|>"});
    if (info.eot < 0) info.eot = info.eos;
  }

  // Hashes the changes that the other files of the folder make.
  void hash_rest(Hash& hash, const TokenTable& table, const std::vector<FileToken>& own) {
    hash.add_field(std::to_string(out_.info.bos) + "," + std::to_string(out_.info.eos) + "," +
                   std::to_string(out_.info.eot));
    for (const auto* list : {&out_.prefix, &out_.suffix})
      for (const int32_t id : *list) hash.add_field(std::to_string(id));
    std::set<std::string> known;
    for (const FileToken& token : own) known.insert(token.key());
    for (const FileToken& token : table.tokens())
      if (known.count(token.key()) == 0 && !(token.plain() && find(token.content) >= 0)) hash.add_field(token.key());
    if (const TokenizerClass* c = find_tokenizer_class(folder_.class_name);
        c && (c->normalizer || c->pattern || c->digits))
      if (fs::path(reader_.file()).filename() == "vocab.json") hash.add_field(folder_.class_name);
    out_.info.hash = hash.text();
  }

  JsonReader reader_;
  std::string folder_path_;
  TokenizerFolder folder_;
  HuggingFaceFile out_;
  SplitterFile steps_;
  Vocabulary vocabulary_;
  std::vector<bool> taken_;    // by id
  std::vector<bool> literal_;  // by id: added tokens, whose text is not written in byte characters
  ByteCharacters characters_;
};

}  // namespace

HuggingFaceFile read_huggingface(const std::string& file) {
  return Reader(file).read();
}

}  // namespace text_data
