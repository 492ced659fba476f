// SPDX-License-Identifier: Apache-2.0
// The names that every template has, and arguments of calls.
#include <algorithm>
#include <charconv>

#include "run.hpp"
#include "text.hpp"

namespace jinja {

Arguments::Arguments(const Call& call, std::string_view who, std::initializer_list<std::string_view> names)
    : who_(who), names_(names), given_(names.size(), nullptr) {
  if (call.args.size() > names.size())
    throw BadValue("`" + who_ + "` takes at most " + std::to_string(names.size()) + " arguments, not " +
                   std::to_string(call.args.size()));
  for (std::size_t i = 0; i < call.args.size(); ++i) given_[i] = &call.args[i];
  for (const auto& named : call.named) {
    const auto at = std::find(names_.begin(), names_.end(), named.first);
    if (at == names_.end()) throw BadValue("`" + who_ + "` has no argument `" + named.first + "`");
    const Value*& slot = given_[static_cast<std::size_t>(at - names_.begin())];
    if (slot) throw BadValue("`" + who_ + "` gets `" + named.first + "` twice");
    slot = &named.second;
  }
}

const Value& Arguments::need(std::size_t i) const {
  if (!given_[i]) throw BadValue("`" + who_ + "` needs the argument `" + std::string(names_[i]) + "`");
  return *given_[i];
}

const std::string& Arguments::text(std::size_t i) const {
  const Value& value = need(i);
  if (!value.text())
    throw BadValue("`" + who_ + "` needs a string as `" + std::string(names_[i]) + "`, not " + type_name(value));
  return *value.text();
}

int64_t Arguments::integer(std::size_t i, int64_t fallback) const {
  int64_t out = fallback;
  if (given_[i] && !as_integer(*given_[i], &out))
    throw BadValue("`" + who_ + "` needs a whole number as `" + std::string(names_[i]) + "`, not " +
                   type_name(*given_[i]));
  return out;
}

bool Arguments::flag(std::size_t i, bool fallback) const {
  return given_[i] ? truth(*given_[i]) : fallback;
}

std::optional<Date> read_date(std::string_view text) {
  Date date;
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return std::nullopt;
  const auto part = [&](std::size_t at, std::size_t n, int* out) {
    const char* const end = text.data() + at + n;
    const auto read = std::from_chars(text.data() + at, end, *out);
    return read.ec == std::errc() && read.ptr == end;
  };
  if (!part(0, 4, &date.year) || !part(5, 2, &date.month) || !part(8, 2, &date.day)) return std::nullopt;
  constexpr int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  if (date.year < 1 || date.month < 1 || date.month > 12 || date.day < 1) return std::nullopt;
  const bool leap = date.month == 2 && date.year % 4 == 0 && (date.year % 100 != 0 || date.year % 400 == 0);
  return date.day <= days[date.month - 1] + (leap ? 1 : 0) ? std::optional(date) : std::nullopt;
}

namespace {

constexpr const char* months[] = {"January", "February", "March",     "April",   "May",      "June",
                                  "July",    "August",   "September", "October", "November", "December"};
constexpr const char* weekdays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};

std::string two_digits(int value) {
  return {static_cast<char>('0' + value / 10 % 10), static_cast<char>('0' + value % 10)};
}

// The date at midnight, as strftime() writes it.
std::string date_text(const Date& date, const std::string& format) {
  constexpr int shift[] = {0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4};
  const int y = date.year - (date.month < 3 ? 1 : 0);
  const int weekday = (y + y / 4 - y / 100 + y / 400 + shift[date.month - 1] + date.day) % 7;
  const std::string month = months[date.month - 1], day = weekdays[weekday];
  std::string year = std::to_string(date.year);
  year.insert(0, 4 - std::min<std::size_t>(year.size(), 4), '0');
  std::string out;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      out += format[at];
      continue;
    }
    bool bare = false;
    if (at + 2 < format.size() && format[at + 1] == '-') bare = true, ++at;
    const char c = ++at < format.size() ? format[at] : ' ';
    std::string part;
    switch (c) {
      case 'Y':
        part = year;
        break;
      case 'y':
        part = two_digits(date.year % 100);
        break;
      case 'm':
        part = two_digits(date.month);
        break;
      case 'd':
        part = two_digits(date.day);
        break;
      case 'e':
        part = date.day < 10 ? " " + std::to_string(date.day) : two_digits(date.day);
        break;
      case 'B':
        part = month;
        break;
      case 'b':
        part = month.substr(0, 3);
        break;
      case 'A':
        part = day;
        break;
      case 'a':
        part = day.substr(0, 3);
        break;
      case 'F':
        part = year + "-" + two_digits(date.month) + "-" + two_digits(date.day);
        break;
      case 'H':
      case 'M':
      case 'S':
        part = "00";
        break;
      case '%':
        part = "%";
        break;
      default:
        throw BadValue(std::string("strftime_now does not know %") + c);
    }
    if (bare && part.size() > 1 && part[0] == '0') part.erase(0, 1);
    out += part;
  }
  return out;
}

