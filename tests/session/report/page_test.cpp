// SPDX-License-Identifier: Apache-2.0
// The inputs, drawings and text of `engine report`. tools/report-check opens the pages in a browser.
#include "session/report/page.hpp"

#include <cmath>
#include <regex>

#include "core/base/error.hpp"
#include "session/report/chart.hpp"
#include "session/report/summary.hpp"
#include "tests/cli/harness.hpp"

using namespace eng;
using Catch::Contains;
using cli::Scratch;

namespace {

std::string line(int step, double loss, int attempt = 1, const std::string& more = "") {
  return fmt::format(R"({{"v":1,"step":{},"loss":{},"lr":1e-3,"step_seconds":2,"wait_seconds":{{"data":0.5,"comm":0}},)"
                     R"("host_peak_bytes":1048576,"attempt":{}{}}})"
                     "\n",
                     step, loss, attempt, more);
}

History history(const Scratch& scratch, const std::string& name, const std::string& metrics) {
  cli::fs::create_directories(scratch / name);
  scratch.write(name + "/metrics.jsonl", metrics);
  return read_history(scratch / name);
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

Curve numbers(std::vector<double> values) {
  Curve out{0, "run", {}, std::move(values)};
  for (size_t k = 0; k < out.values.size(); ++k) out.steps.push_back(int64_t(k) + 1);
  return out;
}

}  // namespace

TEST_CASE("history: steps of a resumed run count once; damaged lines are counted", "[page]") {
  Scratch scratch;
  std::string text = line(1, 9) + line(2, 8) + line(3, 7) + line(4, 6) + "\nnot json\n" + line(3, 5, 2) +
                     line(4, 4, 2) + R"({"v":1,"loss":1})" + "\n" + line(5, 3, 2);
  const History run = history(scratch, "run", text + R"({"v":1,"step":6,"lo)");
  CHECK(run.steps == 5);
  CHECK(run.unreadable == 3);
  CHECK(run.starts == std::vector<int64_t>{1, 3});
  REQUIRE(run.find("loss"));
  CHECK(run.find("loss")->steps == std::vector<int64_t>{1, 2, 3, 4, 5});
  CHECK(run.find("loss")->values == std::vector<double>{9, 8, 5, 4, 3});
  CHECK(run.find("wait_seconds/data")->values.size() == 5);
  CHECK(!run.find("attempt"));
  CHECK(history(scratch, "empty", "").steps == 0);
  CHECK_THROWS_WITH(read_history(scratch / "nowhere"), Contains("is not a run"));
}

TEST_CASE("history: terms and observed values that only some steps have", "[page]") {
  Scratch scratch;
  const History run = history(scratch, "run",
                              line(1, 9) + line(2, 8, 1, R"(,"terms":{"z":0.5},"observed":{"a/b":null})") +
                                  line(3, 7, 1, R"(,"terms":{"z":0.25},"observed":{"a/b":4},"eval_loss":6)"));
  CHECK(run.find("terms/z")->steps == std::vector<int64_t>{2, 3});
  CHECK(run.find("observed/a/b")->steps == std::vector<int64_t>{3});
  const std::string page = report_page({run});
  CHECK_THAT(page, Contains("<h2>Terms of the loss</h2>") && Contains("<h2>Observed</h2>") && Contains(">a/b <small>"));
  CHECK_THAT(page, Contains("marks: evaluation") && Contains("<circle"));
}

TEST_CASE("chart: every point of a short line; the extremes of a long one", "[page]") {
  const Drawing few = draw({"t", Figures::plain, {numbers({1, 4, 2})}, {}, {}});
  CHECK_THAT(few.svg, Contains(">step</text>"));  // what the axis counts
  CHECK_THAT(few.svg, Contains("data-v=\"1 1 2 4 3 2\"") && !Contains("nan") && !Contains("inf"));
  CHECK_FALSE(few.logarithmic);
  CHECK_FALSE(few.means);
  std::vector<double> values(100000);
  for (size_t k = 0; k < values.size(); ++k) values[k] = 5 + std::sin(double(k));
  values[31234] = 40, values[77777] = -17;
  const Drawing many = draw({"t", Figures::plain, {numbers(values)}, {}, {}, true});
  CHECK_THAT(many.svg, Contains(" 31235 40 ") && Contains(" 77778 -17 ") && Contains("\"1 5 ") && Contains("100000 "));
  CHECK(many.svg.size() < 40000);
  CHECK(many.means);
  // A range of more than one and a half decades, all above 0: logarithmic.
  CHECK(draw({"t", Figures::plain, {numbers({0.001, 1})}, {}, {}}).logarithmic);
  CHECK_FALSE(draw({"t", Figures::plain, {numbers({0, 1})}, {}, {}}).logarithmic);
}

TEST_CASE("chart: lines of one value, of none, and of the largest numbers", "[page]") {
  CHECK(draw({"t", Figures::plain, {}, {}, {}}).svg.empty());
  CHECK(draw({"t", Figures::plain, {numbers({})}, {}, {{0, "run", {0}, {3}}}}).svg.empty());
  for (const std::vector<double>& values :
       {std::vector<double>{7}, {0}, {0, 0, 0}, {-3, -3}, {1e308, -1e308}, {5e-324, 5e-324}, {1e-300, 1e300}}) {
    const std::string svg = draw({"t", Figures::plain, {numbers(values)}, {}, {}}).svg;
    INFO(svg);
    CHECK(!svg.empty());
    CHECK_THAT(svg, !Contains("nan") && !Contains("inf"));
    CHECK(svg.size() < 6000);
  }
  // A level is drawn within the picture.
  const std::string svg = draw({"t", Figures::bytes, {numbers({1e6, 2e6})}, {}, {{0, "run", {0}, {8e6}}}}).svg;
  CHECK_THAT(svg, Contains("class=\"r0 level\"") && Contains("MiB"));
  const std::regex points("[ML](-?[0-9.]+) (-?[0-9.]+)");
  for (std::sregex_iterator it(svg.begin(), svg.end(), points), end; it != end; ++it) {
    CHECK(std::stod((*it)[1]) >= 0);
    CHECK((std::stod((*it)[2]) >= 0 && std::stod((*it)[2]) <= 260));
  }
}

TEST_CASE("page: names are text, and nothing is asked of a network", "[page]") {
  Scratch scratch;
  const std::string odd = "<img src=x onerror=alert(1)>\"'&\x01";
  History run = history(scratch, "run", line(1, 9) + line(2, 8, 1, R"(,"observed":{"</script><b>":1})"));
  run.title = odd;
  run.settings["train.steps"] = "\"<b>\"";
  History other = run;
  other.title = "b", other.settings["train.steps"] = "2";
  const std::string page = report_page({run, other});
  CHECK(page.starts_with(page_mark));
  CHECK(page.ends_with("</html>\n"));
  CHECK_THAT(page,
             Contains("&lt;img src=x onerror=alert(1)&gt;&quot;&#39;&amp;?") && !Contains("<img") && !Contains("<b>"));
  CHECK_THAT(page, !Contains("http:") && !Contains("https:") && !Contains("url(") && !Contains("@import"));
  CHECK_THAT(page, Contains("default-src 'none'") && Contains("Keys that differ") && Contains("<th>train.steps</th>"));
  CHECK(count(page, "<script") == 1);
  CHECK(count(page, "</script>") == 1);
  CHECK(count(page, "<figure>") == count(page, "</figure>"));
  CHECK(count(page, "<svg") == count(page, "</svg>"));
}

TEST_CASE("page: every colour has a value on light and dark pages and on paper", "[page]") {
  Scratch scratch;
  const std::string page = report_page({history(scratch, "run", line(1, 9))});
  const std::regex named("var\\(--([a-z0-9]+)\\)");
  size_t n = 0;
  for (std::sregex_iterator it(page.begin(), page.end(), named), end; it != end; ++it, ++n) {
    INFO((*it)[1]);
    CHECK(count(page, "--" + (*it)[1].str() + ": ") == 3);
  }
  CHECK(n > 20);
}

TEST_CASE("page: runs over each other, each in the legend; those without steps are reported", "[page]") {
  Scratch scratch;
  const std::string page =
      report_page({history(scratch, "first", line(1, 9) + line(2, 8)), history(scratch, "none", ""),
                   history(scratch, "second", line(1, 7) + "{\n" + line(2, 6))});
  CHECK_THAT(page, Contains("/none has no step yet and is not shown.") &&
                       Contains("/second: lines of metrics.jsonl that are no records of a step: 1."));
  CHECK_THAT(page, Contains("<h1>2 runs</h1>") && Contains("data-v=\"1 9 2 8\"") && Contains("data-v=\"1 7 2 6\""));
  CHECK(count(page, "<li>") == 2);
  CHECK_THAT(page, Contains("Waiting for data") && !Contains("Waiting for other ranks"));  // zeros are not drawn
}

TEST_CASE("page: the configuration of each run, folded", "[page]") {
  Scratch scratch;
  History run = history(scratch, "run", line(1, 9));
  CHECK_THAT(report_page({run}), !Contains("Configurations") && !Contains("<details"));
  run.title = "a";
  run.settings = {{"comm.describe.latency", "1.0"}, {"train.seed", "1"}, {"train.steps", "8"}};
  History other = run;
  other.title = "b", other.settings["train.steps"] = "16", other.state = Json::parse(R"({"why":"early stop: enough"})");
  const std::string page = report_page({run, other});
  CHECK_THAT(page, Contains("<details><summary>a</summary><pre>[comm]\ndescribe.latency = 1.0\n\n[train]\nseed = 1\n"
                            "steps = 8\n</pre></details>") &&
                       Contains("<summary>b</summary><pre>[comm]\n") && Contains("seed = 1\nsteps = 16\n</pre>"));
  CHECK_THAT(page, Contains("<th>train.steps</th><td>8</td><td>16</td>") && !Contains("<th>train.seed</th>"));
  CHECK_THAT(page, Contains("<th>ended early</th><td></td><td>early stop: enough</td>"));
}

TEST_CASE("summary: what a run came to", "[page]") {
  Scratch scratch;
  cli::fs::create_directories(scratch / "run");
  scratch.write("run/run.json", R"({"ranks":2,"planned":{"host_peak_bytes":2097152}})");
  const auto rows = summary({history(scratch, "run", line(1, 9) + line(2, 3) + line(3, 4, 2))});
  const auto of = [&](const std::string& name) {
    for (const auto& [key, values] : rows)
      if (key == name) return values.at(0);
    return std::string("no row");
  };
  CHECK(of("steps") == "3");
  CHECK(of("loss, last") == "4");
  CHECK(of("loss, lowest") == "3 at step 2");
  CHECK(of("evaluation, last") == "no row");
  CHECK(of("time of all steps") == "6.0 s");
  CHECK(of("of it, waiting for data") == "25 %");
  CHECK(of("memory of the process, peak") == "1.0 MiB (planned 2.0 MiB)");
  CHECK(of("resumed") == "at steps 3");
  CHECK(of("ranks") == "2");
}
