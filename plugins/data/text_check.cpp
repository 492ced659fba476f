// SPDX-License-Identifier: Apache-2.0
#include "text_check.hpp"

#include <algorithm>
#include <cstring>

#include "failure.hpp"
#include "script.hpp"

namespace text_data {

void TextCheck::bad(uint64_t count) {
  if (wrong_ == 0) first_ = size_ - count;
  wrong_ += count;
}

void TextCheck::byte(unsigned char c) {
  if (needed_ > 0) {
    if (c >= low_ && c <= high_) {
      low_ = 0x80, high_ = 0xbf, ++had_;
      if (--needed_ == 0) had_ = 0;
      ++size_;
      return;
    }
    bad(had_);
    needed_ = had_ = 0;
  }
  ++size_;
  low_ = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
  high_ = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
  if (c >= 0x80) {
    needed_ = c >= 0xc2 && c <= 0xdf ? 1 : c >= 0xe0 && c <= 0xef ? 2 : c >= 0xf0 && c <= 0xf4 ? 3 : 0;
    if (needed_ > 0) {
      had_ = 1;
      return;
    }
    if (c < 0xc0 && size_ <= 3 && edge_ + 1 == size_) ++edge_;  // the end of a character that was cut
  }
  if (c == 0 || c >= 0x80) bad(1);
  nul_ += c == 0;
}

void TextCheck::feed(std::string_view piece) {
  const auto* at = reinterpret_cast<const unsigned char*>(piece.data());
  const auto* const end = at + piece.size();
  while (at < end) {
    const auto* const stop = at + std::min<uint64_t>(static_cast<uint64_t>(end - at), block - size_ % block);
    while (at < stop) {
      uint64_t eight = 0;
      if (needed_ == 0 && stop - at >= 8) {  // eight characters of ASCII, none of them NUL
        std::memcpy(&eight, at, 8);
        if (((eight | (eight - 0x0101010101010101u)) & 0x8080808080808080u) == 0) {
          at += 8, size_ += 8;
          continue;
        }
      }
      byte(*at++);
    }
    if (size_ % block == 0) judge(block / one_in);
  }
}

void TextCheck::judge(uint64_t limit) {
  if (!any_ && wrong_ - edge_ - before_ > limit) refuse();
  before_ = std::max(before_, wrong_ - edge_);
}

void TextCheck::finish() {
  judge(std::min(size_, block) / one_in);
  if (needed_ > 0) bad(had_);  // a character that was cut is not held against the text
  needed_ = had_ = 0;
}

void TextCheck::refuse() const {
  const uint64_t begin = size_ <= block ? 0 : (size_ - 1) / block * block;
  const std::string head = "[data] " + path_ + " is not text in UTF-8: " + std::to_string(wrong_ - edge_ - before_) +
                           " of the " + std::to_string(size_ - begin) + " bytes from byte " + std::to_string(begin) +
                           " on are ";
  const std::string raw = "format = \"bytes\" trains on the bytes of any file, with the tokenizer \"bytes\"";
  if (nul_ * 2 > wrong_)
    throw Failure(ENG_INVALID, head + "NUL, the first at byte " + std::to_string(first_) +
                                   ". It seems to be no text: leave it out of paths. [data] errors = \"replace\" "
                                   "takes it as text all the same, and " +
                                   raw);
  throw Failure(ENG_INVALID,
                head + "not valid, the first at byte " + std::to_string(first_) +
                    ". If it is text in another encoding (WINDOWS-1252 and ISO-8859-1: western languages; "
                    "WINDOWS-1251, KOI8-R: Russian; GB18030: Chinese, GBK too; BIG5; SHIFT_JIS, EUC-JP: Japanese; "
                    "EUC-KR), convert it first:\n  iconv -f ENCODING -t UTF-8 < " +
                    shell_word(path_) + " > " + shell_word(path_ + ".utf8") +
                    "\n[data] errors = \"replace\" takes it as it is (a tokenizer reads such bytes as U+FFFD), and " +
                    raw);
}

}  // namespace text_data
