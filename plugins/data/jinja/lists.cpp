// SPDX-License-Identifier: Apache-2.0
// Filters of lists and dicts.
#include <algorithm>

#include "run.hpp"
#include "text.hpp"

namespace jinja {
namespace {

using Flavor = Sequence::Flavor;

Value join(Run& run, const Value& value, const Call& call) {
  const Arguments arguments(call, "join", {"d", "attribute"});
  const std::string between = arguments.find(0) ? to_text(*arguments.find(0)) : "";
  std::string out;
  bool first = true;
  for (const Value& one : run.items(value)) {
    if (!first) out += between;
    first = false;
    out += to_text(arguments.find(1) ? run.path(one, *arguments.find(1)) : one);
    run.steps(between.size() / 32);
    if (out.size() > Limits().text_bytes) throw BadValue("a text is too long");
  }
  return run.made(std::move(out));
}

template <bool from_end>
Value end_of(Run& run, const Value& value, const Call& call) {
  const Arguments none(call, "first", {});
  if (auto* lazy = value.object<Sequence>(); lazy && lazy->flavor == Flavor::lazy && !from_end)
    return lazy->used < lazy->items.size() ? lazy->items[lazy->used++] : Value(Undefined{"the first of nothing"});
  const std::vector<Value> all = run.items(value);
  return all.empty() ? Value(Undefined{"an item of nothing"}) : from_end ? all.back() : all.front();
}

Value list(Run& run, const Value& value, const Call& call) {
  const Arguments none(call, "list", {});
  return make_list(run.items(value));
}

Value items(Run& run, const Value& value, const Call& call) {
  const Arguments none(call, "items", {});
  if (value.undefined()) return make_list({}, Flavor::lazy);
  const auto* dict = value.object<Dict>();
  if (!dict) throw BadValue("`items` is for a dict, not " + type_name(value));
  run.steps(dict->items.size() * 2);
  std::vector<Value> out;
  for (const auto& item : dict->items) out.push_back(make_list({item.first, item.second}, Flavor::tuple));
  return make_list(std::move(out), Flavor::lazy);
}

Value reverse(Run& run, const Value& value, const Call& call) {
  const Arguments none(call, "reverse", {});
  std::vector<Value> all = run.items(value);
  std::reverse(all.begin(), all.end());
  if (!value.text()) return make_list(std::move(all), Flavor::lazy);
  std::string out;
  for (const Value& one : all) out += *one.text();
  return run.made(std::move(out));
}

// The value by which something is sorted: texts without regard to case, unless that is asked for.
Value sort_key(const Value& value, bool by_case) {
  return value.text() && !by_case ? Value(lower(*value.text())) : value;
}

// Stable, also when reversed, as Python's sorted().
void sort_by(Run& run, std::vector<Value>& values, const std::vector<Value>& keys, bool reversed) {
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    run.steps(1);
    return reversed ? less(keys[b], keys[a]) : less(keys[a], keys[b]);
  });
  std::vector<Value> out;
  for (const std::size_t i : order) out.push_back(values[i]);
  values = std::move(out);
}

Value sort(Run& run, const Value& value, const Call& call) {
  const Arguments arguments(call, "sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> all = run.items(value), keys;
  for (const Value& one : all)
    keys.push_back(sort_key(arguments.find(2) ? run.path(one, *arguments.find(2)) : one, arguments.flag(1, false)));
  sort_by(run, all, keys, arguments.flag(0, false));
  return make_list(std::move(all));
}

Value dictsort(Run& run, const Value& value, const Call& call) {
  const Arguments arguments(call, "dictsort", {"case_sensitive", "by", "reverse"});
  const auto* dict = value.object<Dict>();
  if (!dict) throw BadValue("`dictsort` is for a dict, not " + type_name(value));
  const std::string by = arguments.find(1) ? arguments.text(1) : "key";
  if (by != "key" && by != "value") throw BadValue("`dictsort` sorts by key or by value");
  std::vector<Value> all, keys;
  run.steps(dict->items.size() * 2);
  for (const auto& item : dict->items) {
    all.push_back(make_list({item.first, item.second}, Flavor::tuple));
    keys.push_back(sort_key(by == "key" ? item.first : item.second, arguments.flag(0, false)));
  }
  sort_by(run, all, keys, arguments.flag(2, false));
  return make_list(std::move(all));
}

Value unique(Run& run, const Value& value, const Call& call) {
  const Arguments arguments(call, "unique", {"case_sensitive", "attribute"});
  std::vector<Value> out, keys;
  for (const Value& one : run.items(value)) {
    const Value key = sort_key(arguments.find(1) ? run.path(one, *arguments.find(1)) : one, arguments.flag(0, false));
    run.steps(keys.size() / 8);
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& known) { return equal(known, key); })) continue;
    keys.push_back(key);
    out.push_back(one);
  }
  return make_list(std::move(out), Flavor::lazy);
}

