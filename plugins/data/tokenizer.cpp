// SPDX-License-Identifier: Apache-2.0
#include "tokenizer.hpp"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "failure.hpp"
#include "hash.hpp"
#include "hub.hpp"
#include "ranks.hpp"

namespace text_data {
namespace {

namespace fs = std::filesystem;

class Bytes final : public Tokenizer {
 public:
  Bytes() {
    info_.vocabulary = 256;
    Hash hash;
    hash.add_field("bytes");
    info_.hash = hash.text();
  }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  void decode(int32_t id, std::string& text) const override { text += static_cast<char>(id); }
};

bool there(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// A serialised sentencepiece model begins with the tag of its first piece; other files called tokenizer.model do not.
bool is_sentencepiece(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return in.get() == '\n';
}

// The beginning of a file is enough to see what it is.
bool is_ranks(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string begin(1024, '\0');
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(in.gcount()));
  return is_tiktoken(begin);
}

bool is_tekken_name(const fs::path& path) {
  return path.extension() == ".json" && path.filename().string().find("tekken") != std::string::npos;
}

// The only *.tiktoken of a folder; "" if there is none.
fs::path ranks_of(const fs::path& folder) {
  fs::path found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() != ".tiktoken" || !there(entry.path())) continue;
    if (!found.empty())
      throw Failure(ENG_INVALID, folder.string() + ": this folder holds " + found.filename().string() + " and " +
                                     entry.path().filename().string() + ": name the file");
    found = entry.path();
  }
  return found;
}

// The tokenizer.model of a folder. Where tokens are added to it, a tokenizer.json says better how the text between them
// is read, unless that asks for what is not implemented.
std::unique_ptr<Tokenizer> open_model(const fs::path& folder) {
  auto model = open_sentencepiece((folder / "tokenizer.model").string());
  if (!model->info().extended || !there(folder / "tokenizer.json")) return model;
  try {
    return open_huggingface((folder / "tokenizer.json").string());
  } catch (const Failure& failure) {
    if (failure.status != ENG_UNSUPPORTED) throw;
    return model;
  }
}

}  // namespace

std::unique_ptr<Tokenizer> open_bytes() {
  return std::make_unique<Bytes>();
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& what, const std::string& base_dir) {
  if (what == "bytes") return open_bytes();
  const fs::path path = (fs::path(base_dir) / what).lexically_normal();
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    if (there(path / "tokenizer.model") && is_sentencepiece(path / "tokenizer.model")) return open_model(path);
    if (there(path / "tokenizer.json")) return open_huggingface((path / "tokenizer.json").string());
    if (there(path / "vocab.json") && there(path / "merges.txt"))
      return open_huggingface((path / "vocab.json").string());
    if (there(path / "tokenizer.model") && is_ranks(path / "tokenizer.model"))
      return open_tiktoken((path / "tokenizer.model").string());
    if (there(path / "tekken.json")) return open_tekken((path / "tekken.json").string());
    if (const fs::path ranks = ranks_of(path); !ranks.empty()) return open_tiktoken(ranks.string());
    if (there(path / "tokenizer.model"))
      return open_sentencepiece((path / "tokenizer.model").string());  // says what it is
    throw Failure(ENG_NOT_FOUND, path.string() +
                                     ": this folder holds no tokenizer.model, no tokenizer.json, no tekken.json, no "
                                     "*.tiktoken, and no vocab.json with a merges.txt");
  }
  if (!fs::exists(path, ignored)) {
    std::string text = "[data] tokenizer: there is no " + path.string() +
                       "; use \"bytes\", a tokenizer.json, a tokenizer.model, or a folder with one";
    if (const std::string name = hub_name(what, base_dir); !name.empty())
      text += ". If " + what +
              " is on huggingface.co, download it first:\n  pip install huggingface_hub\n  hf download " + what +
              " --include 'tokenizer*' --local-dir " + name + "\nand set data.tokenizer=" + name + ". " + mirrors;
    throw Failure(ENG_NOT_FOUND, text);
  }
  if (!fs::is_regular_file(path, ignored))
    throw Failure(ENG_INVALID, "[data] tokenizer: " + path.string() +
                                   " is a pipe, a device or a socket: write what it holds into a file first");
  if (is_tekken_name(path)) return open_tekken(path.string());
  if (path.extension() == ".tiktoken" || is_ranks(path)) return open_tiktoken(path.string());
  if (path.extension() == ".json") return open_huggingface(path.string());
  if (path.extension() == ".model" || is_sentencepiece(path)) return open_sentencepiece(path.string());
  throw Failure(ENG_INVALID, path.string() + ": is no tokenizer.json, tokenizer.model, tekken.json or *.tiktoken");
}

}  // namespace text_data
