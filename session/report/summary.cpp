// SPDX-License-Identifier: Apache-2.0
#include "session/report/summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "session/report/chart.hpp"

namespace eng {
namespace {

using Values = std::vector<double>;

const Values* values(const History& run, const char* name) {
  const Series* series = run.find(name);
  return series && !series->values.empty() ? &series->values : nullptr;
}

double total(const Values& of) {
  return std::accumulate(of.begin(), of.end(), 0.0);
}

std::string last(const History& run, const char* name) {
  const Values* all = values(run, name);
  return all ? fmt::format("{:.5g}", all->back()) : "";
}

std::string lowest(const History& run, const char* name) {
  const Series* series = run.find(name);
  if (!series || series->values.empty()) return "";
  const auto least = std::min_element(series->values.begin(), series->values.end());
  return fmt::format("{:.5g} at step {}", *least, series->steps[static_cast<size_t>(least - series->values.begin())]);
}

std::string median(const History& run, const char* name, Figures unit = Figures::plain) {
  const Values* all = values(run, name);
  if (!all) return "";
  Values sorted = *all;
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return number_text(*middle, unit);
}

std::string duration(const History& run) {
  const Values* all = values(run, "step_seconds");
  if (!all) return "";
  const auto seconds = static_cast<int64_t>(total(*all));
  if (seconds < 60) return fmt::format("{:.1f} s", total(*all));
  return seconds < 3600 ? fmt::format("{} min {:02} s", seconds / 60, seconds % 60)
                        : fmt::format("{} h {:02} min", seconds / 3600, seconds / 60 % 60);
}

std::string waits(const History& run, const char* name) {
  const Values *part = values(run, name), *whole = values(run, "step_seconds");
  return part && whole && total(*whole) > 0 ? number_text(total(*part) / total(*whole), Figures::percent) : "";
}

// "36.2 MiB (planned 37.0 MiB)".
std::string memory(const History& run, const char* name) {
  const Values* all = values(run, name);
  const Json& planned = run.record.get("planned").get(name);
  if (!all || all->back() == 0) return "";
  return number_text(*std::max_element(all->begin(), all->end()), Figures::bytes) +
         (planned.is_number() ? fmt::format(" (planned {})", number_text(planned.number(), Figures::bytes)) : "");
}

// A member of run.json or state.json, as text or number.
std::string told(const Json& json, const char* key) {
  const Json& value = json.get(key);
  return value.is_string() ? value.text() : value.is_integer() ? fmt::format("{}", value.integer()) : "";
}

std::string starts(const History& run) {
  if (run.starts.size() < 2) return "";
  return fmt::format("at steps {}", fmt::join(run.starts.begin() + 1, run.starts.end(), ", "));
}

}  // namespace

std::vector<SummaryRow> summary(const std::vector<History>& runs) {
  std::vector<SummaryRow> out;
  const auto row = [&](const char* name, const auto& of) {
    SummaryRow one{name, {}};
    for (const History& run : runs) one.second.push_back(of(run));
    if (std::any_of(one.second.begin(), one.second.end(), [](const std::string& text) { return !text.empty(); }))
      out.push_back(std::move(one));
  };
  row("status", [](const History& run) { return told(run.state, "status"); });
  row("ended early", [](const History& run) { return told(run.state, "why"); });
  row("steps", [](const History& run) { return fmt::format("{}", run.steps); });
  row("tokens", [](const History& run) {
    const Values* all = values(run, "tokens");
    return all ? fmt::format("{:.0f}", all->back()) : "";
  });
  row("loss, last", [](const History& run) { return last(run, "loss"); });
  row("loss, lowest", [](const History& run) { return lowest(run, "loss"); });
  row("evaluation, last", [](const History& run) { return last(run, "eval_loss"); });
  row("evaluation, lowest", [](const History& run) { return lowest(run, "eval_loss"); });
  row("learning rate, last", [](const History& run) { return last(run, "lr"); });
  row("tokens per second, median", [](const History& run) { return median(run, "tokens_per_second"); });
  row("model FLOPs utilisation, median", [](const History& run) { return median(run, "mfu", Figures::percent); });
  row("seconds per step, median", [](const History& run) { return median(run, "step_seconds"); });
  row("time of all steps", duration);
  row("of it, waiting for data", [](const History& run) { return waits(run, "wait_seconds/data"); });
  row("of it, waiting for other ranks", [](const History& run) { return waits(run, "wait_seconds/comm"); });
  row("of it, waiting for tiers", [](const History& run) { return waits(run, "wait_seconds/offload"); });
  row("memory of the device, peak", [](const History& run) { return memory(run, "device_peak_bytes"); });
  row("memory of the process, peak", [](const History& run) { return memory(run, "host_peak_bytes"); });
  row("resumed", starts);
  row("ranks", [](const History& run) { return told(run.record, "ranks"); });
  row("started", [](const History& run) { return told(run.record, "started"); });
  row("engine", [](const History& run) { return told(run.record, "commit"); });
  return out;
}

std::vector<SummaryRow> differing_settings(const std::vector<History>& runs) {
  std::set<std::string> keys;
  for (const History& run : runs)
    for (const auto& [key, value] : run.settings) keys.insert(key);
  std::vector<SummaryRow> out;
  for (const std::string& key : keys) {
    SummaryRow row{key, {}};
    for (const History& run : runs) {
      const auto found = run.settings.find(key);
      row.second.push_back(found == run.settings.end() ? "" : found->second);
    }
    if (std::any_of(row.second.begin(), row.second.end(),
                    [&](const std::string& text) { return text != row.second[0]; }))
      out.push_back(std::move(row));
  }
  return out;
}

}  // namespace eng
