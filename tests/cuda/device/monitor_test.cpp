// SPDX-License-Identifier: Apache-2.0
// The measurements of the GPU of a run by cuda.eng.so (software CUDA runtime and management library).
#include <catch2/catch.hpp>

#include "engine/monitor.h"
#include "plugin.hpp"

using namespace cuda_test;
using Catch::Contains;

namespace {

const eng_monitor& monitor() {
  const void* found = plugin().get_interface(ENG_MONITOR_KIND, "cuda");
  if (!found) throw std::runtime_error("no monitor");
  return *static_cast<const eng_monitor*>(found);
}

struct Monitor {
  void* self = nullptr;
  std::string refused;
  explicit Monitor(uint32_t local_rank = 0) {
    Told told;
    const eng_status status = monitor().open(local_rank, &self, told);
    if (status == ENG_UNAVAILABLE)
      refused = told.text;
    else if (status != ENG_OK)
      throw std::runtime_error(told.text);
  }
  ~Monitor() {
    if (self) monitor().close(self);
  }
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;
  eng_gauges read() const {
    eng_gauges out{sizeof(eng_gauges), 0, 0, -1, -1, -1};
    Told told;
    if (monitor().read(self, &out, told) != ENG_OK) throw std::runtime_error(told.text);
    return out;
  }
};

}  // namespace

TEST_CASE("monitor: memory in use, utilisation, temperature and power") {
  const Machine machine(Variables{{"SOFTCUDA_CARD", "h200"}});
  const Device device;
  const Monitor one, two;
  for (const Monitor* m : {&one, &two, &one}) {
    const eng_gauges now = m->read();
    CHECK(now.used_bytes == uint64_t{150023207648} / 4);
    CHECK(now.utilisation == 0.96);
    CHECK(now.celsius == 78);
    CHECK(now.watts == 352.5);
  }
}

TEST_CASE("monitor: what a part of a card does not tell stays unknown") {
  const Machine machine(Variables{{"SOFTCUDA_MIG", "1"}});
  const Device device;
  const eng_gauges now = Monitor().read();
  CHECK(now.used_bytes > 0);
  CHECK(now.utilisation == -1);
  CHECK(now.celsius == -1);
  CHECK(now.watts == -1);
}

TEST_CASE("monitor: a library that fails every question tells nothing") {
  const Machine machine(Variables{{"SOFTCUDA_NVML", "broken"}});
  const Device device;
  const eng_gauges now = Monitor().read();
  CHECK((now.used_bytes == 0 && now.utilisation == -1 && now.celsius == -1 && now.watts == -1));
}

TEST_CASE("monitor: without the library, a driver or the GPU there is none, and no error of another kind") {
  {
    const Machine machine(Variables{{"SOFTCUDA_NVML", "none"}});
    const Device device;
    CHECK_THAT(Monitor().refused, Contains("libnvidia-ml.so.1"));
  }
  {
    const Machine machine(Variables{{"SOFTCUDA_DRIVER", "none"}});
    CHECK_THAT(Monitor().refused, Contains("driver"));
  }
  {
    const Machine machine(Variables{{"SOFTCUDA_DEVICES", "2"}});
    CHECK_THAT(Monitor(2).refused, Contains("local rank 2"));
    CHECK(Monitor(1).refused.empty());
  }
}
