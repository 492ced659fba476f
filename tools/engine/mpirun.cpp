// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/mpirun.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "session/plugins/program.hpp"
#include "tools/engine/loopback.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

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

struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw Error(Exit::environment, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    read = Fd(ends[0]), write = Fd(ends[1]);
  }
  Fd read, write;
};

// The output of `program --version`, or its beginning; nothing if it does not end.
std::optional<std::string> version_of(const fs::path& program) {
  using Clock = std::chrono::steady_clock;
  constexpr auto patience = std::chrono::seconds(10);
  constexpr size_t most = 16384;
  Pipe pipe;
  const pid_t pid = ::fork();
  if (pid < 0) throw Error(Exit::environment, fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (pid == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int null = ::open("/dev/null", O_RDWR);
    if (null < 0 || ::dup2(null, STDIN_FILENO) < 0 || ::dup2(pipe.write, STDOUT_FILENO) < 0 ||
        ::dup2(null, STDERR_FILENO) < 0)
      ::_exit(127);
    ::execl(program.c_str(), program.c_str(), "--version", nullptr);
    ::_exit(127);
  }
  ::setpgid(pid, pid);
  pipe.write = Fd();
  std::string out;
  bool over = false;
  for (const auto end = Clock::now() + patience; !over && out.size() < most;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd ready = {pipe.read, POLLIN, 0};
    const int n = left > 0 ? ::poll(&ready, 1, static_cast<int>(left)) : 0;
    if (n == 0) break;
    std::array<char, 4096> part{};
    const ssize_t got = n > 0 ? ::read(pipe.read, part.data(), part.size()) : -1;
    if (got < 0 && errno == EINTR) continue;
    over = got <= 0;
    if (got > 0) out.append(part.data(), static_cast<size_t>(got));
  }
  ::kill(-pid, SIGKILL);  // it has said what it has to say
  ::waitpid(pid, nullptr, 0);
  if (!over && out.size() < most) return std::nullopt;
  return out;
}

}  // namespace

Mpirun::Mpirun() : temporary_(temporary_folder()), shared_(shared_folder()) {}

std::vector<std::string> Mpirun::words(const fs::path& program, uint32_t ranks) const {
  std::vector<std::string> out = {program.string(),  "-n",        std::to_string(ranks),
                                  "--oversubscribe", "--bind-to", "none"};
  if (::geteuid() == 0) out.emplace_back("--allow-run-as-root");
  // Only this machine, inside any scheduler; no warnings about missing hardware.
  for (const char* word :
       {"--mca", "plm", "isolated", "--mca", "ras", "^slurm,gridengine,tm,lsf", "--mca", "oob_tcp_if_include", "lo",
        "--mca", "orte_abort_on_non_zero_status", "1", "--mca", "btl_base_warn_component_unused", "0"})
    out.emplace_back(word);
  // The ranks exchange bytes through shared memory alone. Other ways open ports on all interfaces.
  for (const char* word : {"--mca", "pml", "ob1", "--mca", "btl", "^tcp,ofi,openib,uct,usnic"}) out.emplace_back(word);
  out.insert(out.end(), {"--mca", "orte_tmpdir_base", temporary_->path().string()});
  if (shared_) out.insert(out.end(), {"--mca", "btl_vader_backing_directory", shared_->path().string()});
  out.push_back(program_file().string());
  return out;
}

void Mpirun::start(const fs::path& program, const std::vector<std::string>& arguments, Parent parent,
                   const std::vector<std::pair<std::string, std::string>>& variables, const sigset_t& mask) {
  std::vector<std::string> all = words(program, parent.ranks);
  all.insert(all.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  Pipe out, err;
  out_.emplace(std::move(out.read)), err_.emplace(std::move(err.read));
  const Fd loopback = loopback_library();
  const pid_t self = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw Error(Exit::environment, fmt::format("cannot start a process: {}", std::strerror(errno)));
  if (pid_ != 0) return;
  temporary_->hold();
  if (shared_) shared_->hold();
  // It has a separate process group, so that Ctrl-C reaches only this command, which asks the ranks to stop. SIGKILL
  // when this command dies in any way: a stopped process never gets to another signal.
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != self) ::_exit(127);
  parent.mpirun = ::getpid();
  ::setenv(Parent::variable, parent.text().c_str(), 1);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  preload_loopback(loopback);
  for (const int number : {SIGPIPE, SIGHUP, SIGXFSZ}) ::signal(number, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  const int in = ::open("/dev/null", O_RDONLY);
  if (in < 0 || ::dup2(in, STDIN_FILENO) < 0 || ::dup2(out.write, STDOUT_FILENO) < 0 ||
      ::dup2(err.write, STDERR_FILENO) < 0)
    ::_exit(127);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

std::optional<int> Mpirun::ended() {
  int status = 0;
  if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_)
    status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return status_;
}

void Mpirun::end(bool hard) {
  if (status_) return;
  for (const pid_t rank : children_of(pid_)) ::kill(rank, SIGKILL);
  ::kill(pid_, hard ? SIGKILL : SIGTERM);
  ::kill(pid_, SIGCONT);  // it may be stopped
}

std::vector<pid_t> own_children() {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  return children_of(::getpid());
}

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

fs::path find_mpirun() {
  const char* path = std::getenv("PATH");
  std::string other;
  for (const char* name : {"mpirun", "mpirun.openmpi"}) {
    std::stringstream folders(path ? path : "/usr/bin:/bin");
    for (std::string folder; std::getline(folders, folder, ':');) {
      const fs::path file = fs::path(folder) / name;
      if (folder.empty() || ::access(file.c_str(), X_OK) != 0 || fs::is_directory(file)) continue;
      const std::optional<std::string> version = version_of(file);
      if (version && version->find("Open MPI") != std::string::npos) return file;
      other = version ? fmt::format("{} is not from Open MPI: it says {}", file.string(),
                                    printable(version->substr(0, version->find('\n'))))
                      : fmt::format("{} --version does not end", file.string());
      break;  // like a shell, only the first of that name
    }
  }
  throw Error(Exit::environment,
              other.empty() ? "there is no mpirun on PATH, which --ranks needs to start the ranks" : other,
              "install Open MPI, on Debian and Ubuntu:  apt-get install openmpi-bin");
}

}  // namespace eng
