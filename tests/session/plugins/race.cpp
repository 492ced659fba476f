// SPDX-License-Identifier: Apache-2.0
#include "race.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "tests/registry/fixture.h"
#include "tests/registry/folder.hpp"

namespace race {
namespace {

namespace fs = std::filesystem;

constexpr uid_t stranger = 65534;
constexpr int foreign_ran = 99;  // exit status of a process that loads fixture_foreign
constexpr const char* plugin = "p.eng.so";

// The messages between processes.
struct Shared {
  std::atomic<uint64_t> exchanges, denied, refused, at_load, loaded;
  char other[1024];  // a refusal without the expected words, or another failure
};

class Board {
 public:
  Board() {
    void* at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::runtime_error("no memory to share");
    shared_ = new (at) Shared{};
  }
  ~Board() { munmap(shared_, sizeof(Shared)); }
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  Shared* operator->() const { return shared_; }

 private:
  Shared* shared_;
};

pid_t start(const std::function<int()>& task) {
  std::fflush(stdout);
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("cannot fork");
  if (pid > 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  _exit(task());
}

// The exit status; 128 and the signal of a process that was killed.
int finish(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Another user, who exchanges `a` and `b` all the time.
class Stranger {
 public:
  Stranger(const Board& board, const fs::path& a, const fs::path& b)
      : pid_(start([&] {
          if (setgroups(0, nullptr) || setgid(stranger) || setuid(stranger)) return 1;
          for (;;) {
            const bool done = renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
            ++(done ? board->exchanges : board->denied);
          }
        })) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (board->exchanges + board->denied < 1 && std::chrono::steady_clock::now() < end) usleep(1000);
  }
  ~Stranger() {
    kill(pid_, SIGKILL);
    finish(pid_);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

 private:
  pid_t pid_;
};

// `plugins` has root's plugin, `other` the stranger's; both lie in `shared`.
struct Place : Folder {
  Place(mode_t mode, uid_t owner, gid_t group)
      : shared(path / "shared"), plugins(shared / "plugins"), other(shared / "other") {
    fs::permissions(path, fs::perms(0755));
    for (const fs::path& folder : {shared, plugins, other}) fs::create_directory(folder);
    put("good", "shared/plugins/" + std::string(plugin));
    put("foreign", "shared/other/" + std::string(plugin));
    fs::create_directory_symlink(plugins, shared / "link");
    fs::create_directory_symlink(other, shared / "link.other");
    for (const fs::path& theirs : {other, other / plugin, shared / "link", shared / "link.other"})
      own(theirs, stranger, stranger);
    own(shared, owner, group);
    for (const fs::path& folder : {plugins, other}) fs::permissions(folder, fs::perms(0755));
    open(mode);
  }
  static void own(const fs::path& what, uid_t owner, gid_t group) {
    if (lchown(what.c_str(), owner, group) != 0) throw std::runtime_error("cannot chown " + what.string());
  }
  void open(mode_t mode) const {
    if (chmod(shared.c_str(), mode) != 0) throw std::runtime_error("cannot chmod " + shared.string());
  }
  fs::path shared, plugins, other;
};

struct Way {
  const char* name;
  mode_t mode;  // of the folder in which both lie
  uid_t owner, group;
  const char* words;   // of the refusal, after the path; nullptr: root's plugin is loaded every time
  bool link = false;   // the path leads through a link of the stranger's
  bool later = false;  // the folder becomes writable between the search and the loading
};

constexpr Way ways[] = {
    {"every user may write the folder", 0777, 0, 0, " has mode 0777 and owner 0 (root): every user can"},
    {"a group may write the folder", 0775, 0, stranger, " has mode 0775 and owner 0 (root): group 65534"},
    {"the folder is another user's", 0755, stranger, stranger, " has mode 0755 and owner 65534"},
    {"a sticky folder, a link of another user's", 01777, 0, 0, "/link has owner 65534", true},
    {"the folder is opened to every user after the search", 0755, 0, 0, " has mode 0777 and owner 0 (root)", false,
     true},
    {"a sticky folder", 01777, 0, 0, nullptr},
};

// One search and one loading. Counts what came of it.
void attempt(const Board& board, const Place& place, const Way& way) {
  const auto refused = [&](const std::string& why) {
    ++board->refused;
    // With `later`, the search may meet the stranger's folder.
    const bool meant = why.find(place.shared.string() + way.words) != std::string::npos ||
                       (way.later && why.find(" and owner 65534") != std::string::npos);
    if (!meant) std::snprintf(board->other, sizeof(board->other), "%s", why.c_str());
  };
  try {
    const fs::path folder = way.link ? place.shared / "link" : place.plugins;
    if (way.later) place.open(0755);
    const auto registry = eng::find_plugins({{folder}, false});
    if (way.later) place.open(0777);
    if (const std::string& why = at(*registry, folder / plugin).refused; !why.empty()) return refused(why);
    if (way.later) ++board->at_load;
    try {
      registry->table<counter>(COUNTER_KIND, "counter");
      ++board->loaded;
    } catch (const std::exception& error) {
      refused(error.what());
    }
  } catch (const std::exception& error) {
    std::snprintf(board->other, sizeof(board->other), "%s", error.what());
  }
}

// Acts like a loader that checks by name and loads by name.
int by_name(const fs::path& folder) {
  const fs::path file = folder / plugin;
  for (;;) {
    struct stat around, info;
    if (stat(folder.c_str(), &around) || stat(file.c_str(), &info)) return 1;
    if (around.st_uid == 0 && info.st_uid == 0) break;
  }
  std::ifstream in(file, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  return dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) && !bytes.empty() ? 0 : 1;
}

std::string one(const Way& way, int tries, const std::function<void(const std::string&)>& report) {
  const Place place(way.mode, way.owner, way.group);
  const Board board;
  const Stranger other(board, way.link ? place.shared / "link" : place.plugins,
                       way.link ? place.shared / "link.other" : place.other);
  int status = 0;
  const bool loads = !way.words;
  const auto many = [&] {
    // Until the stranger had his turns too, on a machine with one core.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (int k = 0; k < tries || (!loads && board->exchanges < 20 && std::chrono::steady_clock::now() < end); ++k)
      attempt(board, place, way);
    return 0;
  };
  if (!loads) status = finish(start(many));
  // A process loads a file once, so each loading needs a process.
  for (int k = 0; loads && k < tries && !status; ++k)
    status = finish(start([&] {
      attempt(board, place, way);
      return 0;
    }));
  report(fmt::format("{}: {} refused, {} loaded; {} exchanges, {} denied", way.name, board->refused.load(),
                     board->loaded.load(), board->exchanges.load(), board->denied.load()));
  const uint64_t all = static_cast<uint64_t>(tries);
  if (status == foreign_ran) return "the stranger's constructor ran";
  if (status) return fmt::format("exit status {}", status);
  if (board->other[0]) return std::string("said: ") + board->other;
  if (loads && (board->loaded != all || board->exchanges || !board->denied))
    return "not every try loaded root's plugin";
  if (!loads && (board->refused < all || board->loaded)) return "not every try was refused";
  if (!loads && board->exchanges < 20) return "the stranger could not exchange the folders";
  if (way.later && !board->at_load) return "no refusal came from the loading";
  return "";
}

}  // namespace

std::string run(int tries, const std::function<void(const std::string&)>& report) {
  // First the proof that the stranger succeeds where names are trusted.
  {
    const Place place(0777, 0, 0);
    const Board board;
    const Stranger other(board, place.plugins, place.other);
    int runs = 0, status = 0;
    while (status == 0 && ++runs <= 5000) status = finish(start([&] { return by_name(place.plugins); }));
    if (status != foreign_ran) return fmt::format("the stranger did not get in by name (exit status {})", status);
    report(fmt::format("by name: the stranger's constructor ran in try {}", runs));
  }
  for (const Way& way : ways)
    if (const std::string wrong = one(way, way.words ? tries : tries / 10, report); !wrong.empty())
      return std::string(way.name) + ": " + wrong;
  return "";
}

}  // namespace race
