// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/launch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <list>
#include <memory>
#include <random>
#include <sstream>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "session/json.hpp"
#include "session/ranks/cause.hpp"
#include "session/ranks/folder.hpp"
#include "session/ranks/ranks.hpp"
#include "session/run_dir.hpp"
#include "session/signals.hpp"
#include "tools/engine/command.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

// After a rank has ended or failed, mpirun ends the others in about two seconds. This is the maximum.
constexpr double patience = 7;

// The output of `program --version`.
std::string version_of(const fs::path& program) {
  const std::string command = shell_word(program.string()) + " --version 2>/dev/null </dev/null";
  std::string out;
  if (FILE* pipe = ::popen(command.c_str(), "r")) {
    std::array<char, 256> part{};
    while (std::fgets(part.data(), part.size(), pipe)) out += part.data();
    ::pclose(pipe);
  }
  return out;
}

// How many processes the system has killed for memory in this process's control group (version 2).
int64_t memory_kills() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.rfind("0::", 0) != 0) continue;
    std::ifstream events("/sys/fs/cgroup" + line.substr(3) + "/memory.events");
    std::string key;
    for (int64_t count = 0; events >> key >> count;)
      if (key == "oom_kill") return count;
  }
  return 0;
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> out;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator("/proc", gone)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::stringstream text;
    text << std::ifstream(entry.path() / "stat").rdbuf();
    const std::string stat = text.str();  // PID (NAME) STATE PARENT ...; the name may contain anything
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || name_end + 4 > stat.size()) continue;
    if (std::atoi(stat.c_str() + name_end + 4) == parent) out.push_back(std::atoi(name.c_str()));
  }
  return out;
}

// For the temporary files of mpirun, which would otherwise create a missing TMPDIR.
std::unique_ptr<LaunchFolder> temporary_folder() {
  const char* own = std::getenv("TMPDIR");
  std::string tried;
  for (const char* place : {own && *own ? own : "/tmp", "/tmp"}) try {
      return std::make_unique<LaunchFolder>(place);
    } catch (const fs::filesystem_error& e) {
      tried += fmt::format("{}{}: {}", tried.empty() ? "" : ", ", place, e.code().message());
    }
  throw Error(Exit::environment, "cannot make a folder for the temporary files of mpirun: " + tried,
              "set TMPDIR to a folder that you may write to");
}

// For the memory that the ranks share. Without it Open MPI chooses a place.
std::unique_ptr<LaunchFolder> shared_folder() try {
  return std::make_unique<LaunchFolder>("/dev/shm");
} catch (const fs::filesystem_error&) {
  return nullptr;
}

// One connection of a rank: its messages, or its stderr.
struct Stream {
  explicit Stream(int from) : fd(from) {}
  Fd fd;
  int64_t rank = -1;
  bool errors = false, over = false;
  std::string rest;  // the last line, not complete yet
};

class Above {
 public:
  explicit Above(const Launch& what) : what_(what) {}
  int run();

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }
  void start(const fs::path& mpirun);
  void turn();
  void take_signal();
  void pass_on();
  void end_now();
  void read(Stream& stream);
  void line(Stream& stream, const std::string& text);
  void message(Stream& stream, const Json& json);
  void show(const Stream& stream, const std::string& text);
  int outcome();
  void fail(const Cause& cause);

  const Launch& what_;
  Clock::time_point began_ = Clock::now();
  sigset_t before_{};
  pid_t mpirun_ = -1;
  std::unique_ptr<LaunchFolder> temporary_ = temporary_folder(), shared_ = shared_folder();
  std::string said_;  // by mpirun itself
  std::optional<Fd> signals_, listener_, said_fd_;
  std::list<Stream> streams_;
  std::map<uint32_t, RankStory> ranks_;
  std::string run_;  // its directory
  int asked_ = 0, urgent_ = 0;
  bool passed_on_ = false, nobody_came_ = false;
  std::optional<double> trouble_;  // the time at which a rank ended or failed
  std::optional<int> status_;      // of mpirun
  int64_t kills_before_ = memory_kills();
};

