// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/launch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <random>

#include "core/base/error.hpp"
#include "session/checkpoint/checkpoint.hpp"
#include "session/checkpoint/memory_copies.hpp"
#include "session/json.hpp"
#include "session/ranks/signals.hpp"
#include "session/report/outlet.hpp"
#include "session/run/run_dir.hpp"
#include "tools/engine/command.hpp"
#include "tools/engine/mpirun.hpp"

namespace eng {
namespace {

using Clock = std::chrono::steady_clock;

// After a rank has ended or failed, mpirun ends the others in about two seconds. This is the maximum.
constexpr double patience = 7;
// The seconds that mpirun has to remove its files after it was told to end. Afterwards it is killed.
constexpr double time_to_tidy = 3;

// Seconds between two calls of Launch::watch.
constexpr double time_to_look = 5;

// A rank's line without an end, and a message of a rank, have at most so many bytes. What is longer is cut, or refused.
constexpr size_t longest_line = size_t{1} << 16, longest_message = size_t{1} << 20;

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
  Above(const Launch& what, OwnSignals& signals) : what_(what), signals_(signals) {}
  LaunchEnd run();

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }
  void start(const std::filesystem::path& mpirun);
  void turn();
  void take_signal();
  void take_rank();
  bool take_output(int fd, bool errors);
  void pass_on();
  void end_now();
  void look_at_time();
  void read(Stream& stream);
  void line(Stream& stream, const std::string& text);
  void message(Stream& stream, const Json& json);
  void show(const Stream& stream, const std::string& text);
  LaunchEnd outcome();

  const Launch& what_;
  Clock::time_point began_ = Clock::now();
  OwnSignals& signals_;
  Mpirun mpirun_;
  Outlet shown_{STDERR_FILENO, "stderr"}, out_{STDOUT_FILENO, "stdout"};
  std::string said_;  // by mpirun itself
  std::optional<Fd> listener_;
  bool out_open_ = true, err_open_ = true;  // of mpirun
  std::list<Stream> streams_;
  std::map<uint32_t, RankStory> ranks_;
  std::string run_;  // its directory
  int asked_ = 0, urgent_ = 0;
  bool passed_on_ = false, nobody_came_ = false;
  double looked_ = 0;              // the time at which Launch::watch was called
  std::optional<double> trouble_;  // the time at which a rank ended or failed
  std::optional<double> ending_;   // the time at which mpirun was told to end
  std::optional<int> status_;      // of mpirun
  int64_t kills_before_ = memory_kills();
};

void Above::start(const std::filesystem::path& mpirun) {
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
  mpirun_.start(mpirun, what_.arguments, parent, what_.variables, signals_.before());
}

LaunchEnd Above::run() {
  start(find_mpirun());
  while (!status_) turn();
  // Reads what is still in the pipes.
  for (const double until = now() + 1; now() < until && (!streams_.empty() || out_open_ || err_open_);) turn();
  LaunchEnd end = outcome();
  const auto again = [this] {
    take_signal();
    return urgent_ > 1 || asked_ > 128;
  };
  out_.drain(again() ? 0 : Outlet::patience, again);
  shown_.drain(again() ? 0 : Outlet::patience, again);
  end.asked = asked_ != 0;
  return end;
}

// Waits for an event, at most 0.2 s, and handles it. Nothing else in the loop waits: what the ranks write is read at
// once, and it is an Outlet that waits for whoever reads it.
void Above::turn() {
  std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0},
                             {*listener_, POLLIN, 0},
                             {out_open_ ? mpirun_.out() : -1, POLLIN, 0},
                             {err_open_ ? mpirun_.err() : -1, POLLIN, 0}};
  for (const Stream& stream : streams_) fds.push_back({stream.fd, POLLIN, 0});
  if (::poll(fds.data(), fds.size(), status_ ? 20 : 200) < 0 && errno != EINTR)
    throw Error(Exit::bug, fmt::format("poll: {}", std::strerror(errno)));
  if (fds[0].revents) take_signal();
  size_t k = 4;
  for (auto stream = streams_.begin(); k < fds.size(); ++k, ++stream)
    if (fds[k].revents) read(*stream);
  if (fds[1].revents) take_rank();
  if (fds[2].revents) out_open_ = take_output(mpirun_.out(), false);
  if (fds[3].revents) err_open_ = take_output(mpirun_.err(), true);
  streams_.remove_if([](const Stream& stream) { return stream.over; });
  if (!status_) look_at_time();
}

void Above::look_at_time() {
  status_ = mpirun_.ended();
  if (status_) return;
  pass_on();
  if (what_.watch && !run_.empty() && now() - looked_ > time_to_look) {
    looked_ = now();
    shown_.put(what_.watch(run_));
  }
  if (ending_) {
    if (now() - *ending_ > time_to_tidy) mpirun_.end(true);
  } else if (ranks_.empty() && now() > what_.timeout) {
    nobody_came_ = true;
    end_now();
  } else if (trouble_ && now() - *trouble_ > patience) {
    end_now();
  }
}

