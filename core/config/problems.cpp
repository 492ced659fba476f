// SPDX-License-Identifier: Apache-2.0
#include "core/config/source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <sstream>
#include <tuple>

namespace eng {
namespace {

constexpr std::size_t width = 100;  // of an excerpt
constexpr std::size_t most_problems = 50;

// The characters of a line, each as printable UTF-8.
std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
    const auto lead = byte(0);
    const std::size_t size = lead < 0x80 ? 1 : lead < 0xc2 || lead > 0xf4 ? 0 : unsigned(std::countl_one(lead));
    bool valid = size > 0 && at + size <= text.size();
    for (std::size_t i = 1; valid && i < size; ++i) valid = (byte(i) & 0xc0) == 0x80;
    const bool control = lead < 0x20 || lead == 0x7f || (valid && lead == 0xc2 && byte(1) < 0xa0);
    out.push_back(lead == '\t' ? " " : !valid || control ? "?" : text.substr(at, size));
    at += valid ? size : 1;
  }
  return out;
}

std::string join(const std::vector<std::string>& parts, std::size_t from, std::size_t count) {
  std::string out;
  for (std::size_t i = from; i < std::min(from + count, parts.size()); ++i) out += parts[i];
  out.erase(out.find_last_not_of(' ') + 1);
  return out;
}

// Further lines are indented; long lists are broken.
std::string indented(const std::string& head, const std::string& text) {
  std::string out = head;
  std::size_t column = 0;
  for (const char c : text) {
    const bool end = c == '\n' || (c == ' ' && column > 90 && out.back() == ',');
    out += end ? "\n      " : std::string(1, c);
    column = end ? 0 : column + 1;
  }
  out.erase(out.find_last_not_of(" \n") + 1);
  return out + "\n";
}

}  // namespace

std::string printable(const std::string& text, std::size_t most) {
  const auto all = characters(text);
  return join(all, 0, most) + (all.size() > most ? "..." : "");
}

Problems::Problems(std::string name, const std::string& text, const std::vector<std::string>& overrides)
    : name_(std::move(name)), overrides_(overrides) {
  std::istringstream in(text.compare(0, 3, "\xef\xbb\xbf") == 0 ? text.substr(3) : text);
  for (std::string line; std::getline(in, line); lines_.push_back(line))
    if (!line.empty() && line.back() == '\r') line.pop_back();
}

std::string Problems::line(std::size_t number) const {
  return number == 0 || number > lines_.size() ? "" : lines_[number - 1];
}

std::string Problems::origin(const Place& at) const {
  if (at.override_index >= 0) return "command line";
  return at.line > 0 ? fmt::format("{}:{}", name_, at.line) : name_;
}

std::string Problems::excerpt(const Problem& problem) const {
  const Place& at = problem.at;
  const std::string blank(std::to_string(at.line).size(), ' ');
  std::string out = blank + " |\n";
  // The section's header, so that the reader knows where he is.
  std::size_t header = std::min(at.line - 1, lines_.size());
  while (header > 0 && lines_[header - 1].substr(0, 1) != "[") --header;
  if (header > 0) out += fmt::format("{:>{}} | {}\n", header, blank.size(), printable(line(header), width));
  if (header > 0 && at.line - header > 1) out += blank + " | ...\n";
  const auto all = characters(line(at.line));
  const std::size_t column = std::min(std::max<std::size_t>(at.column, 1) - 1, all.size());
  const std::size_t from = column < width ? 0 : column - width / 2;
  const std::string cut = from > 0 ? "..." : "", more = from + width < all.size() ? "..." : "";
  const std::string caret(std::clamp<std::size_t>(at.length, 1, from + width - column), '^');
  out += fmt::format("{} | {}{}{}\n", at.line, cut, join(all, from, width), more);
  out += fmt::format("{} | {:{}}{} {}", blank, "", cut.size() + column - from, caret, problem.label);
  return out.substr(0, out.find_last_not_of(' ') + 1) + "\n" + blank + " |\n";
}

std::string Problems::text() const {
  auto sorted = list_;
  // The file by line, then the command line, then what is missing.
  const auto rank = [](const Problem& problem) {
    const Place& at = problem.at;
    return std::tuple(at.line > 0 ? 0 : at.override_index >= 0 ? 1 : 2, at.line, at.column, at.override_index);
  };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  std::string out;
  for (std::size_t i = 0; i < std::min(sorted.size(), most_problems); ++i) {
    const Problem& problem = sorted[i];
    const Place& at = problem.at;
    std::string place = name_;
    if (at.line > 0) place += fmt::format(":{}:{}", at.line, at.column);
    if (at.override_index >= 0)
      place = "command line: " + printable(overrides_[static_cast<std::size_t>(at.override_index)]);
    out += fmt::format("error[{}]: {}\n  --> {}\n", problem.code, problem.message, place);
    if (at.line > 0) out += excerpt(problem);
    if (at.line == 0 && !problem.label.empty()) out += "   = " + problem.label + "\n";
    if (!problem.help.empty()) out += indented("help: ", problem.help);
    if (!problem.note.empty()) out += indented("note: ", problem.note);
  }
  if (sorted.size() > most_problems) out += fmt::format("... and {} more\n", sorted.size() - most_problems);
  return out;
}

void Problems::raise() const {
  if (list_.empty()) return;
  const char* plural = list_.size() == 1 ? "" : "s";
  throw Error(Exit::usage,
              fmt::format("{}{} problem{} in {}; nothing was started", text(), list_.size(), plural, name_));
}

}  // namespace eng
