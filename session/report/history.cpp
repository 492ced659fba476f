// SPDX-License-Identifier: Apache-2.0
#include "session/report/history.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "session/config/source.hpp"
#include "session/report/scalars.hpp"
#include "session/run_dir.hpp"

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
    if (!steps_.empty() && steps_.back() >= step.integer()) forget(step.integer());
    steps_.push_back(step.integer());
    const int64_t now = attempt.is_integer() ? attempt.integer() : 1;
    if (now != attempt_ || out_.starts.empty()) out_.starts.push_back(step.integer());
    attempt_ = now;
    for (const auto& [name, value] : scalars_of(line)) {
      if (!std::isfinite(value)) continue;
      const auto [at, added] = place_.emplace(name, out_.series.size());
      if (added) out_.series.push_back({name, {}, {}});
      out_.series[at->second].steps.push_back(step.integer());
      out_.series[at->second].values.push_back(value);
    }
  }

  void finish() {
    out_.steps = steps_.size();
    std::erase_if(out_.series, [](const Series& one) { return one.steps.empty(); });
  }

 private:
  // This step and later ones are taken again.
  void forget(int64_t from) {
    const auto cut = [from](std::vector<int64_t>& steps) {
      steps.erase(std::lower_bound(steps.begin(), steps.end(), from), steps.end());
      return steps.size();
    };
    cut(steps_), cut(out_.starts);
    for (Series& one : out_.series) one.values.resize(cut(one.steps));
  }

  History& out_;
  std::vector<int64_t> steps_;
  std::map<std::string, size_t> place_;
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
  for (const Series& one : series)
    if (one.name == name) return &one;
  return nullptr;
}

History read_history(const fs::path& run) {
  std::error_code none;
  if (!RunDir::is_run(run) && !fs::is_regular_file(run / "metrics.jsonl", none))
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
  for (std::string text; std::getline(in, text);) reader.take(text);
  reader.finish();
  return out;
}

}  // namespace eng
