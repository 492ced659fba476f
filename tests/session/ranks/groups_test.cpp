// SPDX-License-Identifier: Apache-2.0
#include "session/ranks/groups.hpp"

#include <catch2/catch.hpp>
#include <limits>

#include "session/ranks/ranks.hpp"
#include "tests/cli/harness.hpp"

using namespace eng;

namespace {

// A folder that stands for "/".
struct Root : cli::Scratch {
  explicit Root(const std::string& groups) { file("proc/self/cgroup", groups); }
  void file(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((*this / name).parent_path());
    write(name, text);
  }
  CpuQuota quota() const { return cpu_quota(path()); }
};

constexpr int64_t none = std::numeric_limits<int64_t>::max();

}  // namespace

TEST_CASE("quota: version 2, the least of a group and those above it", "[ranks]") {
  const Root root("0::/user/job\n");
  CHECK(root.quota().threads() == none);
  root.file("sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
  CHECK(root.quota().threads() == none);
  CHECK(root.quota().processors == 0);
  root.file("sys/fs/cgroup/user/cpu.max", "250000 100000\n");
  CHECK(root.quota().processors == 2.5);
  CHECK(root.quota().threads() == 3);
  CHECK(root.quota().limit == "cpu.max of the control group /user");
  root.file("sys/fs/cgroup/user/job/cpu.max", "400000 100000\n");
  CHECK(root.quota().threads() == 3);
  root.file("sys/fs/cgroup/user/job/cpu.max", "20000 100000\n");
  CHECK(root.quota().threads() == 1);
  CHECK(root.quota().limit == "cpu.max of the control group /user/job");
}

TEST_CASE("quota: a container sees its group as the root", "[ranks]") {
  const Root root("0::/\n");
  root.file("sys/fs/cgroup/cpu.max", "200000 100000\n");
  CHECK(root.quota().threads() == 2);
  const Root other("0::/of/the/host\n");  // or has the host's name for it
  other.file("sys/fs/cgroup/cpu.max", "200000 100000\n");
  CHECK(other.quota().threads() == 2);
  CHECK(other.quota().limit == "cpu.max of the control group /");
}

TEST_CASE("quota: version 1, whatever its folder is called", "[ranks]") {
  const Root root("5:cpuset:/a\n4:cpu,cpuacct:/a/b\n0::/\n");
  root.file("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us", "-1\n");
  root.file("sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us", "100000\n");
  CHECK(root.quota().threads() == none);
  root.file("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "150000\n");
  root.file("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "50000\n");
  CHECK(root.quota().threads() == 3);
  CHECK(root.quota().limit == "cpu.cfs_quota_us of the control group /a");
  const Root swapped("4:cpuacct,cpu:/a\n");
  swapped.file("sys/fs/cgroup/cpuacct/a/cpu.cfs_quota_us", "100000\n");
  swapped.file("sys/fs/cgroup/cpuacct/a/cpu.cfs_period_us", "100000\n");
  CHECK(swapped.quota().threads() == 1);
}

TEST_CASE("quota: files that say nothing of use are no limit", "[ranks]") {
  for (const char* text :
       {"", "max", "0 100000", "100000", "100000 0", "-5 100000", "x y", "1e3 100", "99999999999999999999 1"}) {
    const Root root("0::/\nnonsense\n");
    root.file("sys/fs/cgroup/cpu.max", text);
    INFO(text);
    CHECK(root.quota().threads() == none);
  }
  CHECK(cpu_quota("/nowhere").threads() == none);
}

TEST_CASE("quota: ranks of a machine share it, also where they are bound to separate cores", "[ranks]") {
  const std::string a = "host 0:0 0:1 0:2 0:3/4", b = "host 0:4 0:5 0:6 0:7/4", other = "host2 0:0 0:1 0:2 0:3/4";
  CHECK(threads_of(a, {a}) == 4);
  CHECK(threads_of(a, {a, b, other}) == 2);
  CHECK(threads_of(other, {a, b, other}) == 4);
  CHECK(threads_of("host 0:0 0:1/4", {"host 0:0 0:1/4"}) == 2);  // the cores are fewer
  CHECK(threads_of("host 0:0 0:1/1", {"host 0:0 0:1/1", "host 0:0 0:1/1"}) == 1);
}

TEST_CASE("quota: more threads than it allows are noted", "[ranks]") {
  CHECK(quota_note("device.threads", 64, 8, CpuQuota()).empty());
  const CpuQuota quota{2.5, "cpu.max of the control group /a"};
  CHECK(quota_note("device.threads", 3, 1, quota).empty());
  CHECK(quota_note("device.threads", 4, 1, quota) ==
        "device.threads = 4, but cpu.max of the control group /a allows this process 2.5 processors: the threads stop "
        "in turn, and 3 would be faster");
  CHECK(quota_note("device.threads", 2, 2, quota) ==
        "device.threads = 2 on each of 2 ranks here, but cpu.max of the control group /a allows this process 2.5 "
        "processors: the threads stop in turn, and 1 would be faster");
}
