// SPDX-License-Identifier: Apache-2.0
// The files that an export takes of a tokenizer, and the class that it writes.
#include "session/huggingface/export_tokenizer.hpp"

#include <catch2/catch.hpp>

#include "tests/cli/harness.hpp"

using namespace eng;
namespace fs = std::filesystem;

namespace {

struct WrittenTokenizer {
  std::vector<std::string> files;
  cli::Json config;
};

// `files` are written to a folder, whose tokenizer is exported; with `named`, that file of it.
WrittenTokenizer written_tokenizer(const std::map<std::string, std::string>& files, const std::string& named = "") {
  cli::Scratch scratch;
  fs::create_directory(scratch / "from");
  for (const auto& [name, text] : files) scratch.write("from/" + name, text);
  fs::create_directory(scratch / "to");
  TokenizerSource source;
  source.name = (scratch / "from").string() + (named.empty() ? "" : "/" + named);
  export_tokenizer(source, scratch / "to");
  WrittenTokenizer out;
  out.files = cli::names(scratch / "to");
  if (fs::exists(scratch / "to" / "tokenizer_config.json"))
    out.config = cli::Json::parse(cli::read(scratch / "to" / "tokenizer_config.json"));
  return out;
}

using FileNames = std::vector<std::string>;

}  // namespace

TEST_CASE("an exported tokenizer.json gets a class that takes all of it") {
  for (const char* name : {"GPT2Tokenizer", "LlamaTokenizerFast", "Qwen2Tokenizer", "MyTokenizer"}) {
    const WrittenTokenizer out = written_tokenizer(
        {{"tokenizer.json", "{}"},
         {"tokenizer_config.json", std::string(R"({"tokenizer_class": ")") + name +
                                       R"(", "eos_token": {"content": "<e>"}, "chat_template": "x"})"}});
    CHECK(out.config.at("tokenizer_class") == "PreTrainedTokenizerFast");
    CHECK(out.config.at("eos_token") == "<e>");
    CHECK(out.config.at("chat_template") == "x");
  }
  for (const char* name : {"PreTrainedTokenizerFast", "TokenizersBackend"}) {
    const std::string text = std::string(R"({"tokenizer_class":")") + name + R"(","eos_token":{"content":"<e>"}})";
    CHECK(written_tokenizer({{"tokenizer.json", "{}"}, {"tokenizer_config.json", text}}).config ==
          cli::Json::parse(text));
  }
}

TEST_CASE("an export has the files that count beside the tokenizer, and of several tokenizers the one in use") {
  const std::map<std::string, std::string> all = {
      {"tokenizer.json", "{}"},    {"tokenizer.model", "\n"},         {"vocab.json", "{}"},         {"merges.txt", ""},
      {"added_tokens.json", "{}"}, {"special_tokens_map.json", "{}"}, {"chat_template.jinja", "x"}, {"notes.txt", ""}};
  CHECK(written_tokenizer(all, "tokenizer.json").files == FileNames{"added_tokens.json", "chat_template.jinja",
                                                                    "special_tokens_map.json", "tokenizer.json",
                                                                    "tokenizer_config.json"});
  CHECK(written_tokenizer(all, "tokenizer.model").files == FileNames{"added_tokens.json", "chat_template.jinja",
                                                                     "special_tokens_map.json", "tokenizer.model",
                                                                     "tokenizer_config.json"});
  CHECK(written_tokenizer(all, "vocab.json").files == FileNames{"added_tokens.json", "chat_template.jinja",
                                                                "merges.txt", "special_tokens_map.json",
                                                                "tokenizer_config.json", "vocab.json"});
  const WrittenTokenizer model = written_tokenizer({{"my.model", "\n"}}, "my.model");
  CHECK(model.files == FileNames{"tokenizer.model", "tokenizer_config.json"});
  CHECK(model.config.at("tokenizer_class") == "SentencePieceBackend");
}

TEST_CASE("vocab.json and merges.txt keep their class, or get the one by which they were read") {
  const auto of = [](const std::string& config, const std::string& model) {
    std::map<std::string, std::string> files = {{"vocab.json", "{}"}, {"merges.txt", ""}};
    if (!config.empty()) files["tokenizer_config.json"] = config;
    if (!model.empty()) files["config.json"] = model;
    return written_tokenizer(files).config;
  };
  CHECK(of(R"({"tokenizer_class": "Qwen2Tokenizer"})", "").at("tokenizer_class") == "Qwen2Tokenizer");
  CHECK(of("", R"({"model_type": "qwen2"})").at("tokenizer_class") == "Qwen2Tokenizer");
  CHECK(of(R"({"tokenizer_class": "GPT2Tokenizer"})", R"({"model_type": "qwen2"})").at("tokenizer_class") ==
        "Qwen2Tokenizer");
  CHECK(of(R"({"tokenizer_class": "GPT2Tokenizer"})", R"({"model_type": "qwen3"})").at("tokenizer_class") ==
        "GPT2Tokenizer");
  CHECK(of("{}", R"({"model_type": "gpt_neox", "tokenizer_class": "RobertaTokenizer"})").at("tokenizer_class") ==
        "RobertaTokenizer");
  // GPT2Tokenizer adds <|endoftext|> for each of these that is not named.
  const cli::Json plain = of(R"({"eos_token": "</s>"})", R"({"model_type": "opt"})");
  CHECK(plain.at("tokenizer_class") == "GPT2Tokenizer");
  CHECK(plain.at("eos_token") == "</s>");
  CHECK(plain.at("bos_token").is_null());
  CHECK(plain.at("unk_token").is_null());
}
