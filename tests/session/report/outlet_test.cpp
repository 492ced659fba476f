// SPDX-License-Identifier: Apache-2.0
#include "session/report/outlet.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <utility>

#include "tests/sanitized.hpp"

using namespace eng;

namespace outlet_test {
namespace {

using Clock = std::chrono::steady_clock;

struct Ends {
  Ends() {
    if (pipe2(fds.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  }
  ~Ends() {
    for (const int fd : fds)
      if (fd >= 0) close(fd);
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;
  void close_write() { close(std::exchange(fds[1], -1)); }
  std::string read_all() {
    std::string out;
    std::array<char, 4096> part{};
    for (ssize_t n = 0; (n = read(fds[0], part.data(), part.size())) > 0;) out.append(part.data(), size_t(n));
    return out;
  }
  std::array<int, 2> fds{-1, -1};
};

double seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

TEST_CASE("outlet: text comes complete and in order", "[outlet]") {
  Ends ends;
  std::string expected, got;
  std::thread reader;
  {
    Outlet out(ends.fds[1], "stderr");
    ends.close_write();
    reader = std::thread([&] { got = ends.read_all(); });
    for (int k = 0; k < 5000; ++k) {
      const std::string line = fmt::format("line {}\n", k);
      expected += line;
      out.put(line);
    }
  }
  reader.join();
  CHECK(got == expected);
}

TEST_CASE("outlet: a pipe that nobody reads holds nobody up, and says how much was dropped", "[outlet]") {
  Ends ends;
  const auto begin = Clock::now();
  std::string got;
  std::thread reader;
  constexpr int lines = 4000;
  const std::string line = std::string(999, 'x') + "\n";
  {
    Outlet out(ends.fds[1], "stderr");
    ends.close_write();
    for (int k = 0; k < lines; ++k) out.put(line);  // 4 MB; the backlog and the pipe hold less than 1.2 MB
    CHECK_FALSE(out.drain(0.05));
    CHECK(seconds(begin) < 5);
    reader = std::thread([&] { got = ends.read_all(); });
    CHECK(out.drain(10));
    out.put("after\n");
  }
  reader.join();
  const size_t note = got.find("note: ");
  REQUIRE(note != std::string::npos);
  CHECK(note % line.size() == 0);
  const size_t kept = note / line.size();
  CHECK(kept * line.size() >= Outlet::most - line.size());
  CHECK(kept * line.size() < Outlet::most + (size_t{1} << 18));
  CHECK(got.substr(note).find(fmt::format("note: {} lines (", lines - kept)) == 0);
  CHECK(got.substr(note).find(" were dropped here, because nobody read stderr\nafter\n") != std::string::npos);
}

TEST_CASE("outlet: the end of the process does not wait for a reader", "[outlet]") {
  Ends ends;
  const auto begin = Clock::now();
  {
    Outlet out(ends.fds[1], "stderr");
    for (int k = 0; k < 300; ++k) out.put(std::string(1000, 'x'));
    CHECK_FALSE(out.drain(100, [&] { return seconds(begin) > 0.2; }));
  }
  CHECK(seconds(begin) < Outlet::patience * patience);  // it does not wait again
  const auto again = Clock::now();
  {
    Outlet out(ends.fds[1], "stderr");
    for (int k = 0; k < 300; ++k) out.put(std::string(1000, 'x'));
  }
  CHECK(seconds(again) >= Outlet::patience);
  CHECK(seconds(again) < (Outlet::patience + 2) * patience);
}

TEST_CASE("outlet: a closed pipe is no error, and leaves the flags of the descriptor alone", "[outlet]") {
  Ends ends;
  const int flags = fcntl(ends.fds[1], F_GETFL);
  Outlet out(ends.fds[1], "stderr");
  out.put("one\n");
  CHECK(out.drain(10));
  CHECK(fcntl(ends.fds[1], F_GETFL) == flags);
  close(std::exchange(ends.fds[0], -1));
  const auto before = signal(SIGPIPE, SIG_IGN);
  out.put("two\n");
  CHECK(out.drain(10));
  signal(SIGPIPE, before);
}

}  // namespace outlet_test
