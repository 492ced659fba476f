// SPDX-License-Identifier: Apache-2.0
#include "session/report/history.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "core/base/error.hpp"
#include "session/config/source.hpp"
#include "session/file.hpp"
#include "session/report/metrics.hpp"
#include "session/report/scalars.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

// Takes lines one after the other.
class LineReader {
 public:
  explicit LineReader(History& out) : out_(out) {}

  void take(const std::string& text) {
    const Json line = Json::parse_or_null(text, true);
    const Json &step = line.get("step"), &attempt = line.get("attempt");
    if (!step.is_integer() || step.integer() < 0 || step.integer() > int64_t{1} << 53) {
      out_.unreadable += !text.empty();
      return;
    }
    // This step and later ones are taken again.
    while (!kept_.empty() && kept_.back().step >= step.integer()) counts_[kept_.back().line] = false, kept_.pop_back();
    while (!out_.starts.empty() && out_.starts.back() >= step.integer()) out_.starts.pop_back();
    kept_.push_back({step.integer(), counts_.size()});
    const int64_t now = attempt.is_integer() ? attempt.integer() : 1;
    if (now != attempt_ || out_.starts.empty()) out_.starts.push_back(step.integer());
    attempt_ = now;
    for (const auto& [name, value] : scalars_of(line)) {
      if (!std::isfinite(value)) continue;
      const auto [at, added] = out_.place.emplace(name, out_.series.size());
      if (added) out_.series.push_back({name, {}, {}}), lines_.emplace_back();
      out_.series[at->second].steps.push_back(step.integer());
      out_.series[at->second].values.push_back(value);
      lines_[at->second].push_back(counts_.size());
    }
    counts_.push_back(true);
  }

  void finish() {
    out_.steps = kept_.size();
    for (size_t s = 0; s < out_.series.size(); ++s) {
      Series& one = out_.series[s];
      size_t n = 0;
      for (size_t k = 0; k < one.steps.size(); ++k) {
        if (!counts_[lines_[s][k]]) continue;
        one.steps[n] = one.steps[k], one.values[n] = one.values[k];
        ++n;
      }
      one.steps.resize(n), one.values.resize(n);
    }
    std::erase_if(out_.series, [](const Series& one) { return one.steps.empty(); });
    out_.place.clear();
    for (const Series& one : out_.series) out_.place.emplace(one.name, out_.place.size());
  }

 private:
  struct Kept {
    int64_t step;
    size_t line;  // counted over those that are records
  };

  History& out_;
  std::vector<Kept> kept_;                  // ascending steps
  std::vector<bool> counts_;                // by line
  std::vector<std::vector<size_t>> lines_;  // of each value of each series
  int64_t attempt_ = 0;
};

Json json_of(const fs::path& file) try {
  return Json::parse_or_null(read_text(file, 64 << 20, Exit::usage), true);
} catch (const Error&) {
  return {};
}

std::map<std::string, std::string> settings_of(const fs::path& file) try {
  std::map<std::string, std::string> out;
  for (const auto& [section, part] : read_document(file).parts)
    for (const auto& [key, given] : part.keys)
      if (section != "resolved") out[section + "." + key] = toml_text(given.value);
  return out;
} catch (const std::exception&) {
  return {};
}

}  // namespace

const Series* History::find(const std::string& name) const {
  const auto at = place.find(name);
  return at == place.end() ? nullptr : &series[at->second];
}

History read_history(const fs::path& run) {
  std::error_code none;
  if (!fs::exists(run / "state.json", none) && !fs::is_regular_file(run / "metrics.jsonl", none))
    throw Error(Exit::usage, fmt::format("{} is not a run: it has neither state.json nor metrics.jsonl", run.string()),
                "name a directory such as runs/NAME/20261120-132005-7f3a");
  if (fs::exists(run / "metrics.jsonl", none) && !fs::is_regular_file(run / "metrics.jsonl", none))
    throw Error(Exit::usage, (run / "metrics.jsonl").string() + " is not a regular file");
  History out;
  out.title = run.string();
  out.record = json_of(run / "run.json");
  out.state = json_of(run / "state.json");
  out.settings = settings_of(run / "config.resolved.toml");
  LineReader reader(out);
  std::ifstream in(run / "metrics.jsonl", std::ios::binary);
  LineEnd end = LineEnd::newline;
  for (std::string text; end == LineEnd::newline;) {
    end = read_line(*in.rdbuf(), text);
    if (end == LineEnd::newline || (end == LineEnd::file && !text.empty())) reader.take(text);
  }
  out.cut = end == LineEnd::none;
  reader.finish();
  return out;
}

}  // namespace eng
