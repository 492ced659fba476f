// SPDX-License-Identifier: Apache-2.0
#include "session/run/record.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "session/json.hpp"
#include "session/plugins/pins.hpp"
#include "session/run/run_dir.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

std::string text_in(const Json& object, const char* key) {
  const Json& found = object.get(key);
  return found.is_string() ? found.text() : "";
}

Json::List list_in(const Json& object, const char* key) {
  const Json& found = object.get(key);
  return found.is_array() ? found.list() : Json::List();
}

}  // namespace

bool is_analysis(const fs::path& directory) {
  return RunDir::is_run(directory) && !read_record(directory).job.empty();
}

RunRecord read_record(const fs::path& run) {
  RunRecord out;
  const Json all = read_run_json(run);
  const Json& extra = all.get("extra");
  out.base_dir = text_in(extra, "base_dir");
  out.job = text_in(all, "job");
  if (const Json& ranks = all.get("ranks"); ranks.is_unsigned()) out.ranks = static_cast<uint32_t>(ranks.whole());
  for (const Json& folder : list_in(extra, "plugin_folders"))
    if (folder.is_string()) out.plugin_folders.push_back(folder.text());
  for (const Json& plugin : list_in(all, "plugins"))
    if (const std::string id = text_in(plugin, "id"), hash = text_in(plugin, "sha256"); !id.empty() && !hash.empty())
      out.plugins.push_back(id + "=" + hash);
  return out;
}

void pin_recorded(Registry& registry, const RunRecord& record) {
  for (const std::string& pin : record.plugins) {
    const std::string id = pin.substr(0, pin.find('='));
    const bool there = std::any_of(registry.candidates().begin(), registry.candidates().end(), [&](const Candidate& c) {
      const auto& folders = record.plugin_folders;
      const bool own = std::any_of(folders.begin(), folders.end(), [&](const fs::path& folder) {
        return c.path == folder || c.path.parent_path() == folder;
      });
      return own && c.refused.empty() && c.description.id == id;
    });
    if (there)
      pin_plugins(registry, {pin}, "the run's run.json",
                  "give its folder with --plugin-path to use the file as it is now");
  }
}

std::vector<fs::path> runs_in(const fs::path& folder, std::size_t most) {
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  std::error_code none;
  const auto look = [&](const fs::path& path) {
    if (RunDir::is_run(path)) found.emplace_back(fs::last_write_time(path / "state.json", none), path);
  };
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (!entry.is_directory(none)) continue;
    look(entry.path());
    for (const auto& inner : fs::directory_iterator(entry.path(), none))
      if (inner.is_directory(none)) look(inner.path());
  }
  std::sort(found.begin(), found.end());
  std::vector<fs::path> out;
  for (std::size_t k = found.size() - std::min(most, found.size()); k < found.size(); ++k)
    out.push_back(found[k].second);
  return out;
}

}  // namespace eng
