// SPDX-License-Identifier: Apache-2.0
#include "session/ranks/groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <vector>

namespace eng {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> words_of(const fs::path& file) {
  std::vector<std::string> out;
  std::ifstream in(file);
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

// 0: no number above 0, such as "max" or "-1".
double positive(const std::string& word) {
  const bool digits = !word.empty() && word.size() < 19 && word.find_first_not_of("0123456789") == std::string::npos;
  return digits ? static_cast<double>(std::stoll(word)) : 0;
}

bool has_cpu(const std::string& controllers) {
  return ("," + controllers + ",").find(",cpu,") != std::string::npos;
}

}  // namespace

void for_each_group(const VisitGroup& visit, const fs::path& root) {
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    fs::path top = root / "sys/fs/cgroup" / controllers;
    std::error_code failed;
    if (!fs::exists(top, failed)) top = top.parent_path() / controllers.substr(0, controllers.find(','));
    std::string name = line.substr(second + 1);
    for (bool more = true; more;) {
      visit(controllers, name.size() > 1 ? top / name.substr(1) : top, name.empty() ? "/" : name);
      more = name.size() > 1;
      name.erase(std::min(name.size(), name.rfind('/')));
    }
  }
}

int64_t CpuQuota::threads() const {
  if (processors <= 0) return std::numeric_limits<int64_t>::max();
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(processors - 1e-6)));
}

CpuQuota cpu_quota(const fs::path& root) {
  CpuQuota out;
  const auto take = [&out](double quota, double period, const char* file, const std::string& name) {
    if (quota <= 0 || period <= 0 || (out.processors > 0 && out.processors <= quota / period)) return;
    out.processors = quota / period;
    out.limit = fmt::format("{} of the control group {}", file, name);
  };
  for_each_group(
      [&](const std::string& controllers, const fs::path& folder, const std::string& name) {
        if (controllers.empty()) {
          const auto both = words_of(folder / "cpu.max");  // "200000 100000"
          if (both.size() == 2) take(positive(both[0]), positive(both[1]), "cpu.max", name);
        } else if (has_cpu(controllers)) {
          const auto quota = words_of(folder / "cpu.cfs_quota_us"), period = words_of(folder / "cpu.cfs_period_us");
          if (quota.size() == 1 && period.size() == 1)
            take(positive(quota[0]), positive(period[0]), "cpu.cfs_quota_us", name);
        }
      },
      root);
  return out;
}

std::string quota_note(const std::string& what, int64_t threads, int64_t ranks, const CpuQuota& quota) {
  const int64_t allowed = quota.threads();
  if (threads * ranks <= allowed) return "";
  return fmt::format(
      "{} = {}{}, but {} allows this process {:.4g} processor{}: the threads stop in turn, and {} would be faster",
      what, threads, ranks > 1 ? fmt::format(" on each of {} ranks here", ranks) : "", quota.limit, quota.processors,
      quota.processors == 1 ? "" : "s", std::max<int64_t>(1, allowed / ranks));
}

}  // namespace eng
