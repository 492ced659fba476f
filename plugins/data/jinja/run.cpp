// SPDX-License-Identifier: Apache-2.0
// Statements.
#include "run.hpp"

#include <algorithm>

#include "text.hpp"

namespace jinja {

using Kind = Node::Kind;

class Run::Level {
 public:
  Level(Run& run, const Node& node) : run_(run) {
    if (++run_.depth_ > run_.limits_.depth) {
      --run_.depth_;
      fail(node, "calls and parts are nested too deeply here");
    }
  }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  ~Level() { --run_.depth_; }

 private:
  Run& run_;
};

// A scope inside of `parent`. It is forgotten in the end, unless a macro was made meanwhile, which may need it.
class Run::Inner {
 public:
  Inner(Run& run, Scope* parent) : run_(run), outer_(run.scope_), count_(run.scopes_.size()), captures_(run.captures_) {
    run_.scopes_.push_back({parent, {}});
    run_.scope_ = &run_.scopes_.back();
  }
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;
  ~Inner() {
    run_.scope_ = outer_;
    if (run_.captures_ == captures_)
      while (run_.scopes_.size() > count_) run_.scopes_.pop_back();
  }

 private:
  Run& run_;
  Scope* outer_;
  std::size_t count_;
  uint64_t captures_;
};

Run::Run(const std::vector<std::pair<std::string, Value>>& variables, const std::optional<Date>& date,
         const Limits& limits)
    : variables_(variables), date_(date), limits_(limits) {
  scopes_.push_back({nullptr, {}});
  scope_ = &scopes_.back();
}

Run::~Run() {
  for (const auto& space : spaces_) space->values.items.clear();
}

void Run::steps(uint64_t n) {
  steps_ += n;
  if (steps_ > limits_.steps)
    throw BadValue("the template takes more than " + std::to_string(limits_.steps) + " steps");
}

std::string Run::made(std::string text) {
  steps(text.size() / 32);
  if (text.size() > limits_.text_bytes)
    throw BadValue("a text is longer than " + std::to_string(limits_.text_bytes) + " bytes, the limit");
  return text;
}

void Run::put(std::string_view text) {
  steps(text.size() / 32);
  if (out_->size() + text.size() > limits_.text_bytes)
    throw BadValue("the text is longer than " + std::to_string(limits_.text_bytes) + " bytes, the limit");
  out_->append(text);
}

std::shared_ptr<Space> Run::make_space() {
  steps(4);
  return spaces_.emplace_back(std::make_shared<Space>());
}

void Run::whole(const Body& body) {
  execute(body);
}

Run::Flow Run::execute(const Body& body) {
  for (const NodePtr& node : body)
    if (const Flow flow = execute(*node); flow != Flow::on) return flow;
  return Flow::on;
}

Run::Flow Run::execute(const Node& node) {
  const Level level(*this, node);
  try {
    steps(1);
    switch (node.kind) {
      case Kind::data:
        put(node.text);
        return Flow::on;
      case Kind::output:
        put(to_text(evaluate(*node.parts[0])));
        return Flow::on;
      case Kind::choice:
        return choice(node);
      case Kind::loop:
        return loop(node);
      case Kind::assign:
        assign(*node.targets[0], evaluate(*node.parts[0]));
        return Flow::on;
      case Kind::assign_block: {
        const Value text(block_text(node.bodies[0]));
        assign(*node.targets[0], node.parts[0] ? through(*node.parts[0], text) : text);
        return Flow::on;
      }
      case Kind::filter_block:
        put(to_text(through(*node.parts[0], Value(block_text(node.bodies[0])))));
        return Flow::on;
      case Kind::macro:
        define(node.text, function_of(node, node.text, 0));
        return Flow::on;
      case Kind::call_block:
        call_block(node);
        return Flow::on;
      case Kind::with: {
        std::vector<Value> values;
        for (const NodePtr& part : node.parts) values.push_back(evaluate(*part));
        const Inner inner(*this, scope_);
        for (std::size_t i = 0; i < values.size(); ++i) assign(*node.targets[i], values[i]);
        return execute(node.bodies[0]);
      }
      case Kind::generation: {
        if (out_ != &text_ || generating_)
          fail(node, "{% generation %} inside of a macro, a block that is stored, or itself, is not supported");
        const Inner inner(*this, scope_);
        generating_ = true;
        const std::size_t begin = text_.size();
        execute(node.bodies[0]);
        generating_ = false;
        generated_.emplace_back(begin, text_.size());
        return Flow::on;
      }
      case Kind::leave:
        return Flow::leave;
      case Kind::next:
        return Flow::next;
      default:
        fail(node, "an expression stands where a statement must be");
    }
  } catch (const BadValue& bad) {
    fail(node, bad.what());
  }
}

Run::Flow Run::choice(const Node& node) {
  for (std::size_t i = 0; i < node.parts.size(); ++i)
    if (truth(evaluate(*node.parts[i]))) return execute(node.bodies[i]);
  return node.bodies.size() > node.parts.size() ? execute(node.bodies.back()) : Flow::on;
}

Run::Flow Run::loop(const Node& node) {
  const Value of = evaluate(*node.parts[0]);
  auto items = std::make_shared<std::vector<Value>>(this->items(of));
  if (node.parts[1]) {
    std::vector<Value> kept;
    for (const Value& item : *items) {
      const Inner inner(*this, scope_);
      assign(*node.targets[0], item);
      if (truth(evaluate(*node.parts[1]))) kept.push_back(item);
    }
    *items = std::move(kept);
  }
  if (items->empty()) {
    if (node.bodies.size() < 2) return Flow::on;
    const Inner inner(*this, scope_);
    return execute(node.bodies[1]);
  }
  const auto state = std::make_shared<Loop>();
  state->items = items;
  state->depth = ++loops_;
  Flow flow = Flow::on;
  for (std::size_t i = 0; i < items->size() && flow != Flow::leave; ++i) {
    const Inner inner(*this, scope_);
    state->at = i;
    define("loop", Value(std::shared_ptr<const Loop>(state)));
    assign(*node.targets[0], (*items)[i]);
    steps(1);
    flow = execute(node.bodies[0]);
  }
  --loops_;
  return Flow::on;
}

void Run::define(const std::string& name, Value value) {
  for (auto& known : scope_->values)
    if (known.first == name) {
      known.second = std::move(value);
      return;
    }
  scope_->values.emplace_back(name, std::move(value));
}

void Run::assign(const Node& target, const Value& value) {
  if (target.kind == Kind::name) return define(target.text, value);
  if (target.kind == Kind::attribute) {
    const Value of = lookup(target.parts[0]->text);
    auto* space = of.object<Space>();
    if (!space) fail(target, "only an object of namespace() can get an attribute, not " + type_name(of));
    steps(space->values.items.size() / 8 + 1);
    return space->values.put(Value(target.text), value);
  }
  std::vector<Value> items;
  try {
    items = this->items(value);
  } catch (const BadValue& bad) {
    fail(target, bad.what());
  }
  if (items.size() != target.parts.size())
    fail(target, std::to_string(items.size()) + " values for " + std::to_string(target.parts.size()) + " names");
  for (std::size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i]);
}

