// SPDX-License-Identifier: Apache-2.0
// Recognises a file by its first bytes; its name does not count.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace text_data {

constexpr std::size_t head_bytes = std::size_t{64} << 10;  // of a file, that are looked at

struct Content {
  enum Kind {
    text,  // nothing else was recognised
    gzip,
    zstd,        // read as what they hold
    json_lines,  // an object on each line
    json,        // another form of JSON
    page,        // a web page and the like: text, but seldom the text that was meant
    tokens,      // ids of tokens, with a header
    other        // not text
  };
  Kind kind = text;
  std::string_view what = {};    // completes "FILE is ..."
  std::string_view advice = {};  // what to do, without a full stop
  std::string_view command =
      {};  // from standard input to standard output, or with {} for the file, {dir} for its folder
  std::string_view ending = {};  // of the file that the command writes; "~" before it: between name and ending
  std::size_t mark = 0;          // bytes of UTF-8's byte-order mark before the text
  bool rows = false;             // `json`: one array of objects
};

// `whole`: nothing comes after `head`, which has at most head_bytes.
Content sniff(std::string_view head, bool whole);
// Like `sniff`, without the forms that a file of ids without a header may have by chance.
Content sniff_among_ids(std::string_view head, bool whole);

// Parts of `sniff`, for what is text. `other`, `json` or `page` if it is recognised, else `text`.
Content sniff_encoding(std::string_view head, bool whole);
Content sniff_json(std::string_view text, bool whole);
Content sniff_page(std::string_view text);
// Valid UTF-8 without control characters, but for a character that is cut at the end.
bool is_plain_text(std::string_view head);

// "is ..., inside gzip, ...": the rest of an error about a file of this content. `around` is "gzip", "zstd" or "".
std::string refusal(const Content& content, const std::string& path, const std::string& around);
// The name without its folder in lower case, and without the ending of gzip or zstd.
std::string bare_name(const std::string& path);

}  // namespace text_data