void Above::take_rank() {
  const int fd = ::accept4(*listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  ucred who{};
  socklen_t size = sizeof(who);
  if (fd < 0)
    ::usleep(1000);  // no more descriptors: the rank waits
  else if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == ::geteuid())
    streams_.emplace_back(fd);
  else
    ::close(fd);
}

// Returns false at the end of the file.
bool Above::take_output(int fd, bool errors) {
  std::array<char, 65536> part{};
  const ssize_t n = ::read(fd, part.data(), part.size());
  if (n <= 0) return n < 0 && errno == EINTR;
  const std::string_view text(part.data(), static_cast<size_t>(n));
  if (!errors)
    out_.put(text);
  else if (said_.size() < longest_line)
    said_.append(text);
  return true;
}

void Above::take_signal() {
  while (const int number = signals_.next()) {
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
  shown_.put(fmt::format("{}{}: the ranks save and exit; a second signal ends them at once\n",
                         terminal ? "\r\x1b[K" : "", Signals::name(asked_)));
  ::kill(mpirun_.pid(), SIGUSR1);
}

// Kills the ranks. mpirun then cleans up and exits; if it does not in time, it is killed.
void Above::end_now() {
  if (!ending_) ending_ = now();
  mpirun_.end(false);
}

void Above::read(Stream& stream) {
  std::array<char, 65536> part{};
  const ssize_t n = ::read(stream.fd, part.data(), part.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) stream.rest.append(part.data(), static_cast<size_t>(n));
  size_t begin = 0;
  for (size_t end = 0; (end = stream.rest.find('\n', begin)) != std::string::npos; begin = end + 1)
    line(stream, stream.rest.substr(begin, end - begin));
  stream.rest.erase(0, begin);
  if (stream.errors && stream.rest.size() > longest_line) {
    line(stream, stream.rest);
    stream.rest.clear();
  }
  if (!stream.errors && stream.rest.size() > longest_message) stream.over = true;
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
  for (const char* key : {"stderr", "hello"}) {
    if (!json.contains(key)) continue;
    const int64_t rank = json.at(key).integer();
    if (rank < 0 || rank >= what_.ranks) {  // another process of this user, and no rank
      stream.over = true;
      return;
    }
    stream.rank = rank;
    stream.errors = *key == 's';
  }
  if (stream.rank < 0 || stream.errors) return;
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
  const std::string out = stream.rank > 0 ? fmt::format("rank {}: {}\n", stream.rank, text) : text + "\n";
  if (!text.empty()) ranks_[static_cast<uint32_t>(stream.rank)].last = text;
  shown_.put(out);
}

// Reports the cause if a rank failed.
LaunchEnd Above::outcome() {
  LaunchEnd end;
  end.run = run_, end.asked = asked_ != 0;
  if (asked_ > 128) {
    end.exit = asked_;
    return end;
  }
  bool well = ranks_.size() == what_.ranks;
  for (const auto& [rank, story] : ranks_) well = well && story.end && *story.end == *ranks_.at(0).end;
  if (well) {
    if (*status_ != 0)
      shown_.put(fmt::format("warning: all ranks ended normally, but mpirun ended with {}\n{}\n", *status_,
                             printable_lines(said_)));
    end.exit = *ranks_.at(0).end;
    return end;
  }
  end.cause = cause_of(ranks_, what_.ranks, said_, *status_, memory_kills() > kills_before_);
  if (nobody_came_) end.cause->text = fmt::format("mpirun started no rank within {:g} s, and was ended", what_.timeout);
  end.exit = end.cause->exit;
  if (!run_.empty()) end.newest = settle(run_, end.exit);
  if (!run_.empty() && what_.copies)
    if (const int64_t step = newest_in_memory(what_.copies(run_), checkpoint_step(end.newest).value_or(-1)); step >= 0)
      end.in_memory = checkpoint_name(step);
  shown_.put(what_.failed ? what_.failed(end) : failure_text(what_, end));
  return end;
}

}  // namespace

std::string failure_text(const Launch& what, const LaunchEnd& end, const std::string& more) {
  std::string help = end.cause->help;
  const auto add = [&](const std::string& line) { help += (help.empty() ? "" : "\n") + line; };
  if (!more.empty()) add(more);
  if (!end.in_memory.empty())
    add(fmt::format("{} is in memory ({}); a run that is resumed begins there", end.in_memory,
                    what.copies(end.run).string()));
  if (!end.run.empty()) {
    add(end.newest.empty()
            ? fmt::format("{} has no checkpoint yet; logs of the ranks: {}/logs", end.run, end.run)
            : fmt::format(
                  "the last complete checkpoint is {}; resume with:  engine {} {} {}\nlogs of the ranks: {}/logs",
                  end.newest, what.verb, shell_word(end.run), what.again, end.run));
  }
  return text_of(Failure{end.cause->exit, printable_lines(end.cause->text), printable_lines(help)});
}

LaunchEnd launch(const Launch& what, OwnSignals& signals) {
  return Above(what, signals).run();
}

int launch(const Launch& what) {
  OwnSignals signals;
  return launch(what, signals).exit;
}

}  // namespace eng
