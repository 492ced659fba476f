// SPDX-License-Identifier: Apache-2.0
#include "tokenizer_harness.hpp"

#include <catch2/catch.hpp>

#include "harness.hpp"

namespace data_test {

void TokenizerUse::set(eng_error* self, eng_status code, const char* text, uint64_t length) {
  self->code = code;
  static_cast<TokenizerUse*>(self->data)->error_.assign(text, length);
}

std::string shown(const Ids& ids) {
  std::string out;
  for (const int32_t id : ids) out += (out.empty() ? "" : " ") + std::to_string(id);
  return out;
}

TokenizerUse::TokenizerUse(const std::string& kind, const std::string& path) {
  sink_ = {sizeof(sink_), 0, this, set};
  table_ = static_cast<const eng_tokenizer*>(plugin().get_interface(ENG_TOKENIZER_KIND, kind.c_str()));
  REQUIRE(table_ != nullptr);
  status_ = table_->create(nullptr, path.c_str(), &self_, &sink_);
  CHECK((status_ == ENG_OK) == (self_ != nullptr));
  if (status_ != ENG_OK) return;
  info_.struct_size = sizeof(info_);
  REQUIRE(table_->describe(self_, &info_, &sink_) == ENG_OK);
}

TokenizerUse::~TokenizerUse() {
  if (self_ != nullptr) table_->destroy(self_);
}

Ids TokenizerUse::encode(std::string_view text, uint32_t flags) {
  if (status_ != ENG_OK) FAIL(error_);
  // A first try with too little room tells how much it takes.
  Ids ids(2);
  uint64_t count = 0;
  REQUIRE(table_->encode(self_, text.data(), text.size(), flags, ids.data(), ids.size(), &count, &sink_) == ENG_OK);
  const Ids first = ids;
  ids.assign(count, -1);
  uint64_t again = 0;
  REQUIRE(table_->encode(self_, text.data(), text.size(), flags, ids.data(), ids.size(), &again, &sink_) == ENG_OK);
  CHECK(again == count);
  if (count >= 2) CHECK(std::equal(first.begin(), first.end(), ids.begin()));
  return ids;
}

std::string TokenizerUse::decode(const Ids& ids) {
  uint64_t size = 0;
  REQUIRE(table_->decode(self_, ids.data(), ids.size(), nullptr, 0, &size, &sink_) == ENG_OK);
  std::string text(size, '?'), pieces;
  REQUIRE(table_->decode(self_, ids.data(), ids.size(), text.data(), text.size(), &size, &sink_) == ENG_OK);
  bool good = true;
  for (const int32_t id : ids) {
    char piece[512];
    good =
        good && table_->decode(self_, &id, 1, piece, sizeof(piece), &size, &sink_) == ENG_OK && size <= sizeof(piece);
    if (good) pieces.append(piece, size);
  }
  CHECK(good);
  CHECK(pieces == text);
  return text;
}

eng_status TokenizerUse::try_decode(const Ids& ids) {
  char text[64];
  uint64_t size = 0;
  return table_->decode(self_, ids.data(), ids.size(), text, sizeof(text), &size, &sink_);
}

}  // namespace data_test
