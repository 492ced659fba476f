// SPDX-License-Identifier: Apache-2.0
// Patterns of tiktoken, which are those of Rust's fancy-regex, in the syntax of Oniguruma that `Pattern` reads.
#pragma once

#include <string>

namespace text_data {

// Each construct is written so that Oniguruma means what fancy-regex means, or refused: `$` and `^` are the ends of the
// text and not of a line, `{1,3}+` takes all it can and gives nothing back. `where` is the beginning of error texts.
// Throws Failure, which names the construct and its position.
std::string translate_fancy_regex(const std::string& regex, const std::string& where);

}  // namespace text_data
