// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/plugin_test/verdict.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "session/json.hpp"

namespace eng::plugin_test {

bool Sheet::check(const std::string& name, const std::function<std::string()>& body) {
  Verdict out{of_, one_line(name), Outcome::pass, ""};
  to_.begin(out.check);
  try {
    out.text = body();
  } catch (const Untested& why) {
    out.outcome = Outcome::untested, out.text = why.what();
  } catch (const Error& why) {
    out.outcome = Outcome::fail, out.text = why.what();
    if (!why.help().empty()) out.text += " (" + why.help() + ")";
  } catch (const std::exception& why) {
    out.outcome = Outcome::fail, out.text = why.what();
  } catch (...) {
    out.outcome = Outcome::fail, out.text = "something was thrown through the C ABI";
  }
  if (out.outcome == Outcome::fail) out.text += fmt::format(" [seed {}]", seed_);
  out.text = one_line(out.text);
  to_.put(out);
  return out.outcome == Outcome::pass;
}

void Sheet::untested(const std::string& name, const std::string& why) {
  to_.put({of_, one_line(name), Outcome::untested, one_line(why)});
}

void Sheet::fail(const std::string& name, const std::string& why) {
  to_.put({of_, one_line(name), Outcome::fail, one_line(why)});
}

std::string one_line(const std::string& text, size_t most) {
  std::string out = text;
  std::replace(out.begin(), out.end(), '\n', ' ');
  return printable(out, most);
}

namespace {

const char* word(Outcome outcome) {
  return outcome == Outcome::pass ? "pass" : outcome == Outcome::fail ? "FAIL" : "not tested";
}

size_t number_of(const std::vector<Verdict>& all, Outcome outcome) {
  return static_cast<size_t>(
      std::count_if(all.begin(), all.end(), [&](const Verdict& v) { return v.outcome == outcome; }));
}

}  // namespace

std::string table_of(const std::vector<Verdict>& verdicts) {
  size_t widest = 0;
  for (const Verdict& v : verdicts) widest = std::max(widest, v.check.size());
  widest = std::min<size_t>(widest, 56);
  std::string out, of;
  for (const Verdict& v : verdicts) {
    if (v.of != of) out += fmt::format("{}{}\n", of.empty() ? "" : "\n", of = v.of);
    std::string line = fmt::format("  {:<{}}  {:<10}  {}", v.check, widest, word(v.outcome), v.text);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out + fmt::format("\n{} passed, {} failed, {} not tested\n", number_of(verdicts, Outcome::pass),
                           number_of(verdicts, Outcome::fail), number_of(verdicts, Outcome::untested));
}

std::string json_of(const std::string& file, const std::vector<Verdict>& verdicts, uint64_t seed) {
  Json list = Json::array();
  for (const Verdict& v : verdicts)
    list.push_back(Json::ordered({{"of", v.of},
                                  {"check", v.check},
                                  {"verdict", v.outcome == Outcome::fail ? "fail" : word(v.outcome)},
                                  {"text", v.text}}));
  return Json::ordered({{"file", file},
                        {"seed", seed},
                        {"passed", static_cast<uint64_t>(number_of(verdicts, Outcome::pass))},
                        {"failed", static_cast<uint64_t>(number_of(verdicts, Outcome::fail))},
                        {"not_tested", static_cast<uint64_t>(number_of(verdicts, Outcome::untested))},
                        {"verdicts", list}})
             .dump(2, true) +
         "\n";
}

}  // namespace eng::plugin_test
