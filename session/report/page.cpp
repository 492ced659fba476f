// SPDX-License-Identifier: Apache-2.0
#include "session/report/page.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "charts/page.hpp"
#include "session/page_text.hpp"
#include "session/report/chart.hpp"
#include "session/report/summary.hpp"
#include "session/stamp.hpp"
#include "session/version.hpp"

namespace eng {
namespace {

using Runs = std::vector<History>;
constexpr size_t most_charts = 240;

// The values of a series divided by those of another at the same steps.
Series shares(const Series& part, const Series& whole) {
  Series out{part.name, {}, {}};
  size_t at = 0;
  for (size_t k = 0; k < part.steps.size(); ++k) {
    while (at < whole.steps.size() && whole.steps[at] < part.steps[k]) ++at;
    if (at == whole.steps.size() || whole.steps[at] != part.steps[k] || whole.values[at] <= 0) continue;
    out.steps.push_back(part.steps[k]), out.values.push_back(part.values[k] / whole.values[at]);
  }
  return out;
}

bool only_zeros(const Series& series) {
  return std::all_of(series.values.begin(), series.values.end(), [](double v) { return v == 0; });
}

struct Page {
  const Runs& runs;
  std::string out = {};
  size_t charts = 0;

  // The series of this name of all runs.
  std::vector<Curve> lines(const std::string& name, bool zeros = true) const {
    std::vector<Curve> all;
    for (size_t r = 0; r < runs.size(); ++r)
      if (const Series* one = runs[r].find(name); one && (zeros || !only_zeros(*one)))
        all.push_back({r, runs[r].title, one->steps, one->values});
    return all;
  }

  void figure(const Chart& chart, const std::string& more = "") {
    if (charts >= most_charts) return;
    const Drawing drawing = draw(chart);
    if (drawing.svg.empty()) return;
    ++charts;
    std::string small = more;
    const auto say = [&](const std::string& text) { small += (small.empty() ? "" : "; ") + text; };
    if (drawing.means) say("bold: the mean of neighbouring steps");
    if (drawing.logarithmic) say("logarithmic");
    out += fmt::format("<figure><figcaption>{} <small>{}</small></figcaption>\n{}<output></output></figure>\n",
                       escaped(chart.title), escaped(small), drawing.svg);
  }

  void simple(const std::string& title, const std::string& name, Figures unit = Figures::plain, bool smooth = false) {
    figure({title, unit, lines(name), {}, {}, smooth});
  }

  void memory(const std::string& title, const std::string& name) {
    Chart chart{title, Figures::bytes, lines(name, false), {}, {}};
    for (size_t r = 0; r < runs.size(); ++r)
      if (const Json& planned = runs[r].record.get("planned").get(name); planned.is_number() && planned.number() > 0)
        chart.levels.push_back({r, runs[r].title, {0}, {planned.number()}});
    figure(chart, chart.levels.empty() ? "" : "dotted: as planned");
  }

  void wait(const std::string& title, const std::string& name) {
    Chart chart{title, Figures::percent, {}, {}, {}};
    for (size_t r = 0; r < runs.size(); ++r) {
      const Series *part = runs[r].find(name), *whole = runs[r].find("step_seconds");
      if (!part || !whole || only_zeros(*part)) continue;
      Series share = shares(*part, *whole);
      chart.lines.push_back({r, runs[r].title, std::move(share.steps), std::move(share.values)});
    }
    figure(chart, "share of the step");
  }

  // Everything else that the lines hold, by the first part of its name.
  void others() {
    static const std::set<std::string> shown = {
        "loss",       "eval_loss",    "lr",           "grad_norm",         "tokens_per_second",
        "mfu",        "step_seconds", "wait_seconds", "device_peak_bytes", "host_peak_bytes",
        "loss_scale", "tokens"};
    std::vector<std::pair<std::string, std::vector<std::string>>> heads;  // with their names, in order
    std::unordered_map<std::string, size_t> place;
    std::unordered_set<std::string> known;
    for (const History& run : runs)
      for (const Series& one : run.series) {
        const std::string head = one.name.substr(0, one.name.find('/'));
        if (shown.count(head) || !known.insert(one.name).second) continue;
        const auto [at, added] = place.emplace(head, heads.size());
        if (added) heads.push_back({head, {}});
        heads[at->second].second.push_back(one.name);
      }
    for (const auto& [of, names] : heads) {
      if (charts >= most_charts) break;
      out += fmt::format("<h2>{}</h2>\n<div class=\"charts\">\n", of == "terms"      ? "Terms of the loss"
                                                                  : of == "observed" ? "Observed"
                                                                  : of == "device"   ? "The device, about once a second"
                                                                                     : escaped(of));
      for (const std::string& name : names) {
        if (charts >= most_charts) break;
        simple(name.substr(std::min(name.find('/') + 1, name.size())), name,
               name == "device/used_bytes"    ? Figures::bytes
               : name == "device/utilisation" ? Figures::percent
                                              : Figures::plain,
               true);
      }
      out += "</div>\n";
    }
    if (charts >= most_charts)
      out += fmt::format("<p class=\"notice\">Only the first {} charts are drawn; metrics.jsonl has all numbers.</p>\n",
                         most_charts);
  }

