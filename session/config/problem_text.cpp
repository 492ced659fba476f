// SPDX-License-Identifier: Apache-2.0
#include "session/config/problem_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "session/config/failure.hpp"
#include "session/config/spelling.hpp"

namespace eng {
namespace {

constexpr std::size_t line_width = 100;  // of an excerpt
constexpr std::size_t most_problems = 50;

std::string join(const std::vector<std::string>& parts, std::size_t from, std::size_t count) {
  std::string out;
  for (std::size_t i = from; i < std::min(from + count, parts.size()); ++i) out += parts[i];
  out.erase(out.find_last_not_of(' ') + 1);
  return out;
}

// Further lines are indented. Long lists are broken after a comma, other long lines anywhere.
std::string indented(const std::string& head, const std::string& text) {
  std::string out = head;
  std::size_t column = 0;
  for (const char c : text) {
    const bool end = c == '\n' || (c == ' ' && column > (out.back() == ',' ? 90 : 105));
    out += end ? "\n      " : std::string(1, c);
    column = end ? 0 : column + 1;
  }
  out.erase(out.find_last_not_of(" \n") + 1);
  return out + "\n";
}

std::string excerpt(const ConfigError& error, const Problem& problem) {
  const TextRange& at = problem.at;
  const std::string blank(std::to_string(at.line).size(), ' ');
  std::string out = blank + " |\n";
  // The section's header, for orientation; not needed if the problem is in a header.
  std::size_t header = error.line(at.line).starts_with('[') ? 0 : at.line - 1;
  while (header > 0 && !error.line(header).starts_with('[')) --header;
  if (header > 0) out += fmt::format("{:>{}} | {}\n", header, blank.size(), printable(error.line(header), line_width));
  if (header > 0 && at.line - header > 1) out += blank + " | ...\n";
  const auto all = characters(error.line(at.line));
  const std::size_t column = std::min(std::max<std::size_t>(at.column, 1) - 1, all.size());
  const std::size_t from = column < line_width ? 0 : column - line_width / 2;
  const std::string cut = from > 0 ? "..." : "", more = from + line_width < all.size() ? "..." : "";
  const std::string caret(std::clamp<std::size_t>(at.length, 1, from + line_width - column), '^');
  out += fmt::format("{} | {}{}{}\n", at.line, cut, join(all, from, line_width), more);
  out += fmt::format("{} | {:{}}{} {}", blank, "", cut.size() + column - from, caret, for_terminal(problem.label));
  return out.substr(0, out.find_last_not_of(' ') + 1) + "\n" + blank + " |\n";
}

std::string show(const ConfigError& error, const Problem& problem) {
  const TextRange& at = problem.at;
  std::string place = printable(error.name());
  if (at.line > 0) place += fmt::format(":{}:{}", at.line, at.column);
  if (!at.override_text.empty()) place = "command line: " + printable(at.override_text);
  std::string out = fmt::format("error[{}]: {}\n  --> {}\n", problem.code, for_terminal(problem.message), place);
  if (at.line > 0) out += excerpt(error, problem);
  if (at.line == 0 && !problem.label.empty()) out += "   = " + for_terminal(problem.label) + "\n";
  const auto near = nearest(problem.word, problem.known);
  const std::string mean = near.empty() ? "" : fmt::format("did you mean `{}`?\n", fmt::join(near, "` or `"));
  if (!(mean + problem.help).empty()) out += indented("help: ", mean + printable_lines(problem.help));
  if (!problem.note.empty()) out += indented("note: ", printable_lines(problem.note));
  return out;
}

}  // namespace

std::string tell(const ConfigError& error) {
  const auto& all = error.problems();
  std::string out;
  for (std::size_t i = 0; i < std::min(all.size(), most_problems); ++i) out += show(error, all[i]);
  if (all.size() > most_problems) out += fmt::format("... and {} more\n", all.size() - most_problems);
  return out + fmt::format("{} problem{} in {}; nothing was started", all.size(), all.size() == 1 ? "" : "s",
                           printable(error.name()));
}

}  // namespace eng
