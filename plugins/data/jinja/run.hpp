// SPDX-License-Identifier: Apache-2.0
// One rendering of a template.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "syntax.hpp"
#include "template.hpp"

namespace jinja {

// The arguments of a call by the names of its parameters.
class Arguments {
 public:
  // Throws BadValue for one too many, and for a name that is not among them.
  Arguments(const Call& call, std::string_view who, std::initializer_list<std::string_view> names);
  const Value* find(std::size_t i) const { return i < given_.size() ? given_[i] : nullptr; }
  const Value& need(std::size_t i) const;
  const std::string& text(std::size_t i) const;
  int64_t integer(std::size_t i, int64_t fallback) const;
  bool flag(std::size_t i, bool fallback) const;

 private:
  std::string who_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> given_;
};

class Run {
 public:
  Run(const std::vector<std::pair<std::string, Value>>& variables, const std::optional<Date>& date,
      const Limits& limits);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run();

  Rendered finish() { return {std::move(text_), std::move(generated_)}; }
  void whole(const Body& body);

  // Counts work, and text that is made. Throws BadValue at the limit.
  void steps(uint64_t n);
  std::string made(std::string text);
  const std::optional<Date>& date() const { return date_; }
  std::shared_ptr<Space> make_space();
  std::vector<Value> items(const Value& value);  // items_of, counted

  // Filters and tests by name, for those that take another's name (map, select). Throw BadValue.
  Value filter(const std::string& name, const Value& subject, const Call& call);
  bool test(const std::string& name, const Value& subject, const Call& call);
  // a.name as Jinja has it: a method, then an entry of a dict.
  Value attribute(const Value& of, const std::string& name);
  Value item(const Value& of, const Value& key);
  // "a.b.0"
  Value path(const Value& of, const Value& dotted);

 private:
  struct Scope {
    Scope* parent;
    std::vector<std::pair<std::string, Value>> values;
  };
  enum class Flow : uint8_t { on, leave, next };
  class Level;
  class Inner;

  // run.cpp
  Flow execute(const Body& body);
  Flow execute(const Node& node);
  Flow choice(const Node& node);
  Flow loop(const Node& node);
  void assign(const Node& target, const Value& value);
  void define(const std::string& name, Value value);
  std::string block_text(const Body& body);
  Value function_of(const Node& node, std::string name, std::size_t first_default);
  Value call_body(const Node& node, const std::string& name, std::size_t first_default, Scope* home, const Call& call);
  void call_block(const Node& node);
  void put(std::string_view text);

  // evaluate.cpp
  Value evaluate(const Node& node);
  Value evaluate_inner(const Node& node);
  Value lookup(const std::string& name) const;
  Value called(const Node& node, const Value* caller);
  Call arguments(const Node& node, std::size_t first);
  Value binary(const std::string& sign, const Value& a, const Value& b);
  bool compared(const std::string& word, const Value& a, const Value& b);
  bool contains(const Value& in, const Value& what);
  Value sliced(const Node& node);
  // The filters of a block, of which the innermost gets its text.
  Value through(const Node& node, const Value& text);

  [[noreturn]] static void fail(const Node& node, const std::string& what) {
    throw Error(node.line, node.column, what);
  }

  const std::vector<std::pair<std::string, Value>>& variables_;
  const std::optional<Date> date_;
  const Limits limits_;
  std::deque<Scope> scopes_;
  Scope* scope_ = nullptr;
  std::string text_;
  std::string* out_ = &text_;
  std::vector<std::pair<std::size_t, std::size_t>> generated_;
  bool generating_ = false;
  uint64_t steps_ = 0, captures_ = 0;
  int depth_ = 0;
  int64_t loops_ = 0;
  std::vector<std::shared_ptr<Space>> spaces_;  // emptied in the end: they may hold each other
};

// methods.cpp: a method of a text or a dict, bound to it; undefined: there is none.
Value method_of(const Value& of, const std::string& name);
// functions.cpp: range, namespace and the other names that every template has; undefined: there is none.
Value function_named(const std::string& name);
// filters.cpp, lists.cpp and checks.cpp: nullptr: there is none.
using Filter = Value (*)(Run&, const Value& subject, const Call& call);
using Test = bool (*)(Run&, const Value& subject, const Call& call);
Filter text_filter(std::string_view name);
Filter list_filter(std::string_view name);
Test check_named(std::string_view name);

}  // namespace jinja
