// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/plugin_test/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "core/base/error.hpp"
#include "session/config/failure.hpp"
#include "session/file.hpp"

namespace eng::plugin_test {
namespace {

using Clock = std::chrono::steady_clock;

// A record on the pipe: fields that end in NUL. A text of a verdict has no NUL, because it is printable.
constexpr char begun = 'b', told = 'v', ended = 'e';

void send(int fd, std::string record) {
  record += '\n';
  for (size_t at = 0; at < record.size();) {
    const ssize_t n = ::write(fd, record.data() + at, record.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) ::_exit(1);
    at += static_cast<size_t>(n);
  }
}

void limit(int what, uint64_t value) {
  rlimit now{};
  ::getrlimit(static_cast<decltype(RLIMIT_CPU)>(what), &now);
  now.rlim_cur = std::min<rlim_t>(value, now.rlim_max);
  ::setrlimit(static_cast<decltype(RLIMIT_CPU)>(what), &now);
}

constexpr bool sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return true;
#endif
#endif
  return false;
}

[[noreturn]] void be_child(int pipe, int out, int err, const Limits& limits, const std::string& of,
                           const std::function<void(const Receiver&)>& body) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ::dup2(nothing, 0), ::dup2(out, 1), ::dup2(err, 2);
  ::close(nothing), ::close(out), ::close(err);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, limits.file_bytes);
  limit(RLIMIT_CPU, static_cast<uint64_t>(limits.seconds * 8));
  if (!sanitized()) limit(RLIMIT_AS, limits.memory);
  const Receiver to{[&](const std::string& check) { send(pipe, begun + check); },
                    [&](const Verdict& v) {
                      send(pipe, std::string(1, told) + static_cast<char>('0' + static_cast<int>(v.outcome)) +
                                     std::to_string(v.check.size()) + ":" + v.check + v.text);
                    }};
  try {
    body(to);
  } catch (...) {
    const Failure failure = eng::failure(std::current_exception());
    to.put({of, "test", Outcome::fail, one_line(failure.text + (failure.help.empty() ? "" : " " + failure.help))});
  }
  send(pipe, std::string(1, ended));
  std::fflush(stdout), std::fflush(stderr);
  ::_exit(0);
}

std::string content(int fd) {
  std::string out(65536, '\0');
  const ssize_t n = ::pread(fd, out.data(), out.size(), 0);
  out.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return out;
}

// Takes the records from the front of `text`.
void take(std::string& text, const std::string& of, std::string& doing, bool& done,
          const std::function<void(const Verdict&)>& put) {
  for (size_t end; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
    const std::string record = text.substr(0, end);
    if (record[0] == begun) doing = record.substr(1);
    if (record[0] == ended) done = true;
    if (record[0] != told) continue;
    const size_t colon = record.find(':');
    if (colon == std::string::npos || colon < 3) continue;
    const size_t n = std::strtoul(record.c_str() + 2, nullptr, 10);
    put({of, record.substr(colon + 1, n), static_cast<Outcome>(record[1] - '0'),
         record.substr(std::min(colon + 1 + n, record.size()))});
    doing.clear();
  }
}

}  // namespace

Printed in_child(const std::string& of, const Limits& limits, const std::function<void(const Receiver&)>& body,
                 const std::function<void(const Verdict&)>& put) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(Exit::environment, "no pipe can be made");
  Fd from(ends[0]), to(ends[1]);
  Fd out(::memfd_create("stdout", MFD_CLOEXEC)), err(::memfd_create("stderr", MFD_CLOEXEC));
  std::fflush(stdout), std::fflush(stderr);
  const pid_t child = ::fork();
  if (child < 0) throw Error(Exit::environment, "no process can be started");
  if (child == 0) {
    ::close(ends[0]);
    be_child(ends[1], out, err, limits, of, body);
  }
  ::setpgid(child, child);
  to = Fd();
  const auto deadline = Clock::now() + std::chrono::duration<double>(limits.seconds);
  std::string text, doing = "start";
  bool done = false, late = false;
  while (!done && !late) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    late = left <= 0;
    pollfd ready{from, POLLIN, 0};
    if (late || ::poll(&ready, 1, static_cast<int>(std::min<int64_t>(left, 1000))) <= 0) continue;
    char some[4096];
    const ssize_t n = ::read(from, some, sizeof some);
    if (n == 0 || (n < 0 && errno != EINTR)) break;
    if (n > 0) text.append(some, static_cast<size_t>(n));
    take(text, of, doing, done, put);
  }
  if (late || done) ::kill(-child, SIGKILL);  // what it left running goes with it
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  ::kill(-child, SIGKILL);
  const Printed printed{content(out), content(err)};
  if (done) return printed;
  const std::string said = one_line(printed.err.substr(printed.err.size() - std::min<size_t>(printed.err.size(), 300)));
  const std::string more = said.empty() ? "" : "; it wrote: " + said;
  const std::string how = late ? fmt::format("did not return within {:g} s", limits.seconds)
                          : WIFSIGNALED(status)
                              ? fmt::format("died of SIG{}{}", sigabbrev_np(WTERMSIG(status)), more)
                              : fmt::format("ended the process with exit code {}{}", WEXITSTATUS(status), more);
  put({of, doing.empty() ? "test" : doing, Outcome::fail, how});
  return printed;
}

}  // namespace eng::plugin_test