std::string Run::block_text(const Body& body) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  try {
    const Inner inner(*this, scope_);
    execute(body);
  } catch (...) {
    out_ = outer;
    throw;
  }
  out_ = outer;
  return text;
}

// The parameters node.words; the last of them have the defaults node.parts[first_default...].
Value Run::function_of(const Node& node, std::string name, std::size_t first_default) {
  ++captures_;
  auto made = std::make_shared<Function>();
  made->name = name;
  made->body = [&node, name = std::move(name), first_default, home = scope_](Run& run, const Call& call) {
    return run.call_body(node, name, first_default, home, call);
  };
  return std::shared_ptr<const Function>(std::move(made));
}

Value Run::call_body(const Node& node, const std::string& name, std::size_t first_default, Scope* home,
                     const Call& call) {
  const Level level(*this, node);
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  const int64_t loops = std::exchange(loops_, 0);
  try {
    const Inner inner(*this, home);
    const std::vector<std::string>& names = node.words;
    if (call.args.size() > names.size())
      throw BadValue("`" + name + "` takes " + std::to_string(names.size()) + " arguments, not " +
                     std::to_string(call.args.size()));
    for (const auto& given : call.named) {
      const auto at = std::find(names.begin(), names.end(), given.first);
      if (at == names.end() && given.first != "caller")
        throw BadValue("`" + name + "` has no parameter `" + given.first + "`");
      if (at != names.end() && static_cast<std::size_t>(at - names.begin()) < call.args.size())
        throw BadValue("`" + name + "` gets `" + given.first + "` twice");
    }
    const std::size_t defaults = node.parts.size() - first_default;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto given =
          std::find_if(call.named.begin(), call.named.end(), [&](const auto& one) { return one.first == names[i]; });
      if (i < call.args.size())
        define(names[i], call.args[i]);
      else if (given != call.named.end())
        define(names[i], given->second);
      else if (i + defaults >= names.size())
        define(names[i], evaluate(*node.parts[first_default + i + defaults - names.size()]));
      else
        define(names[i], Value(Undefined{names[i]}));
    }
    for (const auto& given : call.named)
      if (given.first == "caller") define("caller", given.second);
    execute(node.bodies[0]);
  } catch (...) {
    out_ = outer, loops_ = loops;
    throw;
  }
  out_ = outer, loops_ = loops;
  return made(std::move(text));
}

void Run::call_block(const Node& node) {
  const Value caller = function_of(node, "caller", 1);
  put(to_text(called(*node.parts[0], &caller)));
}

}  // namespace jinja