  void all_charts() {
    out += "<div class=\"charts\">\n";
    Chart loss{"Loss", Figures::plain, lines("loss"), lines("eval_loss"), {}, true};
    figure(loss, loss.marked.empty() ? "" : "marks: evaluation");
    simple("Learning rate", "lr");
    simple("Gradient norm", "grad_norm", Figures::plain, true);
    const auto scales = lines("loss_scale");
    const auto scaled = [](const Curve& line) {
      return std::any_of(line.values.begin(), line.values.end(), [](double v) { return v != 1; });
    };
    if (std::any_of(scales.begin(), scales.end(), scaled)) simple("Loss scale", "loss_scale");
    simple("Tokens per second", "tokens_per_second", Figures::plain, true);
    simple("Model FLOPs utilisation", "mfu", Figures::percent, true);
    simple("Seconds per step", "step_seconds", Figures::plain, true);
    memory("Memory of the device, peak so far", "device_peak_bytes");
    memory("Memory of the process, peak so far", "host_peak_bytes");
    wait("Waiting for data", "wait_seconds/data");
    wait("Waiting for other ranks", "wait_seconds/comm");
    wait("Waiting for tiers", "wait_seconds/offload");
    out += "</div>\n";
    others();
  }

  void table(const std::string& title, const std::vector<SummaryRow>& rows) {
    if (rows.empty()) return;
    out += fmt::format("<h2>{}</h2>\n<div class=\"wide\"><table><thead><tr><th></th>", title);
    for (const History& run : runs) out += fmt::format("<th>{}</th>", escaped(run.title));
    out += "</tr></thead><tbody>\n";
    for (const auto& [name, values] : rows) {
      out += fmt::format("<tr><th>{}</th>", escaped(name));
      for (const std::string& value : values) out += fmt::format("<td>{}</td>", escaped(value));
      out += "</tr>\n";
    }
    out += "</tbody></table></div>\n";
  }

  // As a file would have it, every key with its value.
  void configurations() {
    if (std::all_of(runs.begin(), runs.end(), [](const History& run) { return run.settings.empty(); })) return;
    out += "<h2>Configurations</h2>\n";
    for (const History& run : runs) {
      if (run.settings.empty()) continue;
      out += fmt::format("<details><summary>{}</summary><pre>", escaped(run.title));
      std::string section;
      for (const auto& [key, value] : run.settings) {
        const size_t dot = std::min(key.find('.'), key.size());
        if (const std::string now = key.substr(0, dot); now != section) {
          out += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", escaped(now));
          section = now;
        }
        out += escaped(key.substr(std::min(dot + 1, key.size())) + " = " + value) + "\n";
      }
      out += "</pre></details>\n";
    }
  }
};

}  // namespace

std::string report_page(const std::vector<History>& all) {
  Runs runs;
  std::string notices;
  for (const History& run : all) {
    std::string text;
    if (!run.steps) text = fmt::format("{} has no step yet and is not shown.", run.title);
    if (run.unreadable)
      text += fmt::format("{}{}: lines of metrics.jsonl that are no records of a step: {}. They were left out.",
                          text.empty() ? "" : " ", run.title, run.unreadable);
    if (!text.empty()) notices += fmt::format("<p class=\"notice\">{}</p>\n", escaped(text));
    if (run.steps) runs.push_back(run);
  }
  Page page{runs};
  const std::string title = runs.size() == 1 ? runs[0].title : fmt::format("{} runs", runs.size());
  page.out = page_mark + charts::page_head(escaped(title), page_css, true) + notices;
  page.out += "<ul class=\"legend\">\n";
  for (size_t r = 0; r < runs.size(); ++r)
    page.out += fmt::format("<li><svg viewBox=\"0 0 34 10\"><path class=\"r{}\" d=\"M1 5H33\"/></svg>{}</li>\n", r % 8,
                            escaped(runs[r].title));
  page.out += "</ul>\n<h2>Charts</h2>\n";
  page.all_charts();
  page.table("Numbers", summary(runs));
  page.table("Keys that differ", differing_settings(runs));
  page.configurations();
  return page.out + fmt::format("<footer>engine {}, {}</footer>\n<script>\n{}</script></body></html>\n",
                                escaped(version), utc_now(true), page_js);
}

}  // namespace eng
