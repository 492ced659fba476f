// SPDX-License-Identifier: Apache-2.0
#include "value.hpp"

#include <algorithm>

#include "text.hpp"

namespace jinja {
namespace {

// The depth of something that holds this value.
int depth_around(const Value& value) {
  if (value.object<const Function>() || value.object<const Loop>())
    throw BadValue(type_name(value) + " cannot be stored in another value");
  const auto* sequence = value.object<Sequence>();
  const auto* dict = value.object<Dict>();
  const int depth = sequence ? sequence->depth + 1 : dict ? dict->depth + 1 : 1;
  if (depth > deepest_value) throw BadValue("a value is nested too deeply");
  return depth;
}

}  // namespace

const Value* Dict::find(const Value& key) const {
  const auto found = std::find_if(items.begin(), items.end(), [&](const auto& item) { return equal(item.first, key); });
  return found == items.end() ? nullptr : &found->second;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = std::find_if(items.begin(), items.end(), [&](const auto& item) {
    const std::string* const name = item.first.text();
    return name && *name == key;
  });
  return found == items.end() ? nullptr : &found->second;
}

void Dict::put(Value key, Value value) {
  if (key.object<Dict>() || (key.object<Sequence>() && key.object<Sequence>()->flavor != Sequence::Flavor::tuple))
    throw BadValue(type_name(key) + " cannot be a key of a dict");
  depth = std::max({depth, depth_around(key), depth_around(value)});
  for (auto& item : items)
    if (equal(item.first, key)) {
      item.second = std::move(value);
      return;
    }
  items.emplace_back(std::move(key), std::move(value));
}

Value make_list(std::vector<Value> items, Sequence::Flavor flavor) {
  auto made = std::make_shared<Sequence>();
  for (const Value& item : items) made->depth = std::max(made->depth, depth_around(item));
  made->items = std::move(items);
  made->flavor = flavor;
  return made;
}

bool as_integer(const Value& value, int64_t* out) {
  if (const auto* whole = value.get<int64_t>()) return *out = *whole, true;
  if (const auto* flag = value.get<bool>()) return *out = *flag ? 1 : 0, true;
  return false;
}

bool as_real(const Value& value, double* out) {
  int64_t whole = 0;
  if (as_integer(value, &whole)) return *out = static_cast<double>(whole), true;
  if (const auto* real = value.get<double>()) return *out = *real, true;
  return false;
}

bool truth(const Value& value) {
  if (value.undefined() || value.none()) return false;
  if (const std::string* text = value.text()) return !text->empty();
  if (const auto* sequence = value.object<Sequence>())
    return sequence->flavor == Sequence::Flavor::lazy || !sequence->items.empty();
  if (const auto* dict = value.object<Dict>()) return !dict->items.empty();
  double number = 0;
  if (as_real(value, &number)) return number != 0;
  return true;
}

bool equal(const Value& a, const Value& b) {
  int64_t x = 0, y = 0;
  if (as_integer(a, &x) && as_integer(b, &y)) return x == y;
  double u = 0, v = 0;
  if (as_real(a, &u) && as_real(b, &v)) return u == v;
  if (a.undefined() || b.undefined()) return a.undefined() && b.undefined();
  if (a.none() || b.none()) return a.none() && b.none();
  if (a.text() && b.text()) return *a.text() == *b.text();
  if (const auto* p = a.object<Sequence>(), *q = b.object<Sequence>(); p && q)
    return p == q || (p->flavor == q->flavor && p->flavor != Sequence::Flavor::lazy &&
                      std::equal(p->items.begin(), p->items.end(), q->items.begin(), q->items.end(), equal));
  if (const auto* p = a.object<Dict>(), *q = b.object<Dict>(); p && q)
    return p->items.size() == q->items.size() && std::all_of(p->items.begin(), p->items.end(), [&](const auto& item) {
             const Value* const other = q->find(item.first);
             return other && equal(item.second, *other);
           });
  if (a.object<Space>() || b.object<Space>()) return a.object<Space>() == b.object<Space>();
  if (a.object<const Function>() || b.object<const Function>())
    return a.object<const Function>() == b.object<const Function>();
  return a.object<const Loop>() && a.object<const Loop>() == b.object<const Loop>();
}

bool less(const Value& a, const Value& b) {
  int64_t x = 0, y = 0;
  if (as_integer(a, &x) && as_integer(b, &y)) return x < y;
  double u = 0, v = 0;
  if (as_real(a, &u) && as_real(b, &v)) return u < v;
  if (a.text() && b.text()) return *a.text() < *b.text();
  const auto *p = a.object<Sequence>(), *q = b.object<Sequence>();
  if (p && q && p->flavor == q->flavor && p->flavor <= Sequence::Flavor::tuple)
    return std::lexicographical_compare(p->items.begin(), p->items.end(), q->items.begin(), q->items.end(), less);
  throw BadValue(type_name(a) + " and " + type_name(b) + " have no order");
}

std::string type_name(const Value& value) {
  if (const auto* undefined = value.get<Undefined>())
    return undefined->what.empty() ? "an undefined value" : "`" + undefined->what + "`, which is undefined,";
  if (value.none()) return "none";
  if (value.get<bool>()) return "a boolean";
  if (value.get<int64_t>()) return "a whole number";
  if (value.get<double>()) return "a float";
  if (value.text()) return "a string";
  if (const auto* sequence = value.object<Sequence>()) {
    constexpr const char* names[] = {"a list", "a tuple", "a view of a dict", "the result of a filter (use |list)"};
    return names[static_cast<std::size_t>(sequence->flavor)];
  }
  if (value.object<Dict>()) return "a dict";
  if (value.object<Space>()) return "a namespace";
  return value.object<const Loop>() ? "loop" : "a function";
}

std::vector<Value> items_of(const Value& value) {
  std::vector<Value> out;
  if (value.undefined()) return out;
  if (auto* sequence = value.object<Sequence>()) {
    if (sequence->flavor != Sequence::Flavor::lazy) return sequence->items;
    out.assign(sequence->items.begin() + static_cast<std::ptrdiff_t>(sequence->used), sequence->items.end());
    sequence->used = sequence->items.size();
    return out;
  }
  if (const auto* dict = value.object<Dict>()) {
    for (const auto& item : dict->items) out.push_back(item.first);
    return out;
  }
  if (const std::string* text = value.text()) {
    for (std::size_t at = 0; at < text->size();) {
      const std::size_t n = character_at(*text, at).size();
      out.emplace_back(std::string_view(*text).substr(at, n));
      at += n;
    }
    return out;
  }
  throw BadValue(type_name(value) + " cannot be iterated");
}

int64_t length_of(const Value& value) {
  if (value.undefined()) return 0;
  if (const std::string* text = value.text()) return characters(*text);
  const auto* sequence = value.object<Sequence>();
  if (sequence && sequence->flavor != Sequence::Flavor::lazy) return static_cast<int64_t>(sequence->items.size());
  if (const auto* dict = value.object<Dict>()) return static_cast<int64_t>(dict->items.size());
  if (const auto* loop = value.object<const Loop>()) return static_cast<int64_t>(loop->items->size());
  throw BadValue(type_name(value) + " has no length");
}

}  // namespace jinja
