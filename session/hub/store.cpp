// SPDX-License-Identifier: Apache-2.0
#include "session/hub/store.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "session/file.hpp"
#include "session/hub/proof.hpp"
#include "session/json.hpp"

namespace eng::hub {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t longest_record = uint64_t{64} << 20;

fs::path made(const fs::path& root) {
  make_directories(root);
  return root;
}

int64_t nanoseconds(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

// True if there is something of this name; a link is not followed.
bool look(const fs::path& path, struct stat& info) {
  if (::lstat(path.c_str(), &info) == 0) return true;
  if (errno != ENOENT) disk_error("open", path, errno);
  return false;
}

// The content of a part, also where the hub gives no hash.
std::string identity(const File& file, const std::string& commit) {
  const std::string content = file.content();
  return content.empty() ? "commit:" + commit : content;
}

}  // namespace

std::string name_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

std::string part_of(const std::string& path) {
  return name_of(path) + std::string(part_suffix);
}

Store::Store(const fs::path& root, const Place& place) : place_(place), root_(made(root)) {
  if (::flock(root_.descriptor(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error(Exit::usage, fmt::format("another `engine {} get` downloads into {}", word(place.kind), root.string()));
  load();
}

void Store::load() {
  const fs::path path = root_.inside() / record_name;
  struct stat info {};
  if (!look(path, info)) return;
  const std::string shown = (root_.path() / record_name).string();
  std::string repository, kind;
  try {
    if (!S_ISREG(info.st_mode)) throw JsonError("it is not a regular file");
    const Json json = Json::parse(read_text(path, longest_record, Exit::disk));
    kind = json.text_at("kind");
    repository = json.text_at("repository");
    for (const auto& [name, file] : json.at("files").members())
      files_[name] = {file.at("size").whole(), file.at("modified").integer(), file.text_at("content"),
                      file.text_at("commit")};
    for (const auto& [name, part] : json.at("parts").members())
      parts_[name] = {part.text_at("content"), part.text_at("etag")};
  } catch (const JsonError& e) {
    throw Error(Exit::disk, fmt::format("{} is no record of downloads: {}", shown, printable(e.what(), 300)),
                "remove it; files that are there are then compared with those of the hub");
  }
  if (kind != word(place_.kind) || repository != place_.repository)
    throw Error(Exit::usage,
                fmt::format("{} has {} {} in it", root_.path().string(), kind == "model" ? "model" : "data set",
                            printable(repository)),
                "choose another folder with --to");
}

HeldFolder Store::folder_of(const std::string& path) const {
  HeldFolder at(root_.path());
  for (size_t begin = 0, end = 0; (end = path.find('/', begin)) != path.npos; begin = end + 1) {
    const std::string name = path.substr(begin, end - begin);
    struct stat info {};
    if (look(at.inside() / name, info) && S_ISLNK(info.st_mode))
      throw Error(Exit::disk,
                  fmt::format("{} is a symbolic link, and a download follows none", (at.path() / name).string()),
                  "remove it, or choose another folder with --to");
    at = HeldFolder(at, name);
  }
  return at;
}

bool Store::has(const File& file, const std::string& commit) {
  const HeldFolder folder = folder_of(file.path);
  const fs::path path = folder.inside() / name_of(file.path), shown = folder.path() / name_of(file.path);
  struct stat info {};
  if (!look(path, info)) return false;
  if (!S_ISREG(info.st_mode))
    throw Error(Exit::disk, fmt::format("{} is in the way: it is no regular file", shown.string()),
                "remove it, or choose another folder with --to");
  const auto size = static_cast<uint64_t>(info.st_size);
  const auto kept = files_.find(file.path);
  const std::string wanted = identity(file, commit);
  const bool known = kept != files_.end() && kept->second.size == size && kept->second.modified == nanoseconds(info);
  if (known && kept->second.content == wanted) {
    kept->second.commit = commit;
    return true;
  }
  if (!known && !file.content().empty() && (!file.size || *file.size == size)) {
    Proof proof(file);
    proof.add_file(path, size);
    if (proof.problem().empty()) {
      files_[file.path] = {size, nanoseconds(info), wanted, commit};
      return true;
    }
  }
  if (known) return false;  // of another commit: replaced
  throw Error(Exit::usage, fmt::format("{} is there, and is not the file of the hub", shown.string()),
              "remove it, or choose another folder with --to");
}

uint64_t Store::part_bytes(const File& file, const std::string& commit) const {
  const auto part = parts_.find(file.path);
  if (part == parts_.end() || part->second.content != identity(file, commit)) return 0;
  if (file.content().empty() && !part->second.etag.starts_with('"')) return 0;  // nothing tells that it is of one file
  const HeldFolder folder = folder_of(file.path);
  struct stat info {};
  if (!look(folder.inside() / part_of(file.path), info) || !S_ISREG(info.st_mode)) return 0;
  const auto size = static_cast<uint64_t>(info.st_size);
  return file.size && size > *file.size ? 0 : size;
}

std::string Store::part_etag(const File& file) const {
  const auto part = parts_.find(file.path);
  return part == parts_.end() ? "" : part->second.etag;
}

void Store::begin_part(const File& file, const std::string& commit, const std::string& etag) {
  parts_[file.path] = {identity(file, commit), etag};
}

void Store::drop_part(const File& file) {
  parts_.erase(file.path);
  const HeldFolder folder = folder_of(file.path);
  std::error_code none;
  fs::remove(folder.inside() / part_of(file.path), none);
}

void Store::finish(const File& file, const std::string& commit) {
  const HeldFolder folder = folder_of(file.path);
  const fs::path part = folder.inside() / part_of(file.path), path = folder.inside() / name_of(file.path);
  {
    const Fd fd = open_regular(part, O_RDONLY);
    if (file_calls().sync(fd) != 0) disk_error("flush", part, errno);
  }
  rename_durably(part, path);
  struct stat info {};
  if (!look(path, info)) disk_error("open", path, ENOENT);
  parts_.erase(file.path);
  files_[file.path] = {static_cast<uint64_t>(info.st_size), nanoseconds(info), identity(file, commit), commit};
}

std::vector<std::string> Store::left_over(const Listing& listing) const {
  std::map<std::string, Kept> rest = files_;
  for (const File& file : listing.files) rest.erase(file.path);
  std::vector<std::string> out;
  for (const auto& [name, kept] : rest)
    if (kept.commit != listing.commit) out.push_back(name);
  return out;
}

void Store::save(const std::string& commit) {
  Json files = Json::object(), parts = Json::object();
  for (const auto& [name, kept] : files_)
    files[name] = Json::ordered(
        {{"size", kept.size}, {"content", kept.content}, {"commit", kept.commit}, {"modified", kept.modified}});
  for (const auto& [name, part] : parts_) parts[name] = Json::ordered({{"content", part.content}, {"etag", part.etag}});
  const Json json = Json::ordered({{"kind", std::string(word(place_.kind))},
                                   {"repository", place_.repository},
                                   {"endpoint", place_.endpoint},
                                   {"revision", place_.revision},
                                   {"commit", commit},
                                   {"files", files},
                                   {"parts", parts}});
  write_atomic(root_.inside() / record_name, json.dump(1, true) + "\n");
}

}  // namespace eng::hub
