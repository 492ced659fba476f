// SPDX-License-Identifier: Apache-2.0
#include "core/config/problems.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/base/error.hpp"

namespace eng {
namespace {

constexpr std::size_t width = 100;  // of an excerpt
constexpr std::size_t most_problems = 50;

// The characters of a line, each as printable UTF-8.
std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at]);
    std::size_t size = lead < 0x80 ? 1 : lead >= 0xf0 && lead < 0xf5 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
    if (lead >= 0xf5) size = 0;
    bool valid = size > 0 && at + size <= text.size();
    for (std::size_t i = 1; valid && i < size; ++i) valid = (static_cast<unsigned char>(text[at + i]) & 0xc0) == 0x80;
    // C1 controls are two bytes long.
    if (valid && size == 2 && lead == 0xc2 && static_cast<unsigned char>(text[at + 1]) < 0xa0) {
      out.emplace_back("?");
      at += 2;
    } else if (!valid) {
      out.emplace_back("?");
      at += 1;
    } else {
      std::string character = text.substr(at, size);
      if (character == "\t") character = " ";
      if (size == 1 && (lead < 0x20 || lead == 0x7f) && lead != '\t') character = "?";
      out.push_back(character);
      at += size;
    }
  }
  return out;
}

std::string join(const std::vector<std::string>& parts, std::size_t from, std::size_t to) {
  std::string out;
  for (std::size_t i = from; i < std::min(to, parts.size()); ++i) out += parts[i];
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

std::string indented(const std::string& head, const std::string& text) {
  std::string out = head;
  for (char c : text) {
    out += c;
    if (c == '\n') out += "      ";
  }
  while (!out.empty() && (out.back() == ' ' || out.back() == '\n')) out.pop_back();
  return out + "\n";
}

}  // namespace

std::string printable(const std::string& text, std::size_t most) {
  const auto all = characters(text);
  return join(all, 0, most) + (all.size() > most ? "..." : "");
}

Problems::Problems(const std::string& name, const std::string& text, const std::vector<std::string>& overrides)
    : name_(name), text_(text), overrides_(overrides) {
  starts_.push_back(0);
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\n') starts_.push_back(i + 1);
}

void Problems::add(Problem problem) {
  list_.push_back(std::move(problem));
}

std::string Problems::line(std::size_t number) const {
  if (number == 0 || number > starts_.size()) return "";
  const std::size_t begin = starts_[number - 1];
  std::string out = text_.substr(begin, text_.find('\n', begin) - begin);
  if (!out.empty() && out.back() == '\r') out.pop_back();
  if (number == 1 && out.compare(0, 3, "\xef\xbb\xbf") == 0) out.erase(0, 3);
  return out;
}

std::string Problems::origin(const Place& at) const {
  if (at.override_index >= 0) return "command line";
  return at.line > 0 ? fmt::format("{}:{}", name_, at.line) : name_;
}

std::string Problems::excerpt(const Problem& problem) const {
  const Place& at = problem.at;
  // The section's header, so that the reader knows where he is.
  std::size_t header = 0;
  for (std::size_t i = at.line; i-- > 1 && at.line - i < 1000;) {
    const std::string text = line(i);
    const auto first = text.find_first_not_of(" \t");
    if (first == std::string::npos || text[first] != '[') continue;
    header = i;
    break;
  }
  const std::string last = std::to_string(at.line);
  const std::string blank(last.size(), ' ');
  const auto show = [&](std::size_t number, const std::string& text) {
    return fmt::format("{:>{}} | {}\n", number, last.size(), text);
  };
  std::string out = blank + " |\n";
  if (header > 0) {
    out += show(header, printable(line(header), width));
    if (at.line - header > 2) out += blank + " | ...\n";
    if (at.line - header == 2) out += show(header + 1, printable(line(header + 1), width));
  }
  const auto all = characters(line(at.line));
  const std::size_t column = std::min(at.column > 0 ? at.column - 1 : 0, all.size());
  const std::size_t from = all.size() <= width || column < width / 2 ? 0 : column - width / 2;
  std::string shown = join(all, from, from + width);
  out += show(at.line, (from > 0 ? "..." : "") + shown + (from + width < all.size() ? "..." : ""));
  const std::size_t space = column - from + (from > 0 ? 3 : 0);
  const std::size_t room = from + width > column ? from + width - column : 1;
  const std::size_t carets = std::clamp<std::size_t>(at.length, 1, std::max<std::size_t>(room, 1));
  out += blank + " | " + std::string(space, ' ') + std::string(carets, '^');
  if (!problem.label.empty()) out += " " + problem.label;
  return out + "\n" + blank + " |\n";
}

std::string Problems::tell(const Problem& problem) const {
  std::string out = fmt::format("error[{}]: {}\n", problem.code, problem.message);
  const Place& at = problem.at;
  if (at.override_index >= 0) {
    out += fmt::format("  --> command line: {}\n", printable(overrides_[static_cast<std::size_t>(at.override_index)]));
    if (!problem.label.empty()) out += "   = " + problem.label + "\n";
  } else if (at.line > 0) {
    out += fmt::format("  --> {}:{}:{}\n", name_, at.line, at.column) + excerpt(problem);
  } else {
    out += fmt::format("  --> {}\n", name_);
    if (!problem.label.empty()) out += "   = " + problem.label + "\n";
  }
  if (!problem.help.empty()) out += indented("help: ", problem.help);
  if (!problem.note.empty()) out += indented("note: ", problem.note);
  return out;
}

void Problems::raise() const {
  if (list_.empty()) return;
  auto sorted = list_;
  // File by line, then the command line, then what is missing.
  const auto rank = [](const Problem& problem) {
    constexpr std::size_t far = std::numeric_limits<std::size_t>::max();
    if (problem.at.override_index >= 0) return std::pair{far - 1, static_cast<std::size_t>(problem.at.override_index)};
    return problem.at.line > 0 ? std::pair{problem.at.line, problem.at.column} : std::pair{far, std::size_t{0}};
  };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Problem& a, const Problem& b) { return rank(a) < rank(b); });
  std::string out;
  for (std::size_t i = 0; i < std::min(sorted.size(), most_problems); ++i) out += tell(sorted[i]);
  if (sorted.size() > most_problems) out += fmt::format("... and {} more\n", sorted.size() - most_problems);
  out += fmt::format("{} problem{} in {}; nothing was started", sorted.size(), sorted.size() == 1 ? "" : "s", name_);
  throw Error(Exit::usage, out);
}

}  // namespace eng