void Above::start(const fs::path& mpirun) {
  std::random_device random;
  Parent parent;
  parent.socket = fmt::format("engine-{}-{:08x}{:08x}", ::getpid(), random(), random());
  parent.command = what_.command;
  parent.ranks = what_.ranks;
  if (::isatty(STDERR_FILENO)) {
    char name[256] = {};
    if (::ttyname_r(STDERR_FILENO, name, sizeof(name)) == 0) parent.terminal = name;
  }
  listener_.emplace(local_socket(parent.socket, true));
  const pid_t self = ::getpid();
  std::vector<std::string> words = {mpirun.string(),   "-n",        std::to_string(what_.ranks),
                                    "--oversubscribe", "--bind-to", "none"};
  if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
  // Only this machine, inside any scheduler; no warnings about missing hardware.
  for (const char* word :
       {"--mca", "plm", "isolated", "--mca", "ras", "^slurm,gridengine,tm,lsf", "--mca", "oob_tcp_if_include", "lo",
        "--mca", "orte_abort_on_non_zero_status", "1", "--mca", "btl_base_warn_component_unused", "0"})
    words.emplace_back(word);
  words.insert(words.end(), {"--mca", "orte_tmpdir_base", temporary_->path().string()});
  if (shared_) words.insert(words.end(), {"--mca", "btl_vader_backing_directory", shared_->path().string()});
  words.push_back(fs::read_symlink("/proc/self/exe").string());
  words.insert(words.end(), what_.arguments.begin(), what_.arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int said[2];
  if (::pipe2(said, O_CLOEXEC) != 0)
    throw Error(Exit::environment, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  said_fd_.emplace(said[0]);
  const Fd theirs(said[1]);
  mpirun_ = ::fork();
  if (mpirun_ < 0) throw Error(Exit::environment, fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (mpirun_ == 0) {
    // mpirun ends its ranks on SIGTERM, which it gets when this command dies in any way. It has a separate process
    // group, so that Ctrl-C reaches only this command, which asks the ranks to stop.
    temporary_->hold();
    if (shared_) shared_->hold();
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != self) ::_exit(127);
    parent.mpirun = ::getpid();
    ::setenv(Parent::variable, parent.text().c_str(), 1);
    for (const int number : {SIGPIPE, SIGHUP, SIGXFSZ}) ::signal(number, SIG_DFL);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    const int in = ::open("/dev/null", O_RDONLY);
    if (in < 0 || ::dup2(in, STDIN_FILENO) < 0 || ::dup2(theirs, STDERR_FILENO) < 0) ::_exit(127);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
}

int Above::run() {
  const fs::path mpirun = find_mpirun();
  sigset_t mine;
  sigemptyset(&mine);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&mine, number);
  ::sigprocmask(SIG_BLOCK, &mine, &before_);
  for (const int number : {SIGPIPE, SIGHUP, SIGXFSZ}) ::signal(number, SIG_IGN);
  signals_.emplace(::signalfd(-1, &mine, SFD_CLOEXEC | SFD_NONBLOCK));
  if (*signals_ < 0) throw Error(Exit::environment, fmt::format("cannot make a signalfd: {}", std::strerror(errno)));
  start(mpirun);
  while (!status_) turn();
  // Reads what is still in the pipes.
  for (double until = now() + 1; now() < until && (!streams_.empty() || *said_fd_ >= 0);) {
    const size_t before = said_.size() + streams_.size();
    turn();
    if (streams_.empty() && before == said_.size() + streams_.size()) break;
  }
  const int exit = outcome();
  ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  return exit;
}

// Waits for an event, at most 0.2 s, and handles it.
void Above::turn() {
  std::vector<pollfd> fds = {{*signals_, POLLIN, 0}, {*listener_, POLLIN, 0}, {*said_fd_, POLLIN, 0}};
  for (const Stream& stream : streams_) fds.push_back({stream.fd, POLLIN, 0});
  const bool last = status_.has_value();
  if (::poll(fds.data(), fds.size(), last ? 20 : 200) < 0 && errno != EINTR)
    throw Error(Exit::bug, fmt::format("poll: {}", std::strerror(errno)));
  if (fds[0].revents) take_signal();
  size_t k = 3;
  for (auto stream = streams_.begin(); k < fds.size(); ++k, ++stream)
    if (fds[k].revents) read(*stream);
  if (fds[1].revents) {
    const int fd = ::accept4(*listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    ucred who{};
    socklen_t size = sizeof(who);
    if (fd >= 0 && ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == ::geteuid())
      streams_.emplace_back(fd);
    else if (fd >= 0)
      ::close(fd);
  }
  if (fds[2].revents) {
    std::array<char, 4096> part{};
    const ssize_t n = ::read(*said_fd_, part.data(), part.size());
    if (n > 0 && said_.size() < (1 << 16)) said_.append(part.data(), static_cast<size_t>(n));
    if (n <= 0 && !last) ::usleep(10000);  // closed before mpirun ended: SIGCHLD follows
  }
  streams_.remove_if([](const Stream& stream) { return stream.over; });
  if (!status_) {
    pass_on();
    if (ranks_.empty() && now() > what_.timeout) {
      nobody_came_ = true;
      end_now();
    } else if (trouble_ && now() - *trouble_ > patience) {
      end_now();
      trouble_.reset();
    }
  }
}

void Above::take_signal() {
  signalfd_siginfo info{};
  while (::read(*signals_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) {
      int status = 0;
      if (::waitpid(mpirun_, &status, WNOHANG) == mpirun_)
        status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      continue;
    }
    if (number != SIGUSR1 && urgent_++ > 0 && asked_ < 128) {
      asked_ = 128 + number;
      end_now();
    } else if (!asked_) {
      asked_ = number;
    }
  }
}

// Forwards the first signal when every rank has its handlers; earlier it would kill the ranks. SIGUSR1 is used because
// mpirun forwards it and continues; on SIGTERM mpirun would kill the ranks within a second.
void Above::pass_on() {
  if (!asked_ || passed_on_ || asked_ > 128) return;
  uint32_t ready = 0;
  for (const auto& [rank, story] : ranks_) ready += story.connected;
  if (ready < what_.ranks) return;
  passed_on_ = true;
  const bool terminal = ::isatty(STDERR_FILENO) != 0;  // on which the first rank may be drawing a line
  fmt::print(stderr, "{}{}: the ranks save and exit; a second signal ends them at once\n", terminal ? "\r\x1b[K" : "",
             Signals::name(asked_));
  ::kill(mpirun_, SIGUSR1);
}

// Kills the ranks. mpirun then cleans up and exits; if it does not, it is killed, which also kills the remaining ranks.
void Above::end_now() {
  for (const pid_t rank : children_of(mpirun_)) ::kill(rank, SIGKILL);
  ::kill(mpirun_, SIGTERM);
  for (const double until = now() + 3; now() < until;) {
    int status = 0;
    if (::waitpid(mpirun_, &status, WNOHANG) == mpirun_) {
      status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      return;
    }
    ::usleep(10000);
  }
  ::kill(mpirun_, SIGKILL);
  int status = 0;
  ::waitpid(mpirun_, &status, 0);
  status_ = 128 + SIGKILL;
}

void Above::read(Stream& stream) {
  std::array<char, 65536> part{};
  const ssize_t n = ::read(stream.fd, part.data(), part.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) stream.rest.append(part.data(), static_cast<size_t>(n));
  for (size_t end = 0; (end = stream.rest.find('\n')) != std::string::npos; stream.rest.erase(0, end + 1))
    line(stream, stream.rest.substr(0, end));
  if (n > 0) return;
  if (!stream.rest.empty()) line(stream, stream.rest);
  stream.over = true;
  if (stream.errors || stream.rank < 0) return;
  RankStory& story = ranks_[static_cast<uint32_t>(stream.rank)];
  story.gone = true;
  if (!story.end && !trouble_) trouble_ = now();
}

void Above::line(Stream& stream, const std::string& text) {
  if (stream.errors) return show(stream, text);
  const Json json = Json::parse_or_null(text);
  if (json.is_object()) message(stream, json);
}

void Above::message(Stream& stream, const Json& json) try {
  if (json.contains("stderr")) {
    stream.rank = static_cast<uint32_t>(json.at("stderr").integer());
    stream.errors = true;
    return;
  }
  if (json.contains("hello")) stream.rank = static_cast<uint32_t>(json.at("hello").integer());
  if (stream.rank < 0 || stream.rank >= what_.ranks) return;
  RankStory& story = ranks_[static_cast<uint32_t>(stream.rank)];
  story.connected = true;
  if (json.contains("pid")) story.pid = static_cast<pid_t>(json.at("pid").integer());
  if (json.contains("run")) run_ = json.at("run").text();
  if (json.contains("last")) story.last = json.at("last").text();
  if (json.contains("end")) story.end = static_cast<int>(json.at("end").integer());
  if (json.contains("error")) {
    story.error = static_cast<int>(json.at("error").integer());
    story.text = json.text_at("text");
    story.help = json.text_at("help");
    story.when = now();
    if (!trouble_) trouble_ = story.when;
  }
} catch (const JsonError&) {  // not a message of this version
}

void Above::show(const Stream& stream, const std::string& text) {
  std::string out = stream.rank > 0 ? fmt::format("rank {}: {}\n", stream.rank, text) : text + "\n";
  if (!text.empty()) ranks_[static_cast<uint32_t>(stream.rank)].last = text;
  for (size_t sent = 0; sent < out.size();) {
    const ssize_t n = ::write(STDERR_FILENO, out.data() + sent, out.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    sent += static_cast<size_t>(n);
  }
}

// Reports the cause if a rank failed. Returns the exit code.
int Above::outcome() {
  if (asked_ > 128) return asked_;
  bool well = ranks_.size() == what_.ranks;
  for (const auto& [rank, story] : ranks_) well = well && story.end && *story.end == *ranks_.at(0).end;
  if (well) {
    if (*status_ != 0)
      fmt::print(stderr, "warning: all ranks ended normally, but mpirun ended with {}\n{}", *status_, said_);
    return *ranks_.at(0).end;
  }
  Cause cause = cause_of(ranks_, what_.ranks, said_, *status_, memory_kills() > kills_before_);
  if (nobody_came_) cause.text = fmt::format("mpirun started no rank within {:g} s, and was ended", what_.timeout);
  fail(cause);
  return cause.exit;
}

void Above::fail(const Cause& cause) {
  std::string help = cause.help;
  if (!run_.empty()) {
    const std::string newest = settle(run_, cause.exit);
    help += help.empty() ? "" : "\n";
    help += newest.empty()
                ? fmt::format("{} has no checkpoint yet; logs of the ranks: {}/logs", run_, run_)
                : fmt::format(
                      "the last complete checkpoint is {}; resume with:  engine run {} {}\nlogs of the ranks: {}/logs",
                      newest, shell_word(run_), what_.again, run_);
  }
  print(Failure{cause.exit, cause.text, help});
}

}  // namespace

fs::path find_mpirun() {
  const char* path = std::getenv("PATH");
  std::string other;
  for (const char* name : {"mpirun", "mpirun.openmpi"}) {
    std::stringstream folders(path ? path : "/usr/bin:/bin");
    for (std::string folder; std::getline(folders, folder, ':');) {
      const fs::path file = fs::path(folder) / name;
      if (folder.empty() || ::access(file.c_str(), X_OK) != 0 || fs::is_directory(file)) continue;
      const std::string version = version_of(file);
      if (version.find("Open MPI") != std::string::npos) return file;
      other = fmt::format("{} is not from Open MPI: it says {}", file.string(), version.substr(0, version.find('\n')));
      break;  // like a shell, only the first of that name
    }
  }
  throw Error(Exit::environment,
              other.empty() ? "there is no mpirun on PATH, which --ranks needs to start the ranks" : other,
              "install Open MPI, on Debian and Ubuntu:  apt-get install openmpi-bin");
}

int launch(const Launch& what) {
  return Above(what).run();
}

}  // namespace eng
