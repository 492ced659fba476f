// SPDX-License-Identifier: Apache-2.0
#include "files.hpp"

#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "failure.hpp"
#include "hub.hpp"
#include "saved_set.hpp"
#include "script.hpp"

namespace text_data {
namespace {

namespace fs = std::filesystem;

bool has_wildcard(const std::string& name) {
  return name.find_first_of("*?[") != std::string::npos;
}

class Glob {
 public:
  Glob(const fs::path& pattern, const std::string& key) : key_(key) {
    for (const fs::path& part : pattern.relative_path()) {
      if (part.empty() || (part == "**" && !parts_.empty() && parts_.back() == "**")) continue;
      parts_.push_back(part.string());
    }
    // `docs/**` matches the files below docs, as users expect, not only the folders.
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
      throw Failure(ENG_DATA_LOSS,
                    "[data] " + key_ + ": cannot list folder " + folder.string() + ": " + error.message());
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

  const std::string& key_;
  std::vector<std::string> parts_;
  std::vector<std::string> found_;
};

std::vector<std::string> expand(const std::string& base_dir, const std::string& pattern, const std::string& key) {
  if (pattern.empty()) throw Failure(ENG_INVALID, "[data] " + key + ": one of the paths is empty");
  fs::path path(pattern);
  if (!path.is_absolute()) {
    if (base_dir.empty() || base_dir[0] != '/') {
      throw Failure(ENG_INVALID,
                    "[data] " + key + ": '" + pattern + "' is relative and there is no folder it is relative to");
    }
    path = fs::path(base_dir) / path;
  }
  path = path.lexically_normal();
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) {
      if (const std::vector<std::string> files = saved_set(path.string()); !files.empty()) return files;
      throw Failure(ENG_INVALID, "[data] " + key + ": " + path.string() +
                                     " is a folder: to use the files in it write '" +
                                     (fs::path(pattern) / "**/*").lexically_normal().string() +
                                     "' or name an ending, such as '**/*.txt'");
    }
    if (!S_ISREG(status.st_mode)) {
      throw Failure(ENG_INVALID, "[data] " + key + ": " + path.string() + " " + not_a_file(status.st_mode));
    }
    return {path.string()};
  }
  int why = errno;
  if (has_wildcard(pattern)) {
    std::vector<std::string> files = Glob(path, key).files();
    if (!files.empty()) return files;
    throw Failure(ENG_NOT_FOUND, "[data] " + key + ": '" + pattern + "' matches no file (looked for " + path.string() +
                                     "; hidden names match only where the pattern has the dot)");
  }
  if (why == ENOENT || why == ENOTDIR) {
    if (const std::string name = hub_name(pattern, base_dir); !name.empty())
      throw Failure(ENG_NOT_FOUND, "[data] " + key + ": no file " + path.string() + ". If " + pattern +
                                       " is a data set on huggingface.co, write it into a file first:\n  " +
                                       export_dataset() + " " + pattern + " --out " + name +
                                       ".jsonl.zst\n(--config NAME, where it has several) and set data." + key +
                                       "=[\"" + name + ".jsonl.zst\"]. " + mirrors);
    throw Failure(ENG_NOT_FOUND, "[data] " + key + ": no file " + path.string() +
                                     (pattern[0] == '~' ? " ('~' is not expanded: write the whole path)" : ""));
  }
  throw Failure(ENG_DATA_LOSS, "[data] " + key + ": " + path.string() + ": " + std::generic_category().message(why));
}

std::pair<dev_t, ino_t> file_id(const std::string& file) {
  struct stat status {};
  if (stat(file.c_str(), &status) != 0)
    throw Failure(ENG_DATA_LOSS, "[data] " + file + ": " + std::generic_category().message(errno));
  return {status.st_dev, status.st_ino};
}

}  // namespace

std::string not_a_file(unsigned mode) {
  const char* what = S_ISFIFO(mode)   ? "a pipe"
                     : S_ISCHR(mode)  ? "a terminal or another device"
                     : S_ISSOCK(mode) ? "a socket"
                                      : "a device";
  return std::string("is ") + what +
         ", not a regular file: data is read more than once, and from any place, so it must "
         "lie in a file. Write it to one first, for example with  cat > text.txt";
}

std::vector<std::string> without(const std::vector<std::string>& files, const std::vector<std::string>& others) {
  std::set<std::pair<dev_t, ino_t>> taken;
  for (const std::string& file : others) taken.insert(file_id(file));
  std::vector<std::string> rest;
  for (const std::string& file : files)
    if (taken.count(file_id(file)) == 0) rest.push_back(file);
  return rest;
}

std::vector<std::string> find_files(const std::string& base_dir, const std::vector<std::string>& patterns,
                                    const std::string& key) {
  if (patterns.empty()) throw Failure(ENG_INVALID, "[data] " + key + " is empty: name at least one file or pattern");
  std::vector<std::string> all;
  for (const std::string& pattern : patterns) {
    for (std::string& file : expand(base_dir, pattern, key)) all.push_back(std::move(file));
  }
  std::sort(all.begin(), all.end());
  std::vector<std::string> files;
  std::set<std::pair<dev_t, ino_t>> seen;
  for (std::string& file : all) {
    if (seen.insert(file_id(file)).second) files.push_back(std::move(file));
  }
  return files;
}

}  // namespace text_data
