// SPDX-License-Identifier: Apache-2.0
// Tests: what may stand after `is`.
#include <algorithm>

#include "run.hpp"
#include "text.hpp"

namespace jinja {
namespace {

void no_arguments(const Call& call) {
  if (!call.args.empty() || !call.named.empty()) throw BadValue("this test takes no argument");
}

template <bool (*check)(const Value&)>
bool plain(Run&, const Value& value, const Call& call) {
  no_arguments(call);
  return check(value);
}

bool is_defined(const Value& v) {
  return !v.undefined();
}
bool is_undefined(const Value& v) {
  return v.undefined();
}
bool is_none(const Value& v) {
  return v.none();
}
bool is_string(const Value& v) {
  return v.text() != nullptr;
}
bool is_mapping(const Value& v) {
  return v.object<Dict>() != nullptr;
}
bool is_number(const Value& v) {
  return v.number();
}
bool is_integer(const Value& v) {
  return v.get<int64_t>() != nullptr;
}
bool is_real(const Value& v) {
  return v.get<double>() != nullptr;
}
bool is_boolean(const Value& v) {
  return v.get<bool>() != nullptr;
}
bool is_true(const Value& v) {
  return v.get<bool>() && *v.get<bool>();
}
bool is_false(const Value& v) {
  return v.get<bool>() && !*v.get<bool>();
}
bool is_callable(const Value& v) {
  return v.object<const Function>() != nullptr;
}
bool is_iterable(const Value& v) {
  return v.undefined() || v.text() || v.object<Sequence>() || v.object<Dict>();
}
// True for a value that has a length and can be indexed.
bool is_sequence(const Value& v) {
  const auto* list = v.object<Sequence>();
  return v.text() || v.object<Dict>() || (list && list->flavor <= Sequence::Flavor::tuple);
}
bool is_odd(const Value& v) {
  int64_t n = 0;
  if (!as_integer(v, &n)) throw BadValue("`odd` and `even` are for whole numbers, not " + type_name(v));
  return n % 2 != 0;
}
bool is_even(const Value& v) {
  return !is_odd(v);
}
bool is_upper(const Value& v) {
  return upper(to_text(v)) == to_text(v) && lower(to_text(v)) != to_text(v);
}
bool is_lower(const Value& v) {
  return lower(to_text(v)) == to_text(v) && upper(to_text(v)) != to_text(v);
}

const Value& other(const Call& call) {
  return Arguments(call, "the test", {"other"}).need(0);
}

bool is_equal(Run&, const Value& v, const Call& call) {
  return equal(v, other(call));
}
bool is_unequal(Run&, const Value& v, const Call& call) {
  return !equal(v, other(call));
}
bool is_less(Run&, const Value& v, const Call& call) {
  return less(v, other(call));
}
bool is_greater(Run&, const Value& v, const Call& call) {
  return less(other(call), v);
}
bool is_at_most(Run&, const Value& v, const Call& call) {
  return equal(v, other(call)) || less(v, other(call));
}
bool is_at_least(Run&, const Value& v, const Call& call) {
  return equal(v, other(call)) || less(other(call), v);
}
bool is_same(Run&, const Value& v, const Call& call) {
  const Value& as = other(call);
  return v.number() == as.number() && (v.get<bool>() != nullptr) == (as.get<bool>() != nullptr) && equal(v, as);
}
bool is_in(Run& run, const Value& v, const Call& call) {
  const Value& in = other(call);
  if (in.text() && v.text()) return in.text()->find(*v.text()) != std::string::npos;
  const std::vector<Value> all = run.items(in);
  return std::any_of(all.begin(), all.end(), [&](const Value& one) { return equal(one, v); });
}
bool is_divisible(Run&, const Value& v, const Call& call) {
  int64_t a = 0, b = 0;
  if (!as_integer(v, &a) || !as_integer(other(call), &b) || b == 0)
    throw BadValue("`divisibleby` is for whole numbers, and not for 0");
  return b == -1 || a % b == 0;
}

constexpr std::pair<std::string_view, Test> checks[] = {{"defined", plain<is_defined>},
                                                        {"undefined", plain<is_undefined>},
                                                        {"none", plain<is_none>},
                                                        {"string", plain<is_string>},
                                                        {"mapping", plain<is_mapping>},
                                                        {"number", plain<is_number>},
                                                        {"integer", plain<is_integer>},
                                                        {"float", plain<is_real>},
                                                        {"boolean", plain<is_boolean>},
                                                        {"true", plain<is_true>},
                                                        {"false", plain<is_false>},
                                                        {"callable", plain<is_callable>},
                                                        {"iterable", plain<is_iterable>},
                                                        {"sequence", plain<is_sequence>},
                                                        {"odd", plain<is_odd>},
                                                        {"even", plain<is_even>},
                                                        {"upper", plain<is_upper>},
                                                        {"lower", plain<is_lower>},
                                                        {"equalto", is_equal},
                                                        {"eq", is_equal},
                                                        {"==", is_equal},
                                                        {"ne", is_unequal},
                                                        {"!=", is_unequal},
                                                        {"lt", is_less},
                                                        {"lessthan", is_less},
                                                        {"<", is_less},
                                                        {"gt", is_greater},
                                                        {"greaterthan", is_greater},
                                                        {">", is_greater},
                                                        {"le", is_at_most},
                                                        {"<=", is_at_most},
                                                        {"ge", is_at_least},
                                                        {">=", is_at_least},
                                                        {"sameas", is_same},
                                                        {"in", is_in},
                                                        {"divisibleby", is_divisible}};

}  // namespace

Test check_named(std::string_view name) {
  for (const auto& [known, test] : checks)
    if (known == name) return test;
  return nullptr;
}

bool Run::test(const std::string& name, const Value& subject, const Call& call) {
  const Test found = check_named(name);
  if (!found) throw BadValue("there is no test `" + name + "`");
  return found(*this, subject, call);
}

}  // namespace jinja
