// SPDX-License-Identifier: Apache-2.0
// tekken.json, the tokenizers of Mistral since NeMo, as mistral-common 1.13 reads them. Its special tokens have the
// first ids; the others begin behind them.
#include <algorithm>
#include <filesystem>
#include <set>

#include "base64.hpp"
#include "json_reader.hpp"
#include "ranks.hpp"

namespace text_data {
namespace {

// Special tokens of files up to v7, which do not list them.
constexpr const char* usual_tokens[] = {"<unk>",
                                        "<s>",
                                        "</s>",
                                        "[INST]",
                                        "[/INST]",
                                        "[AVAILABLE_TOOLS]",
                                        "[/AVAILABLE_TOOLS]",
                                        "[TOOL_RESULTS]",
                                        "[/TOOL_RESULTS]",
                                        "[TOOL_CALLS]",
                                        "[IMG]",
                                        "<pad>",
                                        "[IMG_BREAK]",
                                        "[IMG_END]",
                                        "[PREFIX]",
                                        "[MIDDLE]",
                                        "[SUFFIX]",
                                        "[SYSTEM_PROMPT]",
                                        "[/SYSTEM_PROMPT]",
                                        "[TOOL_CONTENT]"};
constexpr const char* versions[] = {"v1", "v2", "v3", "v7", "v11", "v13", "v15"};

class TekkenReader {
 public:
  explicit TekkenReader(const std::string& file) : reader_(file) {}

  HuggingFaceFile read() {
    const std::string content = read_whole(reader_.file());
    const json all = parse_json(content, reader_.file());
    if (!all.is_object()) reader_.refuse("the file", "is not an object, so it is not a tekken.json");
    const json& config = reader_.at(all, "config", "config", json::value_t::object);
    RankedFile out;
    out.pattern = reader_.text(config, "pattern", "config");
    const std::string version = reader_.text(config, "version", "config");
    if (std::find(std::begin(versions), std::end(versions), version) == std::end(versions))
      reader_.unsupported("config.version", version, "known are v1, v2, v3, v7, v11, v13 and v15");
    const int64_t size = number(config, "default_vocab_size"), special = number(config, "default_num_special_tokens");
    if (special > size) reader_.refuse("config.default_num_special_tokens", "is above config.default_vocab_size");
    read_special(all, special, version, out);
    read_tokens(reader_.at(all, "vocab", "vocab", json::value_t::array), size - special, special, out);
    const std::string folder = std::filesystem::path(reader_.file()).parent_path().string();
    // Its own tokens are all that count, so nothing beside it adds any.
    TokenizerFolder beside = read_tokenizer_folder(folder, [] { return std::vector<FileToken>(); });
    return make_ranked(std::move(out), reader_.file(), content, beside, beside.flag("add_bos_token", true));
  }

 private:
  int64_t number(const json& config, const char* key) const {
    const std::string place = std::string("config.") + key;
    const auto found = config.find(key);
    if (found == config.end()) reader_.refuse(place, "is missing");
    return reader_.id_of(*found, place);
  }

  void read_special(const json& all, int64_t count, const std::string& version, RankedFile& out) const {
    std::set<std::string> known;
    const auto add = [&](std::string text, const std::string& place) {
      if (text.empty() || !known.insert(text).second) reader_.refuse(place, "is empty, or a token that was before");
      FileToken token;
      token.content = std::move(text);
      token.special = true;
      token.id = static_cast<int64_t>(out.special.size());
      token.place = reader_.file() + ": " + place;
      out.special.push_back(std::move(token));
    };
    const auto list = all.find("special_tokens");
    if (list == all.end() || list->is_null()) {
      if (version.size() > 2) reader_.refuse("special_tokens", "is missing, as only files up to v7 may");
      for (const char* text : usual_tokens) add(text, "special_tokens");
    } else {
      if (!list->is_array()) reader_.refuse("special_tokens", "is not a list");
      for (std::size_t i = 0; i < list->size(); ++i) {
        const std::string place = "special_tokens[" + std::to_string(i) + "]";
        if (!(*list)[i].is_object()) reader_.refuse(place, "is not an object");
        check_rank((*list)[i], i, place);
        add(reader_.text((*list)[i], "token_str", place), place + ".token_str");
      }
    }
    if (static_cast<int64_t>(out.special.size()) > count)
      reader_.refuse("special_tokens", "are more than config.default_num_special_tokens");
    while (static_cast<int64_t>(out.special.size()) < count)
      add("<SPECIAL_" + std::to_string(out.special.size()) + ">", "special_tokens");
  }

  void check_rank(const json& entry, std::size_t i, const std::string& place) const {
    const auto rank = entry.find("rank");
    if (rank == entry.end() || !rank->is_number_unsigned() || *rank != i)
      reader_.refuse(place + ".rank", "is not " + std::to_string(i) + ", its place in the list");
  }

  void read_tokens(const json& list, int64_t count, int64_t first, RankedFile& out) const {
    if (static_cast<int64_t>(list.size()) < count)
      reader_.refuse("vocab", "has " + std::to_string(list.size()) + " tokens, and config asks for " +
                                  std::to_string(count) + ": the file is cut short");
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const std::string place = "vocab[" + std::to_string(i) + "]";
      if (!list[i].is_object()) reader_.refuse(place, "is not an object");
      check_rank(list[i], i, place);
      RankedToken token{"", static_cast<int32_t>(first + static_cast<int64_t>(i)), reader_.file() + ": " + place};
      if (!base64_decode(reader_.text(list[i], "token_bytes", place), token.bytes) || token.bytes.empty())
        reader_.refuse(place + ".token_bytes", "is not base64 of at least one byte");
      if (i < 256 && token.bytes != std::string(1, static_cast<char>(i)))
        reader_.refuse(place + ".token_bytes", "is not the byte " + std::to_string(i) + ", as in tekken");
      out.tokens.push_back(std::move(token));
    }
  }

  JsonReader reader_;
};

}  // namespace

HuggingFaceFile read_tekken(const std::string& file) {
  return TekkenReader(file).read();
}

}  // namespace text_data
