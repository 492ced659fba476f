// SPDX-License-Identifier: Apache-2.0
#include "session/report/progress.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <regex>

using namespace eng;

namespace progress_test {
namespace {

std::string drain(int fd) {
  std::string out;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) out.append(buffer, size_t(n));
  return out;
}

template <class Use>
std::string shown(bool terminal, int64_t every, Use use, bool colour = false) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
  {
    Outlet out(ends[1], "stderr");
    Progress progress(out, ends[1], {terminal, colour}, every, 7);
    use(progress);
  }
  close(ends[1]);
  const std::string text = drain(ends[0]);
  close(ends[0]);
  return text;
}

}  // namespace

TEST_CASE("progress: the line that users' expressions match", "[progress]") {
  Metrics s;
  s.step = 50;
  s.loss = 6.10341;
  s.lr = 1e-4;
  s.grad_norm = 1.87;
  s.tokens_per_second = 3610.2;
  s.mfu = 0.393;
  s.host_peak_bytes = uint64_t(1.2 * 1024 * 1024 * 1024);
  s.step_seconds = 1;
  const double left = 18 * 3600 + 5 * 60;
  const std::string text = step_text(s, 300, left);
  s.own_memory = true, s.device_peak_bytes = uint64_t(39) << 30;
  CHECK_THAT(step_text(s, 300, left), Catch::Contains(" mem: 39.0GiB host: 1.2GiB wait: "));
  CHECK(text ==
        "step 50/300 loss: 6.1034 lr: 1.00e-04 grad_norm: 1.87 tok/s: 3610 mfu: 39.3% mem: 1.2GiB wait: 0% left: "
        "18h05m");
  std::smatch match;
  REQUIRE(std::regex_search(text, match, std::regex("step (\\d+)")));
  CHECK(match[1] == "50");
  REQUIRE(std::regex_search(text, match, std::regex("loss: (\\d+\\.\\d+)")));
  CHECK(match[1] == "6.1034");
  // Terms and what is observed do not look like the loss.
  s.terms = {{"cross_entropy", 6.1, true}, {"z_loss", 34.125, true}};
  s.observed = {{"stats.a", 1.5, true}, {"stats.b", 2.5, false}};
  const std::string more = step_text(s, 300, left);
  CHECK_THAT(more, Catch::Contains("loss: 6.1034 cross_entropy=6.1 z_loss=34.12 lr: "));
  CHECK_THAT(more, Catch::Contains("grad_norm: 1.87 stats.a=1.5 tok/s: "));
  const std::regex loss("loss: (\\d+\\.\\d+)");
  CHECK(std::distance(std::sregex_iterator(more.begin(), more.end(), loss), std::sregex_iterator()) == 1);
  s.loss = NAN;
  s.mfu = NAN;
  CHECK_THAT(step_text(s, 300, left), Catch::Contains("loss: - ") && !Catch::Contains("mfu"));
  const Evaluation evaluation{3.1187, 245000, 21};
  const Saved saved{"run/checkpoints/step-00000224", 1 << 30, 4.1};
  CHECK_FALSE(std::regex_search(saved_text(saved), std::regex("loss|step (\\d+)")));
  CHECK(eval_text(224, evaluation) == "eval step 224  loss: 3.1187  ppl 22.62  (245000 tokens, 21s)");
  CHECK(saved_text(saved) == "saved step-00000224  1.0GiB in 4.1s");
}

TEST_CASE("progress: durations and sizes", "[progress]") {
  CHECK(duration_text(0.44) == "0.4s");
  CHECK(duration_text(9.96) == "10s");
  CHECK(duration_text(59.6) == "1m00s");
  CHECK(duration_text(725) == "12m05s");
  CHECK(duration_text(3599.6) == "1h00m");
  CHECK(duration_text(76 * 3600) == "3d04h");
  CHECK(duration_text(INFINITY) == "-");
  CHECK(duration_text(-1) == "-");
  CHECK(size_text(0) == "0B");
  CHECK(size_text(1023) == "1023B");
  CHECK(size_text(1024) == "1.0KiB");
  CHECK(size_text((1 << 20) - 1) == "1.0MiB");
  CHECK(size_text(uint64_t(5) << 50) == "5120.0TiB");
}