Value range(Run& run, const Call& call) {
  if (call.args.empty() || call.args.size() > 3 || !call.named.empty())
    throw BadValue("range takes one to three whole numbers");
  int64_t n[3] = {0, 0, 1};
  const std::size_t first = call.args.size() == 1 ? 1 : 0;
  for (std::size_t i = 0; i < call.args.size(); ++i)
    if (!as_integer(call.args[i], &n[first + i]))
      throw BadValue("range takes whole numbers, not " + type_name(call.args[i]));
  if (n[2] == 0) throw BadValue("the step of range is 0");
  constexpr int64_t most = 100'000;
  std::vector<Value> out;
  for (int64_t at = n[0]; n[2] > 0 ? at < n[1] : at > n[1];) {
    if (static_cast<int64_t>(out.size()) == most) throw BadValue("a range has more than 100000 numbers, the limit");
    run.steps(2);
    out.emplace_back(at);
    if (__builtin_add_overflow(at, n[2], &at)) break;
  }
  return make_list(std::move(out));
}

// namespace(a=1) and dict(a=1), also with a dict in front.
void put_named(Dict& out, const Call& call, const char* who) {
  if (call.args.size() > 1) throw BadValue(std::string("`") + who + "` takes one dict and named values");
  if (!call.args.empty()) {
    const auto* first = call.args[0].object<Dict>();
    if (!first) throw BadValue(std::string("`") + who + "` takes a dict, not " + type_name(call.args[0]));
    for (const auto& item : first->items) out.put(item.first, item.second);
  }
  for (const auto& named : call.named) out.put(Value(named.first), named.second);
}

Value make_namespace(Run& run, const Call& call) {
  auto space = run.make_space();
  put_named(space->values, call, "namespace");
  return space;
}

Value make_dict(Run& run, const Call& call) {
  run.steps(call.named.size());
  auto dict = std::make_shared<Dict>();
  put_named(*dict, call, "dict");
  return dict;
}

Value raise_exception(Run&, const Call& call) {
  throw BadValue("the template refuses: " + Arguments(call, "raise_exception", {"message"}).text(0));
}

Value strftime_now(Run& run, const Call& call) {
  const Arguments arguments(call, "strftime_now", {"format"});
  if (!run.date())
    throw BadValue("the template asks for today's date, which would make data of another day differ: set [data] date");
  return run.made(date_text(*run.date(), arguments.text(0)));
}

}  // namespace

Value function_named(const std::string& name) {
  constexpr std::pair<const char*, Value (*)(Run&, const Call&)> all[] = {{"range", range},
                                                                          {"namespace", make_namespace},
                                                                          {"dict", make_dict},
                                                                          {"raise_exception", raise_exception},
                                                                          {"strftime_now", strftime_now}};
  for (const auto& [known, body] : all) {
    if (name != known) continue;
    auto made = std::make_shared<Function>();
    made->name = name;
    made->body = body;
    return std::shared_ptr<const Function>(std::move(made));
  }
  return {};
}

}  // namespace jinja
