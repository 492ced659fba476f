// SPDX-License-Identifier: Apache-2.0
#include "session/plugins/held_file.hpp"

#include <fcntl.h>
#include <grp.h>
#include <openssl/evp.h>
#include <pwd.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <vector>

#include "core/base/text.hpp"
#include "session/plugins/needs.hpp"
#include "session/shell.hpp"

namespace eng {
namespace {

constexpr uid_t unmapped = 65534;  // the owner that a container shows for users that it does not map
constexpr int most_links = 40;     // as the kernel

std::string named(unsigned id, const char* name) {
  return name ? fmt::format("{} ({})", id, printable(name)) : std::to_string(id);
}

std::string user_name(uid_t id) {
  const passwd* user = getpwuid(id);
  return named(id, user ? user->pw_name : nullptr);
}

std::string group_name(gid_t id) {
  const group* found = getgrgid(id);
  return named(id, found ? found->gr_name : nullptr);
}

bool is_ours(const struct stat& info) {
  return info.st_uid == 0 || info.st_uid == geteuid();
}

// True if the owner is the only member of the group, as with the per-user groups of distributions, whose users have
// the umask 002.
bool private_group(const struct stat& info) {
  const passwd* owner = getpwuid(info.st_uid);
  const group* members = getgrgid(info.st_gid);
  if (!owner || !members || owner->pw_gid != info.st_gid || std::strcmp(owner->pw_name, members->gr_name)) return false;
  for (char** member = members->gr_mem; *member; ++member)
    if (std::strcmp(owner->pw_name, *member)) return false;
  return true;
}

// False only if there surely is none. With an access list, the group's bits are those of all users it names.
bool has_access_list(int at) {
  // fgetxattr refuses O_PATH descriptors. `at` is open, so its number means nothing else.
  const std::string path = fmt::format("/proc/self/fd/{}", at);
  return getxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) >= 0 || (errno != ENODATA && errno != ENOTSUP);
}

std::string shown(const std::string& path) {
  return printable(path, PATH_MAX);
}

// "has mode 0775 and owner 1000 (bob)"
std::string facts(const struct stat& info) {
  return fmt::format("has mode {:04o} and owner {}", info.st_mode & 07777u, user_name(info.st_uid));
}

// The reason why a file or folder cannot be trusted, and what to change. `can`: what its writers can do.
std::string complaint(const std::string& what, const std::string& path, const struct stat& info, int at,
                      const char* can) {
  const std::string who = others_who_write(info, at), word = shown(shell_word(path));
  if (who.empty()) return "";
  if (is_ours(info)) return fmt::format("{} {}: {} can {} (chmod go-w {})", what, facts(info), who, can, word);
  return fmt::format(
      "{} {}, who is neither root nor you{}: keep plugins where only root and you can write, or chown {} {}", what,
      facts(info), info.st_uid == unmapped ? " (a container shows this owner for users that it does not map)" : "",
      geteuid() ? std::to_string(geteuid()) : "root", word);
}

Fd open_in(int folder, const char* name, int flags) {
  int fd = -1;
  do fd = openat(folder, name, flags | O_NOFOLLOW | O_CLOEXEC);
  while (fd < 0 && errno == EINTR);
  return Fd(fd);
}

// Resolves a path from / on, with a descriptor of each folder. A folder is checked before anything is looked up in it:
// if it is closed to others, what a name in it leads to stays so until root or this user changes it. Step by step, that
// holds for the whole path, and goes on to hold after the walk.
class Walk {
 public:
  // `error` tells how far it came: 0 if there is a file or folder.
  explicit Walk(const std::string& path) { go(path); }

  int error = 0;         // errno
  std::string distrust;  // the first thing found that another user can change; "" if none
  struct stat info {};   // of what is at the end of the path; a file's may be exchanged until it is opened
  bool is_file = false;  // the path ends at a regular file, in folder()
  std::string name;      // of the file

  int folder() const { return chain_.back().fd; }
  // The reason why others can add entries to the last folder that there is; "" if they cannot.
  std::string open_end() const {
    if (chain_.empty() || !chain_.back().sticky) return "";
    const Folder& last = chain_.back();
    return fmt::format("folder {} {}: {} can put libraries there", shown(last.path), facts(last.info),
                       others_who_write(last.info, last.fd));
  }
  std::string real() const { return (chain_.size() > 1 ? chain_.back().path : "") + "/" + name; }

 private:
  struct Folder {
    Fd fd;
    std::string path;  // "/" or without a slash at the end
    struct stat info;
    bool sticky;  // others can add entries, but not replace those of root and this user
  };
  std::vector<Folder> chain_;

  void blame(const std::string& why) {
    if (distrust.empty()) distrust = why;
  }

  // Enters the folder: from now on, lookups start there. Checked before anything is looked up in it.
  void enter(Fd fd, const std::string& path) {
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0) {
      error = errno;
      return;
    }
    const bool sticky = is_ours(about) && (about.st_mode & S_ISVTX) && !others_who_write(about, fd).empty();
    if (!sticky) blame(complaint("folder " + shown(path), path, about, fd, "exchange what is in it"));
    chain_.push_back({std::move(fd), path, about, sticky});
    info = about;
  }

