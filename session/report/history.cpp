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

struct StepLine {
  int64_t step, attempt;
  std::vector<std::pair<std::string, double>> scalars;
};

std::vector<StepLine> rows_of(const fs::path& file, uint64_t& unreadable) {
  std::vector<StepLine> rows;
  std::ifstream in(file, std::ios::binary);
  for (std::string text; std::getline(in, text);) {
    const Json line = Json::parse_or_null(text, true);
    const Json& step = line.get("step");
    if (!step.is_integer() || step.integer() < 0 || step.integer() > int64_t{1} << 53) {
      unreadable += !text.empty();
      continue;
    }
    while (!rows.empty() && rows.back().step >= step.integer()) rows.pop_back();
    const Json& attempt = line.get("attempt");
    rows.push_back({step.integer(), attempt.is_integer() ? attempt.integer() : 1, scalars_of(line)});
  }
  return rows;
}

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
  std::map<std::string, size_t> place;
  int64_t attempt = 0;
  for (const StepLine& row : rows_of(run / "metrics.jsonl", out.unreadable)) {
    ++out.steps;
    if (row.attempt != attempt) out.starts.push_back(row.step);
    attempt = row.attempt;
    for (const auto& [name, value] : row.scalars) {
      if (!std::isfinite(value)) continue;
      const auto [at, added] = place.emplace(name, out.series.size());
      if (added) out.series.push_back({name, {}, {}});
      out.series[at->second].steps.push_back(row.step);
      out.series[at->second].values.push_back(value);
    }
  }
  return out;
}

}  // namespace eng
