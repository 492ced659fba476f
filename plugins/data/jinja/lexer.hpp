// SPDX-License-Identifier: Apache-2.0
// The tokens of a template. White space around tags is cut as transformers sets Jinja up: trim_blocks and lstrip_blocks
// are on, one line end at the end of the template is dropped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace jinja {

struct Token {
  enum class Kind : uint8_t {
    data,
    output_begin,
    output_end,
    block_begin,
    block_end,
    name,
    string,
    integer,
    real,
    sign,
    end
  };
  Kind kind = Kind::end;
  std::string text;  // of data, a name, a string (its value) or a sign
  int64_t integer = 0;
  double real = 0;
  int line = 1, column = 1;

  bool is(std::string_view sign) const { return kind == Kind::sign && text == sign; }
  bool is_name(std::string_view name) const { return kind == Kind::name && text == name; }
};

// Throws Error.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace jinja
