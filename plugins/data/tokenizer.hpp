// SPDX-License-Identifier: Apache-2.0
// One interface for the tokenizers of this plugin. The text source uses it, and the C table eng.tokenizer/1 passes it
// on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace text_data {

class Tokenizer {
 public:
  struct Info {
    int64_t vocabulary = 0;
    int32_t bos = -1, eos = -1, eot = -1;
    std::string hash;       // 32 hexadecimal digits
    bool extended = false;  // a tokenizer.model to which other files add ids
  };
  virtual ~Tokenizer() = default;
  const Info& info() const { return info_; }
  // Ids put before (bos) and after (eos) a text that is encoded with them.
  const std::vector<int32_t>& prefix() const { return prefix_; }
  const std::vector<int32_t>& suffix() const { return suffix_; }
  // Appends the ids of a text, which may hold any bytes. Any number of threads may call this at once.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // Appends the bytes of one id, 0 <= id < vocabulary.
  virtual void decode(int32_t id, std::string& text) const = 0;
  // True if no token reaches over a single space between two letters: a long text may be cut there.
  virtual bool cuttable() const { return true; }
  // The versions of the libraries and tables that influence the ids, apart from the tokenizer's own file.
  virtual std::string libraries() const { return ""; }

 protected:
  Info info_;
  std::vector<int32_t> prefix_, suffix_;
};

std::unique_ptr<Tokenizer> open_bytes();
// `file` is a tokenizer.json, or a vocab.json beside a merges.txt; for the second, a tokenizer.model. The files beside
// it count too. These throw Failure.
std::unique_ptr<Tokenizer> open_huggingface(const std::string& file);
std::unique_ptr<Tokenizer> open_sentencepiece(const std::string& file);
std::unique_ptr<Tokenizer> open_tiktoken(const std::string& file);  // lines of a token and its rank
std::unique_ptr<Tokenizer> open_tekken(const std::string& file);    // Mistral's tekken.json
// Opens "bytes", or a path relative to base_dir: a file, or a folder that holds one.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& what, const std::string& base_dir);

// Reads a whole file of at most 256 MiB. Throws Failure.
std::string read_whole(const std::string& path);
// The text of a small file, or nothing if it does not exist.
std::string read_if_there(const std::string& path);

}  // namespace text_data
