// SPDX-License-Identifier: Apache-2.0
#include "session/hub/names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace eng::hub {
namespace {

constexpr size_t longest_path = 1024, longest_name = 200;  // bytes; file systems take names of 255

// As it stands in an address. `slash`: '/' divides folders and stays.
std::string escaped(std::string_view text, bool slash) {
  std::string out;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) || std::string_view("-._~").find(c) != std::string_view::npos ||
        (slash && c == '/'))
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  return out;
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 32 || c == 127;
}

// Letters, digits, '-', '_' and '.', as in names of owners and repositories.
bool is_plain(std::string_view name) {
  return !name.empty() && name.size() <= 96 && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; });
}

}  // namespace

std::string_view word(Kind kind) {
  return kind == Kind::model ? "model" : "data";
}

std::string Place::listing() const {
  return fmt::format("{}/api/{}/{}/revision/{}?blobs=True", endpoint, kind == Kind::model ? "models" : "datasets",
                     repository, escaped(revision, false));
}

std::string Place::file(const std::string& commit, const std::string& path) const {
  return fmt::format("{}/resolve/{}/{}", page(), escaped(commit, false), escaped(path, true));
}

std::string Place::page() const {
  return fmt::format("{}/{}{}", endpoint, kind == Kind::model ? "" : "datasets/", repository);
}

std::string Place::command() const {
  return fmt::format("engine {} get {}", word(kind), repository);
}

void check_repository(const std::string& name, Kind kind) {
  const size_t slash = name.find('/');
  const std::string_view all = name;
  if (slash == name.npos ? is_plain(all) : is_plain(all.substr(0, slash)) && is_plain(all.substr(slash + 1))) return;
  throw Error(Exit::usage, fmt::format("`{}` is no name of a repository", printable(name)),
              fmt::format("the name is org/name, as in {}",
                          kind == Kind::model ? "HuggingFaceTB/SmolLM2-135M" : "roneneldan/TinyStories"));
}

void check_revision(const std::string& revision) {
  const bool good = !revision.empty() && revision.size() <= 200 && revision.find("..") == revision.npos &&
                    std::none_of(revision.begin(), revision.end(), is_control);
  if (!good) throw Error(Exit::usage, fmt::format("--revision: `{}` is no branch, tag or commit", printable(revision)));
}

std::string unfit(const std::string& path) {
  if (path.empty()) return "is empty";
  if (path.size() > longest_path) return fmt::format("has more than {} bytes", longest_path);
  if (path.front() == '/') return "is absolute";
  if (std::any_of(path.begin(), path.end(), is_control)) return "has control characters";
  if (path.find('\\') != path.npos) return "has a backslash";
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = std::string_view(path).substr(begin, end - begin);
    if (part.empty()) return "has a folder without a name";
    if (part == "." || part == "..") return "leads out of its folder";
    if (part.size() > longest_name) return fmt::format("has a part of more than {} bytes", longest_name);
    if (part == record_name || part.ends_with(part_suffix)) return "is one that this command uses itself";
    begin = end + 1;
  }
  return "";
}

}  // namespace eng::hub
