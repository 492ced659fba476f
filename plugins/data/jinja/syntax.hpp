// SPDX-License-Identifier: Apache-2.0
// The parts of a template, once it was read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "value.hpp"

namespace jinja {

struct Node;
using NodePtr = std::unique_ptr<Node>;

// An expression or a statement. `parts` are its expressions, in the order of the comment; an optional one may be null.
struct Node {
  enum class Kind : uint8_t {
    // Expressions.
    literal,      // value
    name,         // text
    attribute,    // of parts[0], named text
    item,         // parts[1] of parts[0]
    slice,        // parts[0][parts[1] : parts[2] : parts[3]]
    call,         // parts[0] with the arguments parts[1...] and named
    filter,       // text, of parts[0] (null: of the block's text), with arguments
    test,         // text, of parts[0], with arguments
    opposite,     // not parts[0]
    minus,        // of parts[0]
    plus,         // of parts[0]
    binary,       // parts[0] text parts[1]
    compare,      // parts[0] words[0] parts[1] words[1] parts[2] ...
    concat,       // ~
    both,         // and
    either,       // or
    conditional,  // parts[0] if parts[1] else parts[2]
    list,
    tuple,
    dict,  // key, value, key, ...
    // Statements.
    data,          // text
    output,        // parts[0]
    choice,        // bodies[i] if parts[i]; one body more: else
    loop,          // targets in parts[0] if parts[1]: bodies[0]; else bodies[1]
    assign,        // targets = parts[0]
    assign_block,  // targets = the text of bodies[0], through the filter parts[0]
    macro,         // text(words), whose last parameters have the defaults `parts`: bodies[0]
    call_block,  // parts[0], a call, with the caller bodies[0] of the parameters `words` and their defaults parts[1...]
    filter_block,  // the text of bodies[0] through parts[0]
    with,          // targets[i] = parts[i] inside bodies[0]
    generation,    // bodies[0] are words of the assistant
    leave,         // break
    next           // continue
  };
  Kind kind;
  int line = 1, column = 1, depth = 1;
  std::string text;
  Value value;
  std::vector<NodePtr> parts;
  std::vector<std::pair<std::string, NodePtr>> named;
  std::vector<std::string> words;
  std::vector<NodePtr> targets;  // names, attributes of a namespace, or tuples of them
  std::vector<std::vector<NodePtr>> bodies;
};

using Body = std::vector<NodePtr>;

}  // namespace jinja
