// SPDX-License-Identifier: Apache-2.0
// A host for one tokenizer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer.h"

namespace data_test {

// The files that tools/goldens/tokenizer.py left.
inline const std::string golden = std::string(ENGINE_SOURCE_DIR) + "/tests/data/golden/";

using Ids = std::vector<int32_t>;

std::string shown(const Ids& ids);  // with spaces between

class TokenizerUse {
 public:
  // `kind` is the name that the plugin lists: auto, bytes, huggingface, sentencepiece.
  TokenizerUse(const std::string& kind, const std::string& path);
  TokenizerUse(const TokenizerUse&) = delete;
  TokenizerUse& operator=(const TokenizerUse&) = delete;
  ~TokenizerUse();
  eng_status status() const { return status_; }
  const std::string& error() const { return error_; }
  const eng_tokenizer_info& info() const { return info_; }
  Ids encode(std::string_view text, uint32_t flags = 0);
  std::string decode(const Ids& ids);
  eng_status try_decode(const Ids& ids);
  void* self() const { return self_; }

 private:
  static void set(eng_error* self, eng_status code, const char* text, uint64_t length);
  const eng_tokenizer* table_ = nullptr;
  void* self_ = nullptr;
  eng_status status_ = ENG_OK;
  std::string error_;
  eng_error sink_{};
  eng_tokenizer_info info_{};
};

}  // namespace data_test
