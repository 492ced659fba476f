// SPDX-License-Identifier: Apache-2.0
#include "parser.hpp"

#include <algorithm>

namespace jinja {

using Kind = Node::Kind;

Token Parser::take() {
  return now().kind == Token::Kind::end ? now() : tokens_[at_++];
}

bool Parser::skip(std::string_view sign) {
  if (!now().is(sign)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!now().is_name(name)) return false;
  take();
  return true;
}

void Parser::unexpected(const std::string& wanted) const {
  const Token& token = now();
  std::string found = "`" + token.text.substr(0, 40) + "`";
  if (token.kind == Token::Kind::end || token.kind == Token::Kind::data) found = "the end of the tag";
  if (token.kind == Token::Kind::output_end || token.kind == Token::Kind::block_end) found = "the end of the tag";
  fail(token, "here must be " + wanted + ", not " + found);
}

void Parser::expect(std::string_view sign) {
  if (!skip(sign)) unexpected("`" + std::string(sign) + "`");
}

std::string Parser::expect_name(const char* what) {
  if (now().kind != Token::Kind::name) unexpected(what);
  return take().text;
}

void Parser::end_block(std::string_view name) {
  if (now().kind != Token::Kind::block_end) unexpected("the end of the tag `" + std::string(name) + "`");
  take();
}

Body Parser::whole() {
  Body out = body({});
  if (now().kind != Token::Kind::end) fail(now(), "`" + ahead().text + "` has no beginning");
  return out;
}

// The statements up to a tag that begins with one of `ends`, or to the end of the template. The name of that tag is
// next then, or the end of the template.
Body Parser::body(std::initializer_list<std::string_view> ends) {
  const Level level(*this);
  Body out;
  while (now().kind != Token::Kind::end) {
    const Token token = now();
    if (token.kind == Token::Kind::data) {
      NodePtr node = make(Kind::data, token);
      node->text = take().text;
      out.push_back(std::move(node));
    } else if (token.kind == Token::Kind::output_begin) {
      take();
      NodePtr node = make(Kind::output, token);
      add(*node, tuple(false));
      if (now().kind != Token::Kind::output_end) unexpected("`}}`");
      take();
      out.push_back(std::move(node));
    } else {
      const std::string& name = ahead().text;
      if (ahead().kind == Token::Kind::name && std::find(ends.begin(), ends.end(), name) != ends.end()) {
        take();
        return out;
      }
      if (name.rfind("end", 0) == 0 || name == "else" || name == "elif") {
        if (ends.size() == 0) return out;
        fail(ahead(), "`" + name + "` stands where `" + std::string(*(ends.end() - 1)) + "` must be");
      }
      take();
      out.push_back(statement());
    }
  }
  if (ends.size() != 0) fail(now(), "the template ends before {% " + std::string(*(ends.end() - 1)) + " %}");
  return out;
}

NodePtr Parser::statement() {
  const Token at = now();
  const std::string name = expect_name("the name of a statement");
  if (name == "if") return choice(at);
  if (name == "for") return loop(at);
  if (name == "set") return assignment(at);
  if (name == "macro") return macro(at);
  if (name == "call") return call_block(at);
  if (name == "filter") return filter_block(at);
  if (name == "with") return with(at);
  if (name == "generation") return generation(at);
  if (name == "break" || name == "continue") {
    if (loops_ == 0) fail(at, "`" + name + "` stands outside of a loop");
    end_block(name);
    return make(name == "break" ? Kind::leave : Kind::next, at);
  }
  for (const char* file : {"include", "import", "from", "extends", "block"})
    if (name == file) fail(at, "`" + name + "` is not supported: a chat template is one text");
  fail(at, "there is no statement `" + name + "`");
}

NodePtr Parser::choice(const Token& at) {
  NodePtr node = make(Kind::choice, at);
  add(*node, tuple(false));
  while (true) {
    end_block("if");
    node->bodies.push_back(body({"elif", "else", "endif"}));
    if (skip_name("elif")) {
      add(*node, tuple(false));
      continue;
    }
    if (skip_name("else")) {
      end_block("else");
      node->bodies.push_back(body({"endif"}));
    }
    take();
    end_block("endif");
    return node;
  }
}

NodePtr Parser::loop(const Token& at) {
  NodePtr node = make(Kind::loop, at);
  node->targets.push_back(targets(false));
  if (!skip_name("in")) unexpected("`in`");
  // Without `if`: that one begins the condition of the loop.
  NodePtr first = either();
  if (now().is(",")) {
    NodePtr made = make(Kind::tuple, now());
    add(*made, std::move(first));
    while (skip(",")) add(*made, either());
    first = std::move(made);
  }
  add(*node, std::move(first));
  add(*node, skip_name("if") ? expression() : nullptr);
  if (now().is_name("recursive")) fail(now(), "recursive loops are not supported");
  end_block("for");
  ++loops_;
  node->bodies.push_back(body({"else", "endfor"}));
  --loops_;
  if (skip_name("else")) {
    end_block("else");
    node->bodies.push_back(body({"endfor"}));
  }
  take();
  end_block("endfor");
  return node;
}

// A name, or with `space` also an attribute of one.
NodePtr Parser::target(bool space) {
  const Token token = now();
  if (skip("(")) {
    NodePtr node = targets(space);
    expect(")");
    return node;
  }
  NodePtr node = make(Kind::name, token);
  node->text = expect_name("a name");
  for (const char* word : {"true", "false", "none", "True", "False", "None"})
    if (node->text == word) fail(token, "`" + node->text + "` cannot get another value");
  if (!space || !skip(".")) return node;
  NodePtr made = make(Kind::attribute, token);
  made->text = expect_name("a name");
  add(*made, std::move(node));
  return made;
}

NodePtr Parser::targets(bool space) {
  const Level level(*this);
  const Token token = now();
  NodePtr first = target(space);
  if (!now().is(",")) return first;
  NodePtr node = make(Kind::tuple, token);
  add(*node, std::move(first));
  while (skip(",") && (now().kind == Token::Kind::name || now().is("("))) {
    if (now().is_name("in")) break;
    add(*node, target(space));
  }
  return node;
}

NodePtr Parser::assignment(const Token& at) {
  NodePtr node = make(Kind::assign, at);
  node->targets.push_back(targets(true));
  if (skip("=")) {
    add(*node, tuple(false));
    end_block("set");
    return node;
  }
  node->kind = Kind::assign_block;
  NodePtr through;
  while (skip("|")) through = filter(std::move(through));
  add(*node, std::move(through));
  end_block("set");
  node->bodies.push_back(body({"endset"}));
  take();
  end_block("endset");
  return node;
}

// (a, b = 1): the names are words, the defaults are appended to the parts.
void Parser::parameters(Node& of) {
  expect("(");
  bool defaults = false;
  while (!now().is(")")) {
    of.words.push_back(expect_name("the name of a parameter"));
    if (skip("=")) {
      add(of, expression());
      defaults = true;
    } else if (defaults) {
      fail(now(), "a parameter without a default cannot follow one with a default");
    }
    if (!skip(",")) break;
  }
  expect(")");
}

NodePtr Parser::macro(const Token& at) {
  NodePtr node = make(Kind::macro, at);
  node->text = expect_name("the name of the macro");
  parameters(*node);
  end_block("macro");
  const int outer = std::exchange(loops_, 0);
  node->bodies.push_back(body({"endmacro"}));
  loops_ = outer;
  take();
  if (now().kind == Token::Kind::name) take();
  end_block("endmacro");
  return node;
}

NodePtr Parser::call_block(const Token& at) {
  NodePtr node = make(Kind::call_block, at);
  add(*node, nullptr);
  if (now().is("(")) parameters(*node);
  node->parts[0] = unary(false);
  if (node->parts[0]->kind != Kind::call) fail(at, "`call` needs the call of a macro");
  node->depth = std::max(node->depth, node->parts[0]->depth + 1);
  end_block("call");
  const int outer = std::exchange(loops_, 0);
  node->bodies.push_back(body({"endcall"}));
  loops_ = outer;
  take();
  end_block("endcall");
  return node;
}

NodePtr Parser::filter_block(const Token& at) {
  NodePtr node = make(Kind::filter_block, at);
  NodePtr through = filter(nullptr);
  while (skip("|")) through = filter(std::move(through));
  add(*node, std::move(through));
  end_block("filter");
  node->bodies.push_back(body({"endfilter"}));
  take();
  end_block("endfilter");
  return node;
}

NodePtr Parser::with(const Token& at) {
  NodePtr node = make(Kind::with, at);
  while (now().kind != Token::Kind::block_end) {
    if (!node->targets.empty()) expect(",");
    node->targets.push_back(target(false));
    expect("=");
    add(*node, expression());
  }
  end_block("with");
  node->bodies.push_back(body({"endwith"}));
  take();
  end_block("endwith");
  return node;
}

NodePtr Parser::generation(const Token& at) {
  NodePtr node = make(Kind::generation, at);
  end_block("generation");
  const int outer = std::exchange(loops_, 0);
  node->bodies.push_back(body({"endgeneration"}));
  loops_ = outer;
  take();
  end_block("endgeneration");
  return node;
}

}  // namespace jinja
