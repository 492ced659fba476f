// SPDX-License-Identifier: Apache-2.0
// The number of threads that the engine starts by default, and how they wait for each other.
#include <algorithm>
#include <regex>

#include "group.hpp"
#include "harness.hpp"

using namespace cli;

namespace {

// The time that libgomp's threads look for work before they sleep, as it says itself when it is loaded.
uint64_t spin_count(const std::string& err) {
  std::smatch found;
  INFO(err);
  REQUIRE(std::regex_search(err, found, std::regex(R"(GOMP_SPINCOUNT = '(\d+)')")));
  return std::stoull(found[1]);
}

Result doctor(const Scratch& scratch, Args variables) {
  variables.push_back("OMP_DISPLAY_ENV=VERBOSE");
  Limits limits;
  limits.more = variables;
  return engine(scratch, {"doctor"}, limits);
}

uint32_t parallel(const std::string& doctor) {
  std::smatch found;
  REQUIRE(std::regex_search(doctor, found, std::regex(R"(device  cpu: .*, parallel (\d+),)")));
  return static_cast<uint32_t>(std::stoul(found[1]));
}

}  // namespace

TEST_CASE("threads that wait sleep soon, unless the user says something else", "[cli]") {
  Scratch scratch;
  const Result own = doctor(scratch, {});
  REQUIRE(own.exit == 0);
  CHECK(spin_count(own.err) >= 1);
  CHECK(spin_count(own.err) <= 100000);  // 300000 is libgomp's default: milliseconds
  CHECK(has(own.out, "threads wait for each other 20 microseconds awake, then asleep"));
  const Result active = doctor(scratch, {"OMP_WAIT_POLICY=active"}), count = doctor(scratch, {"GOMP_SPINCOUNT=7"});
  CHECK(spin_count(active.err) > 1000000);
  CHECK(has(active.out, "threads wait for each other as OMP_WAIT_POLICY=active says"));
  CHECK(spin_count(count.err) == 7);
  CHECK(has(count.out, "threads wait for each other as GOMP_SPINCOUNT=7 says"));
}

TEST_CASE("there are no more threads than a control group has processors", "[cli]") {
  Scratch scratch;
  scratch.config();
  const Group group("cpu", {"cpu.cfs_quota_us", "100000"}, {"cpu.max", "100000 100000"});
  if (!group.there()) {
    WARN("this system permits no control groups: their quota is not tested");
    return;
  }
  const Result here = engine(scratch, {"doctor"});
  INFO(here.out);
  CHECK(parallel(here.out) == 1);
  CHECK(has(here.out, "quota   1 processors: cpu."));
  const Result most = engine(scratch, {"run", "config.toml", "train.steps=1", "device.threads=0", "--out", "most"});
  INFO(most.err);
  CHECK(most.exit == 0);
  CHECK_FALSE(has(most.err, "allows this process"));
  CHECK(Json::parse(read(scratch / "most/run.json"))["device"]["parallel"] == 1);
  const Result many = engine(scratch, {"run", "config.toml", "train.steps=1", "device.threads=3", "--out", "many"});
  INFO(many.err);
  CHECK(many.exit == 0);
  CHECK(has(many.err, "note: device.threads = 3, but cpu."));
  CHECK(has(many.err, group.name() + " allows this process 1 processor: the threads stop in turn, and 1 would be"));
  CHECK(Json::parse(read(scratch / "many/run.json"))["device"]["parallel"] == 3);
  CHECK(column(scratch / "many", "loss") == column(scratch / "most", "loss"));
}
