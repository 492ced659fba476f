// SPDX-License-Identifier: Apache-2.0
// Reads the tokens of a template into nodes. The grammar is Jinja's; what is not understood is an error.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "lexer.hpp"
#include "syntax.hpp"

namespace jinja {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}
  Body whole();  // throws Error

 private:
  static constexpr int deepest = 250;

  // parser.cpp: statements.
  Body body(std::initializer_list<std::string_view> ends);
  NodePtr statement();
  NodePtr choice(const Token& at);
  NodePtr loop(const Token& at);
  NodePtr assignment(const Token& at);
  NodePtr macro(const Token& at);
  NodePtr call_block(const Token& at);
  NodePtr filter_block(const Token& at);
  NodePtr with(const Token& at);
  NodePtr generation(const Token& at);
  void parameters(Node& of);
  void end_block(std::string_view name);
  NodePtr target(bool space);
  NodePtr targets(bool space);

  // expressions.cpp.
  NodePtr expression();
  NodePtr either();
  NodePtr both();
  NodePtr opposite();
  NodePtr compare();
  NodePtr sum();
  NodePtr concat();
  NodePtr product();
  NodePtr power();
  NodePtr unary(bool with_filter);
  NodePtr primary();
  NodePtr postfix(NodePtr of);
  NodePtr filtered(NodePtr of);
  NodePtr filter(NodePtr of);
  NodePtr test(NodePtr of);
  NodePtr subscript(NodePtr of);
  NodePtr call(NodePtr of);
  void arguments(Node& of);
  NodePtr tuple(bool parentheses);
  NodePtr list_literal();
  NodePtr dict_literal();

  [[noreturn]] void fail(const Token& at, const std::string& what) const { throw Error(at.line, at.column, what); }
  [[noreturn]] void unexpected(const std::string& wanted) const;
  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool skip(std::string_view sign);
  bool skip_name(std::string_view name);
  void expect(std::string_view sign);
  std::string expect_name(const char* what);
  NodePtr make(Node::Kind kind, const Token& at) const;
  void add(Node& of, NodePtr part) const;
  NodePtr binary(Node::Kind kind, const Token& sign, NodePtr left, NodePtr right) const;

  // Counts how deeply what is being read is nested.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.level_ > deepest) parser_.fail(parser_.now(), "the template is nested too deeply");
    }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --parser_.level_; }

   private:
    Parser& parser_;
  };

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int level_ = 0, loops_ = 0;
};

}  // namespace jinja