  void go(const std::string& path) {
    std::vector<std::string> todo;  // the next component is the last
    const auto add = [&](const std::string& more) {
      std::vector<std::string> parts;
      for (size_t from = 0, to = 0; from < more.size(); from = to + 1) {
        to = std::min(more.find('/', from), more.size());
        if (to > from) parts.push_back(more.substr(from, to - from));
      }
      todo.insert(todo.end(), parts.rbegin(), parts.rend());
    };
    add(path);
    enter(open_in(AT_FDCWD, "/", O_PATH | O_DIRECTORY), "/");
    int links = 0;
    while (!error && !todo.empty()) {
      const std::string next = std::move(todo.back());
      todo.pop_back();
      if (next == ".") continue;
      if (next == "..") {
        if (chain_.size() > 1) chain_.pop_back();
        continue;
      }
      const Folder& in = chain_.back();
      const std::string here = (chain_.size() > 1 ? in.path : "") + "/" + next;
      struct stat about;
      if (fstatat(in.fd, next.c_str(), &about, AT_SYMLINK_NOFOLLOW) != 0) {
        error = errno;
      } else if (S_ISLNK(about.st_mode)) {
        if (in.sticky && !is_ours(about))
          blame(fmt::format("link {} has owner {}, who is neither root nor you: {} can exchange it (use another path)",
                            shown(here), user_name(about.st_uid), user_name(about.st_uid)));
        std::string to(PATH_MAX, '\0');
        const ssize_t size = readlinkat(in.fd, next.c_str(), to.data(), to.size());
        error = size < 0 ? errno : ++links > most_links ? ELOOP : 0;
        to.resize(size < 0 ? 0 : static_cast<size_t>(size));
        if (!to.empty() && to[0] == '/') chain_.erase(chain_.begin() + 1, chain_.end());
        add(to);
      } else if (S_ISDIR(about.st_mode)) {
        enter(open_in(in.fd, next.c_str(), O_PATH | O_DIRECTORY), here);
      } else {
        error = todo.empty() ? 0 : ENOTDIR;
        if (in.sticky)
          blame(fmt::format("its folder {} {}: {} can put libraries beside it (move it to a folder of its own)",
                            shown(in.path), facts(in.info), others_who_write(in.info, in.fd)));
        info = about, name = next, is_file = !error && S_ISREG(about.st_mode);
      }
    }
  }
};

}  // namespace

std::string others_who_write(const struct stat& info, int at) {
  if (!is_ours(info)) return "user " + user_name(info.st_uid);
  if (info.st_mode & S_IWOTH) return "every user";
  if (!(info.st_mode & S_IWGRP)) return "";
  if (!private_group(info)) return "group " + group_name(info.st_gid);
  return has_access_list(at) ? "who is in its access list (getfacl)" : "";
}

std::string folder_distrust(const std::string& path) {
  const Walk walk(path);
  return walk.distrust.empty() && !walk.is_file ? walk.open_end() : walk.distrust;
}

Held hold(const std::filesystem::path& path) {
  const Walk walk(path.string());
  if (walk.error) return {nullptr, fmt::format("cannot be opened: {}", std::strerror(walk.error))};
  if (!walk.is_file) return {nullptr, "not a regular file"};
  // O_NONBLOCK: if it is exchanged for a pipe meanwhile, opening does not wait for its writer.
  Fd fd = open_in(walk.folder(), walk.name.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY);
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0) return {nullptr, fmt::format("cannot be opened: {}", std::strerror(errno))};
  if (!S_ISREG(info.st_mode)) return {nullptr, "not a regular file"};
  std::string why = walk.distrust;
  if (why.empty()) why = complaint("the file", walk.real(), info, fd, "write it");
  return {std::make_shared<HeldFile>(std::move(fd), info, walk.real()), std::move(why)};
}

std::string HeldFile::doubt() const {
  const Walk walk(path_);
  if (walk.error) return fmt::format("{} cannot be opened any more: {}", shown(path_), std::strerror(walk.error));
  if (!walk.distrust.empty()) return walk.distrust;
  const struct stat& now = walk.info;
  if (!walk.is_file || walk.real() != path_ || now.st_dev != info_.st_dev || now.st_ino != info_.st_ino ||
      now.st_size != info_.st_size || now.st_mtim.tv_sec != info_.st_mtim.tv_sec ||
      now.st_mtim.tv_nsec != info_.st_mtim.tv_nsec)
    return fmt::format("{} was replaced or changed after it was checked: start the command again", shown(path_));
  const std::string why = complaint("the file", path_, now, fd_, "write it");
  return why.empty() ? distrust_of_needs(path_, reader()) : why;
}

std::string HeldFile::missing() const {
  return help_of_missing(path_, reader());
}

uint64_t HeldFile::read(void* out, uint64_t offset, uint64_t bytes) const {
  uint64_t done = 0;
  while (done < bytes && offset <= INT64_MAX - done) {
    const ssize_t n = pread(fd_, static_cast<char*>(out) + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<uint64_t>(n);
  }
  return done;
}

std::string HeldFile::sha256() const {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> hash(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  bool good = hash && EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr);
  uint64_t done = 0;
  for (std::vector<char> piece(1 << 16); good;) {
    const uint64_t n = read(piece.data(), done, piece.size());
    good = EVP_DigestUpdate(hash.get(), piece.data(), n);
    done += n;
    if (n < piece.size()) break;
  }
  unsigned char digest[32];
  if (!good || done != static_cast<uint64_t>(info_.st_size) || !EVP_DigestFinal_ex(hash.get(), digest, nullptr))
    throw Error(Exit::environment, fmt::format("{}: cannot be read for its sha256", shown(path_)));
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

}  // namespace eng
