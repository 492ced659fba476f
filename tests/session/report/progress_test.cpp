// SPDX-License-Identifier: Apache-2.0
#include "session/report/progress.hpp"

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
std::string shown(bool terminal, int64_t every, Use use) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
  {
    Outlet out(ends[1], "stderr");
    Progress progress(out, ends[1], terminal, every, 7);
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
  CHECK_THAT(step_text(s, 300, left), Catch::Contains("loss: - ") && Catch::Contains("mfu: - "));
  const Evaluation evaluation{3.1187, 245000, 21};
  const Saved saved{"run/checkpoints/step-00000224", 1 << 30, 4.1};
  for (const std::string& other : {eval_text(224, evaluation), saved_text(saved)}) {
    CHECK_FALSE(std::regex_search(other, std::regex("step (\\d+)|loss: (\\d+\\.\\d+)")));
  }
  CHECK(eval_text(224, evaluation) == "eval @224  loss 3.1187  ppl 22.62  (245000 tokens, 21s)");
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
  CHECK_THAT(live, Catch::Contains("\r\x1b[Knote\nstep 3/7 ") && Catch::Contains("\r\x1b[Kstep 7/7 "));
  CHECK(live.back() == '\n');
  // The end of a run is printed below its last line, once.
  const std::string ended = shown(true, 3, [&](Progress& progress) {
    use(progress);
    progress.finish();
    progress.line("done");
  });
  CHECK(ended.ends_with("\r\x1b[K" +
                        step_text(
                            [] {
                              Metrics m;
                              m.step = 7;
                              return m;
                            }(),
                            7, 0) +
                        "\ndone\n"));
}

}  // namespace progress_test
