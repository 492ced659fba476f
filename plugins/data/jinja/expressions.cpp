// SPDX-License-Identifier: Apache-2.0
// The parser's expressions, from those that bind least to those that bind most.
#include <algorithm>

#include "parser.hpp"

namespace jinja {

using Kind = Node::Kind;

NodePtr Parser::make(Kind kind, const Token& at) const {
  auto node = std::make_unique<Node>();
  node->kind = kind;
  node->line = at.line, node->column = at.column;
  return node;
}

void Parser::add(Node& of, NodePtr part) const {
  if (part) of.depth = std::max(of.depth, part->depth + 1);
  if (of.depth > deepest) throw Error(of.line, of.column, "the template is nested too deeply");
  of.parts.push_back(std::move(part));
}

NodePtr Parser::binary(Kind kind, const Token& sign, NodePtr left, NodePtr right) const {
  NodePtr node = make(kind, sign);
  node->text = sign.text;
  add(*node, std::move(left));
  add(*node, std::move(right));
  return node;
}

NodePtr Parser::expression() {
  const Level level(*this);
  NodePtr node = either();
  while (now().is_name("if")) {
    NodePtr made = make(Kind::conditional, take());
    add(*made, std::move(node));
    add(*made, either());
    add(*made, skip_name("else") ? expression() : nullptr);
    node = std::move(made);
  }
  return node;
}

NodePtr Parser::either() {
  NodePtr node = both();
  while (now().is_name("or")) {
    const Token sign = take();
    node = binary(Kind::either, sign, std::move(node), both());
  }
  return node;
}

NodePtr Parser::both() {
  NodePtr node = opposite();
  while (now().is_name("and")) {
    const Token sign = take();
    node = binary(Kind::both, sign, std::move(node), opposite());
  }
  return node;
}

NodePtr Parser::opposite() {
  const Level level(*this);
  if (!now().is_name("not")) return compare();
  NodePtr node = make(Kind::opposite, take());
  add(*node, opposite());
  return node;
}

NodePtr Parser::compare() {
  NodePtr node = sum();
  NodePtr made;
  const auto compared = [&](std::string word) {
    if (!made) {
      made = make(Kind::compare, now());
      add(*made, std::move(node));
    }
    made->words.push_back(std::move(word));
    add(*made, sum());
  };
  while (true) {
    const Token& sign = now();
    if (sign.is("==") || sign.is("!=") || sign.is("<") || sign.is("<=") || sign.is(">") || sign.is(">=")) {
      compared(take().text);
    } else if (sign.is_name("in")) {
      take();
      compared("in");
    } else if (sign.is_name("not") && ahead().is_name("in")) {
      take(), take();
      compared("not in");
    } else {
      return made ? std::move(made) : std::move(node);
    }
  }
}

NodePtr Parser::sum() {
  NodePtr node = concat();
  while (now().is("+") || now().is("-")) {
    const Token sign = take();
    node = binary(Kind::binary, sign, std::move(node), concat());
  }
  return node;
}

NodePtr Parser::concat() {
  NodePtr node = product();
  if (!now().is("~")) return node;
  NodePtr made = make(Kind::concat, now());
  add(*made, std::move(node));
  while (skip("~")) add(*made, product());
  return made;
}

NodePtr Parser::product() {
  NodePtr node = power();
  while (now().is("*") || now().is("/") || now().is("//") || now().is("%")) {
    const Token sign = take();
    node = binary(Kind::binary, sign, std::move(node), power());
  }
  return node;
}

NodePtr Parser::power() {
  NodePtr node = unary(true);
  while (now().is("**")) {
    const Token sign = take();
    node = binary(Kind::binary, sign, std::move(node), unary(true));
  }
  return node;
}

NodePtr Parser::unary(bool with_filter) {
  const Level level(*this);
  NodePtr node;
  if (now().is("-") || now().is("+")) {
    const Token sign = take();
    node = make(sign.text == "-" ? Kind::minus : Kind::plus, sign);
    add(*node, unary(false));
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filter ? filtered(std::move(node)) : std::move(node);
}

NodePtr Parser::primary() {
  const Token token = now();
  NodePtr node = make(Kind::literal, token);
  switch (token.kind) {
    case Token::Kind::name: {
      take();
      const std::string& name = token.text;
      if (name == "true" || name == "True" || name == "false" || name == "False") {
        node->value = name == "true" || name == "True";
      } else if (name == "none" || name == "None") {
        node->value = None();
      } else {
        node->kind = Kind::name;
        node->text = name;
      }
      return node;
    }
    case Token::Kind::string: {
      std::string text;
      while (now().kind == Token::Kind::string) text += take().text;
      node->value = text;
      return node;
    }
    case Token::Kind::integer:
      node->value = take().integer;
      return node;
    case Token::Kind::real:
      node->value = take().real;
      return node;
    default:
      break;
  }
  if (token.is("(")) {
    take();
    node = tuple(true);
    expect(")");
    return node;
  }
  if (token.is("[")) return list_literal();
  if (token.is("{")) return dict_literal();
  unexpected("a value");
}

NodePtr Parser::tuple(bool parentheses) {
  const Token first = now();
  NodePtr node = make(Kind::tuple, first);
  bool several = false;
  const auto ends = [&] {
    return now().kind == Token::Kind::output_end || now().kind == Token::Kind::block_end || now().is(")");
  };
  while (!ends()) {
    add(*node, expression());
    if (!now().is(",")) break;
    take();
    several = true;
  }
  if (several) return node;
  if (node->parts.empty()) {
    if (!parentheses) unexpected("a value");
    return node;
  }
  return std::move(node->parts[0]);
}

NodePtr Parser::list_literal() {
  NodePtr node = make(Kind::list, take());
  while (!now().is("]")) {
    if (!node->parts.empty()) {
      expect(",");
      if (now().is("]")) break;
    }
    add(*node, expression());
  }
  expect("]");
  return node;
}

NodePtr Parser::dict_literal() {
  NodePtr node = make(Kind::dict, take());
  while (!now().is("}")) {
    if (!node->parts.empty()) {
      expect(",");
      if (now().is("}")) break;
    }
    add(*node, expression());
    expect(":");
    add(*node, expression());
  }
  expect("}");
  return node;
}

NodePtr Parser::postfix(NodePtr node) {
  while (now().is(".") || now().is("[") || now().is("("))
    node = now().is("(") ? call(std::move(node)) : subscript(std::move(node));
  return node;
}

NodePtr Parser::filtered(NodePtr node) {
  while (true) {
    if (now().is("|")) {
      take();
      node = filter(std::move(node));
    } else if (now().is_name("is")) {
      node = test(std::move(node));
    } else if (now().is("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

NodePtr Parser::filter(NodePtr of) {
  NodePtr node = make(Kind::filter, now());
  node->text = expect_name("the name of a filter");
  add(*node, std::move(of));
  if (now().is("(")) arguments(*node);
  return node;
}

NodePtr Parser::test(NodePtr of) {
  const Token is = take();
  const bool negated = skip_name("not");
  NodePtr node = make(Kind::test, is);
  node->text = expect_name("the name of a test");
  add(*node, std::move(of));
  const Token& next = now();
  const bool value = next.kind == Token::Kind::name || next.kind == Token::Kind::string ||
                     next.kind == Token::Kind::integer || next.kind == Token::Kind::real || next.is("[") ||
                     next.is("{");
  const bool word = next.is_name("else") || next.is_name("or") || next.is_name("and");
  if (next.is("(")) {
    arguments(*node);
  } else if (value && !word) {
    if (next.is_name("is")) fail(next, "one test cannot follow another: write `and` between them");
    // `x is divisibleby 3 if y` and `x is none if y`: Jinja takes the word as an argument, and so it stays an error.
    add(*node, postfix(primary()));
  }
  if (!negated) return node;
  NodePtr made = make(Kind::opposite, is);
  add(*made, std::move(node));
  return made;
}

NodePtr Parser::subscript(NodePtr of) {
  const Token sign = take();
  if (sign.is(".")) {
    const Token name = take();
    if (name.kind != Token::Kind::name && name.kind != Token::Kind::integer) fail(name, "a name must follow the dot");
    NodePtr node = make(name.kind == Token::Kind::name ? Kind::attribute : Kind::item, sign);
    add(*node, std::move(of));
    if (name.kind == Token::Kind::name) {
      node->text = name.text;
    } else {
      NodePtr index = make(Kind::literal, name);
      index->value = name.integer;
      add(*node, std::move(index));
    }
    return node;
  }
  NodePtr node = make(Kind::item, sign);
  add(*node, std::move(of));
  NodePtr first = now().is(":") ? nullptr : expression();
  if (now().is(":")) {
    node->kind = Kind::slice;
    add(*node, std::move(first));
    for (int i = 0; i < 2; ++i) add(*node, skip(":") && !now().is(":") && !now().is("]") ? expression() : nullptr);
  } else {
    add(*node, std::move(first));
  }
  if (now().is(",")) fail(now(), "an index of several values is not supported");
  expect("]");
  return node;
}

NodePtr Parser::call(NodePtr of) {
  NodePtr node = make(Kind::call, now());
  add(*node, std::move(of));
  arguments(*node);
  return node;
}

void Parser::arguments(Node& of) {
  expect("(");
  while (!now().is(")")) {
    if (now().is("*") || now().is("**")) fail(now(), "arguments from a list or a dict are not supported");
    if (now().kind == Token::Kind::name && ahead().is("=")) {
      const std::string name = take().text;
      take();
      of.named.emplace_back(name, expression());
      of.depth = std::max(of.depth, of.named.back().second->depth + 1);
    } else {
      if (!of.named.empty()) fail(now(), "an argument without a name cannot follow one with a name");
      add(of, expression());
    }
    if (!skip(",")) break;
  }
  expect(")");
}

}  // namespace jinja