TEST_CASE("progress: plain lines in a pipe, one live line on a terminal", "[progress]") {
  const auto use = [](Progress& progress) {
    for (int64_t k = 1; k <= 7; ++k) {
      Metrics m;
      m.step = k;
      progress.step(m, 0);
      if (k == 3) progress.line("note");
    }
  };
  const std::string plain = shown(false, 3, use);
  CHECK(plain.find('\r') == std::string::npos);
  CHECK(std::count(plain.begin(), plain.end(), '\n') == 5);  // 1, 3, note, 6, 7
  for (const char* part : {"step 1/7 ", "step 3/7 ", "\nnote\n", "step 6/7 ", "step 7/7 "}) {
    CHECK_THAT(plain, Catch::Contains(part));
  }
  const std::string live = shown(true, 3, use);
  CHECK(std::count(live.begin(), live.end(), '\n') == 2);  // after the note and at the end
  CHECK_THAT(live, Catch::Contains("\r\x1b[Knote\nstep 3/7 [") && Catch::Contains("\r\x1b[Kstep 7/7 ["));
  CHECK(live.back() == '\n');
  CHECK(live.find("\x1b[0m") == std::string::npos);
  CHECK_THAT(shown(true, 3, use, true),
             Catch::Contains("\x1b[36m[====") && Catch::Contains("loss: \x1b[1m0.0000\x1b[0m "));
  // The end of a run is printed below its last line, once.
  const std::string ended = shown(true, 3, [&](Progress& progress) {
    use(progress);
    progress.finish();
    progress.line("done");
  });
  Metrics last;
  last.step = 7;
  CHECK(ended.ends_with("\r\x1b[K" + live_text(step_text(last, 7, 0), 7, 7, 119, false) + "\ndone\n"));
}

TEST_CASE("progress: the bar has what is left of the line", "[progress]") {
  const std::string text = "step 50/300 loss: 6.1034 lr: 1.00e-04";
  CHECK(live_text(text, 50, 300, 60, false) == "step 50/300 [===>                ] loss: 6.1034 lr: 1.00e-04");
  CHECK(live_text(text, 0, 300, 48, false) == "step 50/300 [>       ] loss: 6.1034 lr: 1.00e-04");
  CHECK(live_text(text, 300, 300, 48, false) == "step 50/300 [========] loss: 6.1034 lr: 1.00e-04");
  CHECK(live_text(text, 50, 300, 47, false) == text);  // too narrow for a bar
  CHECK(live_text(text, 50, 300, 20, false) == "step 50/300 loss: 6.");
  CHECK(live_text(text, 50, 300, 1000, false).size() == text.size() + 33);
  for (size_t columns = 1; columns < 200; ++columns) {
    CHECK(live_text(text, 50, 300, columns, false).size() <= columns);
    // Colours take no room: without them the text is the same.
    const std::string colour = live_text(text, 50, 300, columns, true);
    CHECK(std::regex_replace(colour, std::regex("\x1b\\[[0-9]+m"), "") == live_text(text, 50, 300, columns, false));
  }
  CHECK(live_text("step 5/9 loss: 3.2 lr: 1e-3 skipped: overflow", 5, 9, 45, true) ==
        "step 5/9 loss: \x1b[1m3.2\x1b[0m lr: 1e-3 \x1b[33mskipped: overflow\x1b[0m");
  CHECK(look_of(-1).terminal == false);
}

TEST_CASE("progress: no colours where they are not wanted", "[progress]") {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(terminal >= 0);
  REQUIRE(grantpt(terminal) == 0);
  REQUIRE(unlockpt(terminal) == 0);
  const int fd = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  REQUIRE(fd >= 0);
  const auto look = [&](const char* term, const char* no_colour) {
    const char *before = std::getenv("TERM"), *plain = std::getenv("NO_COLOR");
    const std::string old_term = before ? before : "", old_plain = plain ? plain : "";
    setenv("TERM", term, 1);
    setenv("NO_COLOR", no_colour, 1);
    const Look out = look_of(fd);
    before ? setenv("TERM", old_term.c_str(), 1) : unsetenv("TERM");
    plain ? setenv("NO_COLOR", old_plain.c_str(), 1) : unsetenv("NO_COLOR");
    return std::pair(out.terminal, out.colour);
  };
  CHECK(look("xterm-256color", "") == std::pair(true, true));
  CHECK(look("xterm-256color", "1") == std::pair(true, false));
  CHECK(look("dumb", "") == std::pair(false, false));
  CHECK(look("", "") == std::pair(false, false));
  close(fd);
  close(terminal);
}

}  // namespace progress_test
