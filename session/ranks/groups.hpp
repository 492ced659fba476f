// SPDX-License-Identifier: Apache-2.0
// The limits of this process's control groups and of those above them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace eng {

// Calls `visit` for each group, of either version, from the inside to the outside. `controllers` is "" in version 2 and
// otherwise "memory", "cpu,cpuacct", ...; `folder` has the group's files, if it exists; `name` is "/a/b". `root` stands
// for "/" in tests.
using VisitGroup =
    std::function<void(const std::string& controllers, const std::filesystem::path& folder, const std::string& name)>;
void for_each_group(const VisitGroup& visit, const std::filesystem::path& root = "/");

// The share of the machine's processors that the groups allow.
struct CpuQuota {
  double processors = 0;   // 0: no limit
  std::string limit = {};  // what sets it: "cpu.max of the control group /a/b"
  // As a number of threads: rounded up; the largest number that there is without a limit.
  int64_t threads() const;
};
CpuQuota cpu_quota(const std::filesystem::path& root = "/");

// "" or a note: so many threads are more than the quota. `what` names them: "device.threads".
std::string quota_note(const std::string& what, int64_t threads, int64_t ranks, const CpuQuota& quota);

}  // namespace eng
