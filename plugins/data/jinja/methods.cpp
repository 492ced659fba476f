// SPDX-License-Identifier: Apache-2.0
// Methods of texts and dicts.
#include <algorithm>

#include "run.hpp"
#include "text.hpp"

namespace jinja {
namespace {

using Method = Value (*)(Run&, const Value& self, const Call& call);

const std::string& self_text(const Value& self) {
  return *self.text();
}

template <bool left, bool right>
Value strip(Run& run, const Value& self, const Call& call) {
  const Arguments arguments(call, "strip", {"chars"});
  const Value* const of = arguments.find(0);
  run.steps(self_text(self).size() / 32);
  return stripped(self_text(self), left, right, of && !of->none() ? &arguments.text(0) : nullptr);
}

Value split_blanks(std::string_view text, int64_t most) {
  std::vector<Value> out;
  text = stripped(text, true, false);
  while (!text.empty()) {
    if (most >= 0 && static_cast<int64_t>(out.size()) == most) {
      out.emplace_back(text);  // with the blanks at its end
      break;
    }
    std::size_t end = 0;
    while (end < text.size() && !is_space(character_at(text, end))) end += character_at(text, end).size();
    out.emplace_back(text.substr(0, end));
    text = stripped(text.substr(end), true, false);
  }
  return make_list(std::move(out));
}

template <bool from_right>
Value split(Run& run, const Value& self, const Call& call) {
  const Arguments arguments(call, "split", {"sep", "maxsplit"});
  const std::string& text = self_text(self);
  const int64_t most = arguments.integer(1, -1);
  run.steps(text.size());
  if (!arguments.find(0) || arguments.find(0)->none()) {
    if (from_right) throw BadValue("`rsplit` without a separator is not supported");
    return split_blanks(text, most);
  }
  const std::string& by = arguments.text(0);
  if (by.empty()) throw BadValue("the separator of `split` is empty");
  std::vector<Value> out;
  std::string_view rest = text;
  while (most < 0 || static_cast<int64_t>(out.size()) < most) {
    const std::size_t at = from_right ? rest.rfind(by) : rest.find(by);
    if (at == std::string_view::npos) break;
    out.emplace_back(from_right ? rest.substr(at + by.size()) : rest.substr(0, at));
    rest = from_right ? rest.substr(0, at) : rest.substr(at + by.size());
  }
  out.emplace_back(rest);
  if (from_right) std::reverse(out.begin(), out.end());
  return make_list(std::move(out));
}

template <bool at_end>
Value begins(Run&, const Value& self, const Call& call) {
  const Arguments arguments(call, at_end ? "endswith" : "startswith", {"prefix", "start"});
  if (arguments.find(1)) throw BadValue("a place to start from is not supported");
  const std::string& text = self_text(self);
  const auto fits = [&](const Value& part) {
    if (!part.text()) throw BadValue("`startswith` and `endswith` need a string, not " + type_name(part));
    return at_end ? text.ends_with(*part.text()) : text.starts_with(*part.text());
  };
  const Value& parts = arguments.need(0);
  if (const auto* several = parts.object<Sequence>(); several && several->flavor == Sequence::Flavor::tuple)
    return std::any_of(several->items.begin(), several->items.end(), fits);
  return fits(parts);
}

Value replace(Run& run, const Value& self, const Call& call) {
  return text_filter("replace")(run, self, call);
}

template <bool from_right>
Value find(Run& run, const Value& self, const Call& call) {
  const Arguments arguments(call, "find", {"sub"});
  const std::string& text = self_text(self);
  run.steps(text.size() / 32);
  const std::size_t at = from_right ? text.rfind(arguments.text(0)) : text.find(arguments.text(0));
  return at == std::string::npos ? int64_t{-1} : characters(std::string_view(text).substr(0, at));
}

Value count(Run& run, const Value& self, const Call& call) {
  const Arguments arguments(call, "count", {"sub"});
  const std::string &text = self_text(self), &part = arguments.text(0);
  run.steps(text.size() / 32);
  if (part.empty()) return characters(text) + 1;
  int64_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

template <std::string (*change)(std::string_view)>
Value changed(Run& run, const Value& self, const Call& call) {
  const Arguments none(call, "upper", {});
  return run.made(change(self_text(self)));
}

// str.title(): a letter after one that is none is in upper case.
std::string titled(std::string_view text) {
  std::string out;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view one = character_at(text, at);
    const std::string small = lower(one), large = upper(one);
    out += inside ? small : large;
    inside = small != large;
    at += one.size();
  }
  return out;
}

Value joined(Run& run, const Value& self, const Call& call) {
  const Arguments arguments(call, "join", {"iterable"});
  std::string out;
  bool first = true;
  for (const Value& one : run.items(arguments.need(0))) {
    if (!one.text()) throw BadValue("`join` of a string needs strings, not " + type_name(one));
    out += (first ? "" : self_text(self)) + *one.text();
    if (out.size() > Limits().text_bytes) throw BadValue("a text is too long");
    first = false;
  }
  return run.made(std::move(out));
}

template <bool (*each)(std::string_view)>
Value all_are(Run& run, const Value& self, const Call&) {
  const std::string& text = self_text(self);
  run.steps(text.size() / 8);
  for (std::size_t at = 0; at < text.size(); at += character_at(text, at).size())
    if (!each(character_at(text, at))) return false;
  return !text.empty();
}

bool ascii_digit(std::string_view one) {
  return one.size() == 1 && one[0] >= '0' && one[0] <= '9';
}

bool is_case(const std::string& text, bool large) {
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::string one(character_at(text, at)), small = lower(one), big = upper(one);
    if (small != big) {
      if (one != (large ? big : small)) return false;
      any = true;
    }
    at += one.size();
  }
  return any;
}

template <bool large>
Value cased(Run& run, const Value& self, const Call&) {
  run.steps(self_text(self).size() / 8);
  return is_case(self_text(self), large);
}

template <bool from_end>
Value without_affix(Run& run, const Value& self, const Call& call) {
  const Arguments arguments(call, from_end ? "removesuffix" : "removeprefix", {"affix"});
  std::string_view text = self_text(self);
  const std::string& part = arguments.text(0);
  if (from_end ? text.ends_with(part) : text.starts_with(part))
    text = from_end ? text.substr(0, text.size() - part.size()) : text.substr(part.size());
  return run.made(std::string(text));
}

Value split_lines(Run& run, const Value& self, const Call& call) {
  const Arguments none(call, "splitlines", {});
  std::vector<Value> out;
  std::string_view rest = self_text(self);
  run.steps(rest.size());
  while (!rest.empty()) {
    const std::size_t at = rest.find_first_of("\r\n");
    out.emplace_back(rest.substr(0, at));
    if (at == std::string_view::npos) break;
    rest.remove_prefix(at + (rest.substr(at, 2) == "\r\n" ? 2 : 1));
  }
  return make_list(std::move(out));
}

constexpr std::pair<const char*, Method> of_text[] = {{"strip", strip<true, true>},
                                                      {"lstrip", strip<true, false>},
                                                      {"rstrip", strip<false, true>},
                                                      {"split", split<false>},
                                                      {"rsplit", split<true>},
                                                      {"splitlines", split_lines},
                                                      {"startswith", begins<false>},
                                                      {"endswith", begins<true>},
                                                      {"replace", replace},
                                                      {"find", find<false>},
                                                      {"rfind", find<true>},
                                                      {"count", count},
                                                      {"upper", changed<upper>},
                                                      {"lower", changed<lower>},
                                                      {"title", changed<titled>},
                                                      {"capitalize", changed<capitalised>},
                                                      {"join", joined},
                                                      {"isdigit", all_are<ascii_digit>},
                                                      {"isspace", all_are<is_space>},
                                                      {"isupper", cased<true>},
                                                      {"islower", cased<false>},
                                                      {"removeprefix", without_affix<false>},
                                                      {"removesuffix", without_affix<true>}};

template <int what>  // 0: keys, 1: values, 2: both
Value entries(Run& run, const Value& self, const Call& call) {
  const Arguments none(call, "items", {});
  std::vector<Value> out;
  const auto& items = self.object<Dict>()->items;
  run.steps(items.size() * 2);
  for (const auto& item : items)
    out.push_back(what == 0   ? item.first
                  : what == 1 ? item.second
                              : make_list({item.first, item.second}, Sequence::Flavor::tuple));
  return make_list(std::move(out), Sequence::Flavor::view);
}

Value get(Run& run, const Value& self, const Call& call) {
  const Arguments arguments(call, "get", {"key", "default"});
  run.steps(self.object<Dict>()->items.size() / 8);
  if (const Value* const found = self.object<Dict>()->find(arguments.need(0))) return *found;
  return arguments.find(1) ? *arguments.find(1) : Value(None());
}

Value copy(Run& run, const Value& self, const Call&) {
  run.steps(self.object<Dict>()->items.size());
  return std::make_shared<Dict>(*self.object<Dict>());
}

constexpr std::pair<const char*, Method> of_dict[] = {
    {"keys", entries<0>}, {"values", entries<1>}, {"items", entries<2>}, {"get", get}, {"copy", copy}};

template <std::size_t n>
Method found(const std::pair<const char*, Method> (&all)[n], const std::string& name) {
  for (const auto& [known, method] : all)
    if (name == known) return method;
  return nullptr;
}

Value listed(Run& run, const Value& self, const Call& call) {
  const Arguments arguments(call, "index", {"value"});
  const std::vector<Value>& items = self.object<Sequence>()->items;
  run.steps(items.size());
  const auto at =
      std::find_if(items.begin(), items.end(), [&](const Value& one) { return equal(one, arguments.need(0)); });
  if (at == items.end()) throw BadValue("`index` does not find the value in the list");
  return static_cast<int64_t>(at - items.begin());
}

Value counted(Run& run, const Value& self, const Call& call) {
  const Arguments arguments(call, "count", {"value"});
  const std::vector<Value>& items = self.object<Sequence>()->items;
  run.steps(items.size());
  return static_cast<int64_t>(
      std::count_if(items.begin(), items.end(), [&](const Value& one) { return equal(one, arguments.need(0)); }));
}

constexpr std::pair<const char*, Method> of_list[] = {{"index", listed}, {"count", counted}};

}  // namespace

Value method_of(const Value& of, const std::string& name) {
  Method method = nullptr;
  const auto* list = of.object<Sequence>();
  if (of.text()) method = found(of_text, name);
  if (of.object<Dict>()) method = found(of_dict, name);
  if (list && list->flavor <= Sequence::Flavor::tuple) method = found(of_list, name);
  for (const char* changes :
       {"append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "sort", "reverse"})
    if (!method && (list || (of.object<Dict>() && !of.object<Dict>()->find(std::string_view(name)))) && name == changes)
      throw BadValue("`" + name + "` would change " + type_name(of) +
                     ", which a chat template cannot do: use namespace()");
  if (!method) return {};
  auto made = std::make_shared<Function>();
  made->name = name;
  made->body = [of, method](Run& run, const Call& call) { return method(run, of, call); };
  return std::shared_ptr<const Function>(std::move(made));
}

}  // namespace jinja
