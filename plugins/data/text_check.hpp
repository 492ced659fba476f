// SPDX-License-Identifier: Apache-2.0
// Counts the bytes of a text that are no text: not UTF-8, or NUL.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace text_data {

// Takes a text in pieces of any size. The result does not depend on where they end.
class TextCheck {
 public:
  static constexpr uint64_t block = uint64_t{1} << 20;
  static constexpr uint64_t one_in = 1000;  // bytes; more is refused, in each MiB and in a shorter text

  // `path` is the file's name in errors. `any`: nothing is refused.
  TextCheck(const std::string& path, bool any) : path_(path), any_(any) {}
  // Throw Failure(ENG_INVALID).
  void feed(std::string_view piece);
  void finish();
  uint64_t wrong() const { return wrong_; }  // bytes that are not UTF-8, and NUL
  uint64_t nul() const { return nul_; }      // how many of them are NUL

 private:
  void byte(unsigned char c);
  void bad(uint64_t count);
  void judge(uint64_t limit);
  [[noreturn]] void refuse() const;

  const std::string& path_;
  bool any_;
  uint64_t size_ = 0, wrong_ = 0, nul_ = 0, edge_ = 0, before_ = 0;
  uint64_t first_ = 0;                      // place of the first wrong byte
  unsigned needed_ = 0, had_ = 0;           // bytes of a character that has begun
  unsigned char low_ = 0x80, high_ = 0xbf;  // of its next one
};

}  // namespace text_data