Call without_first(const Call& call, std::size_t n) {
  Call rest;
  rest.args.assign(call.args.begin() + static_cast<std::ptrdiff_t>(std::min(n, call.args.size())), call.args.end());
  rest.named = call.named;
  return rest;
}

const std::string& name_in(const Call& call, std::size_t i, const char* what) {
  if (i >= call.args.size() || !call.args[i].text()) throw BadValue(std::string("here must be the name of ") + what);
  return *call.args[i].text();
}

// map(attribute="name", default=...), or map("filter", its arguments)
Value map(Run& run, const Value& value, const Call& call) {
  std::vector<Value> out;
  if (call.args.empty()) {
    const Arguments arguments(call, "map", {"attribute", "default"});
    for (const Value& one : run.items(value)) {
      Value found = run.path(one, arguments.need(0));
      out.push_back(found.undefined() && arguments.find(1) ? *arguments.find(1) : std::move(found));
    }
    return make_list(std::move(out), Flavor::lazy);
  }
  const std::string& name = name_in(call, 0, "a filter");
  const Call rest = without_first(call, 1);
  for (const Value& one : run.items(value)) out.push_back(run.filter(name, one, rest));
  return make_list(std::move(out), Flavor::lazy);
}

// select, reject: by a test, or by truth; selectattr, rejectattr: of an attribute.
template <bool attribute, bool keeps>
Value chosen(Run& run, const Value& value, const Call& call) {
  const std::size_t first = attribute ? 1 : 0;
  if (attribute && call.args.empty()) throw BadValue("here must be the name of an attribute");
  const bool tested = call.args.size() > first;
  const Call rest = without_first(call, first + 1);
  std::vector<Value> out;
  for (const Value& one : run.items(value)) {
    const Value subject = attribute ? run.path(one, call.args[0]) : one;
    if ((tested ? run.test(name_in(call, first, "a test"), subject, rest) : truth(subject)) == keeps)
      out.push_back(one);
  }
  return make_list(std::move(out), Flavor::lazy);
}

Value sum(Run& run, const Value& value, const Call& call) {
  const Arguments arguments(call, "sum", {"attribute", "start"});
  double real = 0;
  int64_t whole = arguments.integer(1, 0);
  bool all_whole = true;
  for (const Value& item : run.items(value)) {
    const Value one = arguments.find(0) && !arguments.find(0)->none() ? run.path(item, *arguments.find(0)) : item;
    int64_t n = 0;
    double x = 0;
    if (!as_real(one, &x)) throw BadValue("`sum` is for numbers, not " + type_name(one));
    all_whole = all_whole && as_integer(one, &n);
    if (__builtin_add_overflow(whole, n, &whole)) throw BadValue("a whole number is too large");
    real += x;
  }
  return all_whole ? Value(whole) : Value(real + static_cast<double>(arguments.integer(1, 0)));
}

template <bool largest>
Value extreme(Run& run, const Value& value, const Call& call) {
  const Arguments arguments(call, largest ? "max" : "min", {"case_sensitive", "attribute"});
  Value best(Undefined{"the least of nothing"}), best_key;
  for (const Value& one : run.items(value)) {
    const Value key = sort_key(arguments.find(1) ? run.path(one, *arguments.find(1)) : one, arguments.flag(0, false));
    if (!best_key.undefined() && !(largest ? less(best_key, key) : less(key, best_key))) continue;
    best = one, best_key = key;
  }
  return best;
}

constexpr std::pair<std::string_view, Filter> filters_of_lists[] = {{"join", join},
                                                                    {"first", end_of<false>},
                                                                    {"last", end_of<true>},
                                                                    {"list", list},
                                                                    {"items", items},
                                                                    {"reverse", reverse},
                                                                    {"sort", sort},
                                                                    {"dictsort", dictsort},
                                                                    {"unique", unique},
                                                                    {"map", map},
                                                                    {"select", chosen<false, true>},
                                                                    {"reject", chosen<false, false>},
                                                                    {"selectattr", chosen<true, true>},
                                                                    {"rejectattr", chosen<true, false>},
                                                                    {"sum", sum},
                                                                    {"max", extreme<true>},
                                                                    {"min", extreme<false>}};

}  // namespace

Filter list_filter(std::string_view name) {
  for (const auto& [known, filter] : filters_of_lists)
    if (known == name) return filter;
  return nullptr;
}

}  // namespace jinja
