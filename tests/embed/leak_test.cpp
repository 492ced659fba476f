// SPDX-License-Identifier: Apache-2.0
// A thousand sessions leave nothing: no memory, no thread, no descriptor.
#include <unistd.h>

#include <catch2/catch.hpp>

#include "support.hpp"

using namespace embed;

namespace {

struct Held {
  std::ptrdiff_t descriptors, threads;
  int64_t bytes;
};

Held held() {
  std::ifstream in("/proc/self/statm");
  int64_t pages = 0;
  in >> pages >> pages;
  return {std::distance(fs::directory_iterator("/proc/self/fd"), {}),
          std::distance(fs::directory_iterator("/proc/self/task"), {}), pages * ::sysconf(_SC_PAGESIZE)};
}

}  // namespace

TEST_CASE("embed: open and close a thousand times", "[embed][.slow]") {
  const Folder folder;
  const auto once = [&](int k) {
    engine::Session run(folder.options(k % 10 == 0 ? "own" : ""));
    std::optional<engine::Tensor> kept;
    if (k % 2) {
      run.step();
      kept.emplace(run.take("model.norm.weight"));
    }
    run.close();
    if (k % 10 == 0) fs::remove_all(folder / "own");
  };
  for (int k = 0; k < 100; ++k) once(k);
  const Held before = held();
  for (int k = 0; k < 1000; ++k) once(k);
  const Held after = held();
  CHECK(after.descriptors == before.descriptors);
  CHECK(after.threads == before.threads);
  CHECK(after.bytes - before.bytes < (int64_t{2} << 20));
}
