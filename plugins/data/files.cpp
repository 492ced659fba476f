// SPDX-License-Identifier: Apache-2.0
#include "files.hpp"

#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "failure.hpp"

namespace text_data {
namespace {

namespace fs = std::filesystem;

bool has_wildcard(const std::string& name) {
  return name.find_first_of("*?[") != std::string::npos;
}

class Glob {
 public:
  explicit Glob(const fs::path& pattern) {
    for (const fs::path& part : pattern.relative_path()) {
      if (part.empty() || (part == "**" && !parts_.empty() && parts_.back() == "**")) continue;
      parts_.push_back(part.string());
    }
    // `docs/**` means the files, as users expect, not the folders alone.
    if (!parts_.empty() && parts_.back() == "**") parts_.push_back("*");
  }

  std::vector<std::string> files() {
    visit("/", 0);
    return std::move(found_);
  }

 private:
  void visit(const fs::path& folder, std::size_t at) {
    const std::string& part = parts_[at];
    if (part != "**" && !has_wildcard(part)) {
      step(folder / part, at);
      return;
    }
    if (part == "**") visit(folder, at + 1);
    std::error_code error;
    fs::directory_iterator entries(folder, error);
    if (error == std::errc::not_a_directory || error == std::errc::no_such_file_or_directory) return;
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      std::string name = entries->path().filename().string();
      std::error_code ignored;
      if (part == "**") {
        bool plain_folder = entries->is_directory(ignored) && !entries->is_symlink(ignored);
        if (name[0] != '.' && plain_folder) visit(entries->path(), at);
      } else if (fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) == 0) {
        step(entries->path(), at);
      }
    }
    if (error) {
      throw Failure(ENG_DATA_LOSS, "[data] paths: cannot list folder " + folder.string() + ": " + error.message());
    }
  }

  void step(const fs::path& path, std::size_t at) {
    std::error_code ignored;
    if (at + 1 < parts_.size()) {
      if (fs::is_directory(path, ignored)) visit(path, at + 1);
    } else if (fs::is_regular_file(path, ignored)) {
      found_.push_back(path.string());
    }
  }

  std::vector<std::string> parts_;
  std::vector<std::string> found_;
};

std::vector<std::string> expand(const std::string& base_dir, const std::string& pattern) {
  if (pattern.empty()) throw Failure(ENG_INVALID, "[data] paths: one of the paths is empty");
  fs::path path(pattern);
  if (!path.is_absolute()) {
    if (base_dir.empty() || base_dir[0] != '/') {
      throw Failure(ENG_INVALID,
                    "[data] paths: '" + pattern + "' is relative and there is no folder it is relative to");
    }
    path = fs::path(base_dir) / path;
  }
  path = path.lexically_normal();
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) {
      throw Failure(ENG_INVALID, "[data] paths: " + path.string() + " is a folder: to use the files in it write '" +
                                     (fs::path(pattern) / "**/*").lexically_normal().string() +
                                     "' or name an ending, such as '**/*.txt'");
    }
    if (!S_ISREG(status.st_mode)) {
      throw Failure(ENG_INVALID, "[data] paths: " + path.string() + " is not a regular file");
    }
    return {path.string()};
  }
  int why = errno;
  if (has_wildcard(pattern)) {
    std::vector<std::string> files = Glob(path).files();
    if (!files.empty()) return files;
    throw Failure(ENG_NOT_FOUND, "[data] paths: '" + pattern + "' matches no file (looked for " + path.string() +
                                     "; hidden names match only where the pattern has the dot)");
  }
  if (why == ENOENT || why == ENOTDIR) {
    throw Failure(ENG_NOT_FOUND, "[data] paths: no file " + path.string() +
                                     (pattern[0] == '~' ? " ('~' is not expanded: write the whole path)" : ""));
  }
  throw Failure(ENG_DATA_LOSS, "[data] paths: " + path.string() + ": " + std::generic_category().message(why));
}

}  // namespace

std::vector<std::string> find_files(const std::string& base_dir, const std::vector<std::string>& patterns) {
  if (patterns.empty()) throw Failure(ENG_INVALID, "[data] paths is empty: name at least one file or pattern");
  std::vector<std::string> all;
  for (const std::string& pattern : patterns) {
    for (std::string& file : expand(base_dir, pattern)) all.push_back(std::move(file));
  }
  std::sort(all.begin(), all.end());
  std::vector<std::string> files;
  std::set<std::pair<dev_t, ino_t>> seen;
  for (std::string& file : all) {
    struct stat status {};
    if (stat(file.c_str(), &status) != 0) {
      throw Failure(ENG_DATA_LOSS, "[data] paths: " + file + ": " + std::generic_category().message(errno));
    }
    if (seen.emplace(status.st_dev, status.st_ino).second) files.push_back(std::move(file));
  }
  return files;
}

}  // namespace text_data
