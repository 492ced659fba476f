// SPDX-License-Identifier: Apache-2.0
// Expressions.
#include <algorithm>
#include <cmath>
#include <limits>

#include "run.hpp"
#include "text.hpp"

namespace jinja {

using Kind = Node::Kind;

namespace {

[[noreturn]] void no_operation(const std::string& sign, const Value& a, const Value& b) {
  throw BadValue("`" + sign + "` is not for " + type_name(a) + " and " + type_name(b));
}

Value whole_arithmetic(char sign, int64_t a, int64_t b) {
  int64_t out = 0;
  const bool over = sign == '+'   ? __builtin_add_overflow(a, b, &out)
                    : sign == '-' ? __builtin_sub_overflow(a, b, &out)
                                  : __builtin_mul_overflow(a, b, &out);
  if (over) throw BadValue("a whole number is too large");
  return out;
}

// Python's // and %: rounded down.
Value whole_division(bool rest, int64_t a, int64_t b) {
  if (b == 0) throw BadValue("a division by zero");
  if (b == -1) return rest ? Value(int64_t{0}) : whole_arithmetic('-', 0, a);
  const bool down = a % b != 0 && (a < 0) != (b < 0);
  return rest ? a % b + (down ? b : 0) : a / b - (down ? 1 : 0);
}

Value whole_power(int64_t a, int64_t b) {
  Value out(int64_t{1});
  for (int64_t i = 0; i < b; ++i) {
    if (i > 64 && a != 0 && a != 1 && a != -1) throw BadValue("a whole number is too large");
    if (i > 1 && (a == 0 || a == 1)) return a;
    if (i > 1 && a == -1) return b % 2 == 0 ? int64_t{1} : int64_t{-1};
    out = whole_arithmetic('*', *out.get<int64_t>(), a);
  }
  return out;
}

// The place of index `at` among n; negative ones count from the end.
bool place_of(int64_t at, std::size_t n, std::size_t* out) {
  const auto size = static_cast<int64_t>(n);
  if (at < -size || at >= size) return false;
  *out = static_cast<std::size_t>(at < 0 ? at + size : at);
  return true;
}

}  // namespace

Value Run::evaluate(const Node& node) {
  if (++depth_ > limits_.depth) {
    --depth_;
    fail(node, "calls and parts are nested too deeply here");
  }
  struct Down {
    int& depth;
    ~Down() { --depth; }
  } const down{depth_};
  try {
    steps(1);
    return evaluate_inner(node);
  } catch (const BadValue& bad) {
    fail(node, bad.what());
  }
}

Value Run::evaluate_inner(const Node& node) {
  const auto part = [&](std::size_t i) { return evaluate(*node.parts[i]); };
  switch (node.kind) {
    case Kind::literal:
      return node.value;
    case Kind::name:
      return lookup(node.text);
    case Kind::attribute:
      return attribute(part(0), node.text);
    case Kind::item: {
      const Value of = part(0);
      return item(of, part(1));
    }
    case Kind::slice:
      return sliced(node);
    case Kind::call:
      return called(node, nullptr);
    case Kind::filter: {
      const Value subject = part(0);
      return filter(node.text, subject, arguments(node, 1));
    }
    case Kind::test: {
      const Value subject = part(0);
      return test(node.text, subject, arguments(node, 1));
    }
    case Kind::opposite:
      return !truth(part(0));
    case Kind::minus:
    case Kind::plus: {
      const Value value = part(0);
      int64_t whole = 0;
      if (as_integer(value, &whole)) return node.kind == Kind::plus ? Value(whole) : whole_arithmetic('-', 0, whole);
      if (const auto* real = value.get<double>()) return node.kind == Kind::plus ? *real : -*real;
      throw BadValue("a sign is not for " + type_name(value));
    }
    case Kind::binary: {
      const Value a = part(0);
      return binary(node.text, a, part(1));
    }
    case Kind::compare: {
      Value left = part(0);
      for (std::size_t i = 0; i < node.words.size(); ++i) {
        Value right = part(i + 1);
        if (!compared(node.words[i], left, right)) return false;
        left = std::move(right);
      }
      return true;
    }
    case Kind::concat: {
      std::string out;
      for (std::size_t i = 0; i < node.parts.size(); ++i) out += to_text(part(i));
      return made(std::move(out));
    }
    case Kind::both: {
      Value left = part(0);
      return truth(left) ? part(1) : left;
    }
    case Kind::either: {
      Value left = part(0);
      return truth(left) ? left : part(1);
    }
    case Kind::conditional:
      if (truth(part(1))) return part(0);
      return node.parts[2] ? part(2) : Value(Undefined{"the inline if without else"});
    case Kind::list:
    case Kind::tuple: {
      std::vector<Value> items;
      for (std::size_t i = 0; i < node.parts.size(); ++i) items.push_back(part(i));
      return make_list(std::move(items), node.kind == Kind::list ? Sequence::Flavor::list : Sequence::Flavor::tuple);
    }
    case Kind::dict: {
      auto dict = std::make_shared<Dict>();
      for (std::size_t i = 0; i + 1 < node.parts.size(); i += 2) {
        Value key = part(i);
        dict->put(std::move(key), part(i + 1));
      }
      return dict;
    }
    default:
      fail(node, "a statement stands where an expression must be");
  }
}

Value Run::lookup(const std::string& name) const {
  for (const Scope* scope = scope_; scope; scope = scope->parent)
    for (const auto& known : scope->values)
      if (known.first == name) return known.second;
  for (const auto& known : variables_)
    if (known.first == name) return known.second;
  Value found = function_named(name);
  return found.undefined() ? Value(Undefined{name}) : found;
}

Call Run::arguments(const Node& node, std::size_t first) {
  Call call;
  for (std::size_t i = first; i < node.parts.size(); ++i) call.args.push_back(evaluate(*node.parts[i]));
  for (const auto& given : node.named) {
    for (const auto& other : call.named)
      if (other.first == given.first) throw BadValue("the argument `" + given.first + "` is given twice");
    call.named.emplace_back(given.first, evaluate(*given.second));
  }
  return call;
}

Value Run::called(const Node& node, const Value* caller) {
  const Value callee = evaluate(*node.parts[0]);
  Call call = arguments(node, 1);
  if (caller) call.named.emplace_back("caller", *caller);
  if (const auto* function = callee.object<const Function>()) return function->body(*this, call);
  throw BadValue(type_name(callee) + " cannot be called");
}

Value Run::through(const Node& node, const Value& text) {
  const Value subject = node.parts[0] ? through(*node.parts[0], text) : text;
  return filter(node.text, subject, arguments(node, 1));
}

std::vector<Value> Run::items(const Value& value) {
  constexpr uint64_t each = 4;
  if (const std::string* text = value.text()) steps(text->size() * each);
  if (const auto* list = value.object<Sequence>()) steps(list->items.size());
  if (const auto* dict = value.object<Dict>()) steps(dict->items.size());
  return items_of(value);
}

Value Run::attribute(const Value& of, const std::string& name) {
  if (const auto* undefined = of.get<Undefined>())
    throw BadValue("`" + undefined->what + "` is undefined and has no attribute `" + name + "`");
  if (const auto* space = of.object<Space>()) {
    const Value* const found = space->values.find(std::string_view(name));
    return found ? *found : Value(Undefined{name});
  }
  if (const auto* loop = of.object<const Loop>()) {
    const auto n = static_cast<int64_t>(loop->items->size()), at = static_cast<int64_t>(loop->at);
    const auto neighbour = [&](int64_t i) {
      return i >= 0 && i < n ? (*loop->items)[static_cast<std::size_t>(i)] : Value(Undefined{"loop." + name});
    };
    if (name == "index") return at + 1;
    if (name == "index0") return at;
    if (name == "revindex") return n - at;
    if (name == "revindex0") return n - at - 1;
    if (name == "first") return at == 0;
    if (name == "last") return at + 1 == n;
    if (name == "length") return n;
    if (name == "depth") return loop->depth;
    if (name == "depth0") return loop->depth - 1;
    if (name == "previtem") return neighbour(at - 1);
    if (name == "nextitem") return neighbour(at + 1);
    if (name != "cycle") throw BadValue("`loop." + name + "` is not supported");
    auto made = std::make_shared<Function>();
    made->name = "loop.cycle";
    made->body = [at](Run&, const Call& call) {
      if (call.args.empty()) throw BadValue("loop.cycle needs values");
      return call.args[static_cast<std::size_t>(at) % call.args.size()];
    };
    return std::shared_ptr<const Function>(std::move(made));
  }
  if (Value method = method_of(of, name); !method.undefined()) return method;
  if (const auto* dict = of.object<Dict>()) {
    steps(dict->items.size() / 8);
    if (const Value* const found = dict->find(std::string_view(name))) return *found;
  }
  return Undefined{name};
}

Value Run::item(const Value& of, const Value& key) {
  int64_t at = 0;
  std::size_t place = 0;
  if (of.undefined()) return attribute(of, key.text() ? *key.text() : to_text(key));
  if (const auto* dict = of.object<Dict>()) {
    steps(dict->items.size() / 8);
    if (const Value* const found = dict->find(key)) return *found;
  } else if (const auto* list = of.object<Sequence>()) {
    if (list->flavor <= Sequence::Flavor::tuple && as_integer(key, &at)) {
      if (place_of(at, list->items.size(), &place)) return list->items[place];
      return Undefined{"the item " + std::to_string(at) + " of a list"};
    }
  } else if (of.text() && as_integer(key, &at)) {
    steps(of.text()->size() / 8);
    const std::vector<std::size_t> starts = character_starts(*of.text());
    if (place_of(at, starts.size() - 1, &place))
      return std::string_view(*of.text()).substr(starts[place], starts[place + 1] - starts[place]);
    return Undefined{"the character " + std::to_string(at) + " of a text"};
  }
  if (const std::string* name = key.text()) return attribute(of, *name);
  return Undefined{"the item " + to_text(key)};
}

Value Run::path(const Value& of, const Value& dotted) {
  if (!dotted.text()) return item(of, dotted);
  Value value = of;
  const std::string& names = *dotted.text();
  for (std::size_t at = 0, dot = 0; dot != std::string::npos; at = dot + 1) {
    dot = names.find('.', at);
    const std::string name = names.substr(at, dot - at);
    const bool number = !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
    value = item(value, number ? Value(static_cast<int64_t>(std::stoll(name))) : Value(name));
  }
  return value;
}

Value Run::sliced(const Node& node) {
  const Value of = evaluate(*node.parts[0]);
  int64_t bounds[3] = {0, 0, 1};
  bool given[3] = {};
  for (std::size_t i = 0; i < 3; ++i) {
    const Value bound = node.parts[i + 1] ? evaluate(*node.parts[i + 1]) : Value(None());
    given[i] = !bound.none();
    if (given[i] && !as_integer(bound, &bounds[i])) throw BadValue("a slice is not bounded by " + type_name(bound));
  }
  const auto* list = of.object<Sequence>();
  if (!of.text() && !(list && list->flavor <= Sequence::Flavor::tuple))
    throw BadValue(type_name(of) + " cannot be sliced");
  const std::string* const text = of.text();
  steps(text ? text->size() / 8 : list->items.size());
  const std::vector<std::size_t> starts = text ? character_starts(*text) : std::vector<std::size_t>();
  const auto n = static_cast<int64_t>(text ? starts.size() - 1 : list->items.size());
  const int64_t step = bounds[2];
  if (step == 0) throw BadValue("the step of a slice is 0");
  const auto clamped = [&](int64_t at) {
    if (at < 0) at = at < -n ? -1 : at + n;
    return step > 0 ? std::clamp(at, int64_t{0}, n) : std::clamp(at, int64_t{-1}, n - 1);
  };
  const int64_t begin = given[0] ? clamped(bounds[0]) : step > 0 ? 0 : n - 1;
  const int64_t end = given[1] ? clamped(bounds[1]) : step > 0 ? n : -1;
  std::vector<Value> kept;
  std::string cut;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    const auto i = static_cast<std::size_t>(at);
    if (text)
      cut.append(*text, starts[i], starts[i + 1] - starts[i]);
    else
      kept.push_back(list->items[i]);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return text ? Value(made(std::move(cut))) : make_list(std::move(kept), list->flavor);
}

Value Run::binary(const std::string& sign, const Value& a, const Value& b) {
  int64_t x = 0, y = 0;
  double u = 0, v = 0;
  if (as_integer(a, &x) && as_integer(b, &y) && sign != "/") {
    if (sign == "+" || sign == "-" || sign == "*") return whole_arithmetic(sign[0], x, y);
    if (sign == "//" || sign == "%") return whole_division(sign == "%", x, y);
    if (y >= 0) return whole_power(x, y);
  }
  if (as_real(a, &u) && as_real(b, &v)) {
    if (sign == "+") return u + v;
    if (sign == "-") return u - v;
    if (sign == "*") return u * v;
    if (sign == "**") return std::pow(u, v);
    if (v == 0) throw BadValue("a division by zero");
    if (sign == "/") return u / v;
    if (sign == "//") return std::floor(u / v);
    const double rest = std::fmod(u, v);
    return rest != 0 && (rest < 0) != (v < 0) ? rest + v : rest;
  }
  if (sign == "+" && a.text() && b.text()) return made(*a.text() + *b.text());
  const auto *p = a.object<Sequence>(), *q = b.object<Sequence>();
  if (sign == "+" && p && q && p->flavor == q->flavor && p->flavor <= Sequence::Flavor::tuple) {
    steps(p->items.size() + q->items.size());
    std::vector<Value> items = p->items;
    items.insert(items.end(), q->items.begin(), q->items.end());
    return make_list(std::move(items), p->flavor);
  }
  const bool times = sign == "*" && (as_integer(b, &y) || as_integer(a, &y));
  if (times && (a.text() || b.text())) {
    const std::string& text = *(a.text() ? a : b).text();
    const auto n = static_cast<uint64_t>(std::max<int64_t>(y, 0));
    if (n > 0 && text.size() > limits_.text_bytes / n) throw BadValue("a text is too long");
    steps(n + text.size() * n / 32);
    std::string out;
    for (uint64_t i = 0; i < n; ++i) out += text;
    return out;
  }
  if (times && (p || q) && (p ? p : q)->flavor <= Sequence::Flavor::tuple) {
    const Sequence& list = *(p ? p : q);
    const auto n = static_cast<uint64_t>(std::max<int64_t>(y, 0));
    if (n > limits_.steps) throw BadValue("a list is too long");
    std::vector<Value> items;
    for (uint64_t i = 0; i < n; ++i) {
      steps(list.items.size() + 1);
      items.insert(items.end(), list.items.begin(), list.items.end());
    }
    return make_list(std::move(items), list.flavor);
  }
  no_operation(sign, a, b);
}

bool Run::contains(const Value& in, const Value& what) {
  if (const std::string* text = in.text()) {
    if (!what.text()) throw BadValue("a string contains strings, not " + type_name(what));
    return text->find(*what.text()) != std::string::npos;
  }
  if (const auto* dict = in.object<Dict>()) return dict->find(what) != nullptr;
  const std::vector<Value> all = items(in);
  return std::any_of(all.begin(), all.end(), [&](const Value& one) { return equal(one, what); });
}

bool Run::compared(const std::string& word, const Value& a, const Value& b) {
  steps(((a.text() ? a.text()->size() : 0) + (b.text() ? b.text()->size() : 0)) / 32);
  if (word == "==") return equal(a, b);
  if (word == "!=") return !equal(a, b);
  if (word == "in" || word == "not in") {
    return contains(b, a) == (word == "in");
  }
  if (word == "<") return less(a, b);
  if (word == ">") return less(b, a);
  // Not the opposite of the other order: with NaN, none of them holds.
  return equal(a, b) || (word == "<=" ? less(a, b) : less(b, a));
}

}  // namespace jinja
