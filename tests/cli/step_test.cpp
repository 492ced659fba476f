// SPDX-License-Identifier: Apache-2.0
// A step is quiet: from the second on no thread takes memory between its begin and its end. This program's own
// malloc and mmap stand before the C library's, for the core, the plugins and their libraries alike.
#include <catch2/catch.hpp>

#include "../sanitized.hpp"
#include "session/config/schemas.hpp"
#include "session/plugins/search.hpp"

#ifndef SANITIZED
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "core/execute/executor.hpp"
#include "engine/ops.h"
#include "session/job/made_job.hpp"
#include "session/planning/setup.hpp"
#include "session/train/loader.hpp"

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

std::atomic<bool> counting{false};
std::atomic<int> calls{0};
std::atomic<uint64_t> maps[64];  // lengths of mappings while counting
std::atomic<int> n_maps{0};

void count() {
  if (counting.load(std::memory_order_relaxed)) calls.fetch_add(1, std::memory_order_relaxed);
}

void* map(void* at, size_t length, int protection, int flags, int fd, off_t offset) {
  count();
  if (counting.load(std::memory_order_relaxed))
    if (const int k = n_maps.fetch_add(1); k < 64) maps[k] = length;
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, length, protection, flags, fd, offset));
}

}  // namespace

extern "C" {
void* malloc(size_t n) {
  count();
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t m) {
  count();
  return __libc_calloc(n, m);
}
void* realloc(void* p, size_t n) {
  count();
  return __libc_realloc(p, n);
}
void* aligned_alloc(size_t a, size_t n) {
  count();
  return __libc_memalign(a, n);
}
void* memalign(size_t a, size_t n) {
  count();
  return __libc_memalign(a, n);
}
int posix_memalign(void** p, size_t a, size_t n) {
  count();
  *p = __libc_memalign(a, n);
  return *p ? 0 : ENOMEM;
}
// The C library has both names, and its header may already give one for the other.
void* plain_mmap(void* at, size_t n, int protection, int flags, int fd, off_t offset) __asm__("mmap");
void* large_mmap(void* at, size_t n, int protection, int flags, int fd, off_t offset) __asm__("mmap64");
void* plain_mmap(void* at, size_t n, int protection, int flags, int fd, off_t offset) {
  return map(at, n, protection, flags, fd, offset);
}
void* large_mmap(void* at, size_t n, int protection, int flags, int fd, off_t offset) {
  return map(at, n, protection, flags, fd, offset);
}
}

namespace {

namespace fs = std::filesystem;
using namespace eng;

constexpr const char* llama = R"([model]
plugin = "llama"
preset = "tiny"
num_hidden_layers = 3
num_key_value_heads = 2
attention_bias = true
)";
// Two terms of the loss, and an observer of all that there is.
constexpr const char* watched = R"([model]
plugin = "llama"
preset = "tiny"
num_hidden_layers = 3
z_loss = 1e-4
[[observers]]
plugin = "stats"
parameters = true
)";
// Ops and kernels of a plugin.
constexpr const char* mamba = R"([model]
plugin = "mamba"
preset = "tiny"
num_hidden_layers = 3
use_bias = true
)";
constexpr const char* rest = R"([data]
paths = ["text.txt"]
validation = 0.1
[train]
steps = 12
micro_batch = 2
accumulate = 3
sequence_length = 48
[device]
plugin = "cpu"
)";

// Everything of a run but its directory.
struct Run {
  fs::path folder;
  std::unique_ptr<Registry> registry;
  Config config;
  Setup setup;
  std::unique_ptr<Data> data;
  std::unique_ptr<Device> device;
  std::unique_ptr<Executor> executor;

  explicit Run(int64_t threads, const std::string& model = llama, const Readable& readable = {}) {
    std::string name = (fs::temp_directory_path() / "engine-step-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no folder");
    folder = name;
    std::ofstream file(folder / "text.txt");
    for (int k = 0; k < 4000; ++k) file << k * 7919 % 1000 << ' ';
    file.close();
    PluginSearch search;
    for (const auto& entry : fs::directory_iterator(ENGINE_PLUGIN_DIR))
      if (entry.is_directory()) search.extra.push_back(entry.path());
    search.extra.emplace_back(FIXTURE_JOB);
    search.environment = false;
    registry = find_plugins(search);
    config = Config::parse(model + rest, "step.toml", folder, {"device.threads=" + std::to_string(threads)},
                           schemas_of(*registry));
    setup = make_setup(config, *registry, 0, {}, nullptr, readable);
    data = std::make_unique<Data>(*registry, config, setup.model.info.vocabulary);
    device = std::make_unique<Device>(*registry, "cpu", config.section("device"));
  }
  ~Run() {
    executor.reset();
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
};

uint64_t whole_pages(uint64_t n) {
  return (n + 4095) / 4096 * 4096;
}

bool never() {
  return false;
}
bool allocating() {
  std::string volatile* const text = new std::string volatile[100];
  delete[] text;
  return false;
}

// Memory taken in steps 2 to 12: what the trainer does from the batch to the end of the update.
int taken(Run& run, bool (*stop)()) {
  Executor& executor = *run.executor;
  const Plan& plan = run.setup.plan;
  std::vector<float> table(static_cast<size_t>(::eng::count(plan.table.desc)), 1e-3f);
  executor.upload(plan.table, table.data());
  executor.run("init");
  int64_t zero[ENG_C_COUNT] = {};
  executor.upload(plan.counters, zero);
  Loader loader(*run.data, {2, 3, 0, 1}, 0);
  std::vector<float> losses(static_cast<size_t>(::eng::count(plan.losses.desc)));
  const std::string train = "train";
  float first = 0, last = 0;
  calls = 0;
  for (int step = 1; step <= 12; ++step) {
    counting = step > 1;
    const Batch& batch = loader.next();
    executor.upload(plan.field("tokens"), batch.tokens.data());
    executor.upload(plan.field("labels"), batch.labels.data());
    const float inputs[8] = {1.0f / static_cast<float>(batch.valid)};
    executor.upload(plan.inputs, inputs);
    executor.run(train, stop);
    executor.download(losses.data(), plan.losses);
    counting = false;
    last = (losses[0] + losses[plan.row] + losses[2 * plan.row]) / static_cast<float>(batch.valid);
    if (step == 1) first = last;
  }
  INFO("loss " << first << " to " << last);
  CHECK(last < first);  // these were steps
  return calls;
}

}  // namespace

TEST_CASE("the counter sees what any thread takes", "[step]") {
  calls = 0;
  n_maps = 0;
  counting = true;
  std::thread other([] { free(malloc(10)); });
  other.join();
  void* const page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  counting = false;
  munmap(page, 4096);
  CHECK(calls >= 2);
  CHECK(n_maps >= 1);
}

TEST_CASE("from the second step on nothing is allocated", "[step]") {
  const std::string model = GENERATE(llama, mamba, watched);
  for (const int64_t threads : {1, 2}) {
    INFO(model << "threads " << threads);
    Run run(threads, model);
    run.executor = std::make_unique<Executor>(run.setup.plan, *run.device, *run.setup.kernels);
    CHECK(taken(run, never) == 0);
  }
}

TEST_CASE("keeping activations allocates nothing", "[step]") {
  Run run(2, watched, {.activations = {"*"}});
  REQUIRE(run.setup.plan.sites.size() > 30);
  run.executor = std::make_unique<Executor>(run.setup.plan, *run.device, *run.setup.kernels);
  CHECK(taken(run, never) == 0);
}

TEST_CASE("an allocation inside a step is seen", "[step]") {
  Run run(1);
  run.executor = std::make_unique<Executor>(run.setup.plan, *run.device, *run.setup.kernels);
  CHECK(taken(run, allocating) >= 11);
}

TEST_CASE("the programs of a job allocate nothing", "[step]") {
  for (const int64_t threads : {1, 2}) {
    INFO("threads " << threads);
    Run run(threads, std::string(llama) + "[job]\nplugin = \"fixture\"\n");
    MadeJob made = make_job(run.config, *run.registry);
    take_batch(run.config, made, 1);
    const Setup setup = make_setup(run.config, *run.registry, 0, {}, nullptr, {.job = &made.job});
    REQUIRE_FALSE(setup.plan.sites.empty());
    Executor executor(setup.plan, *run.device, *setup.kernels);
    executor.run("init");
    std::vector<std::string> programs = {"train", "eval", eval_with_sites};
    for (uint32_t k = 0; k < made.job.info.programs; ++k) programs.push_back(job_program(k));
    const std::vector<int32_t> tokens(static_cast<size_t>(::eng::count(setup.plan.fields[0].view.desc)), 65);
    const float scalars[ENG_S_COUNT] = {}, inputs[8] = {1};
    int64_t counters[ENG_C_COUNT] = {};
    calls = 0;
    for (int turn = 0; turn < 3; ++turn) {
      counting = turn > 0;
      executor.upload(setup.plan.field("tokens"), tokens.data());
      executor.upload(setup.plan.field("labels"), tokens.data());
      executor.upload(setup.plan.inputs, inputs);
      executor.upload(setup.plan.scalars, scalars);
      executor.upload(setup.plan.counters, counters);
      for (const std::string& program : programs) executor.run(program);
      counting = false;
    }
    CHECK(calls == 0);
  }
}

TEST_CASE("taking a sequence further allocates nothing", "[step]") {
  for (const int64_t threads : {1, 2}) {
    INFO("threads " << threads);
    Run run(threads);
    const Setup setup = make_setup(run.config, *run.registry, 200);
    Executor executor(setup.plan, *run.device, *setup.kernels);
    executor.run("init");
    std::vector<float> logits(static_cast<size_t>(::eng::count(setup.plan.next_logits.desc)));
    const std::string programs[] = {"prefill", "decode"};
    const std::vector<int32_t> tokens(prefill, 65);
    int64_t counters[ENG_C_COUNT] = {};
    calls = 0;
    for (int k = 0; counters[ENG_C_POSITION] < 200; ++k) {
      const bool chunk = k < 2;
      counting = k == 1 || k > 2;
      executor.upload(setup.plan.field("tokens"), 0, tokens.data(), (chunk ? tokens.size() : 1) * sizeof(int32_t));
      executor.upload(setup.plan.counters, counters);
      executor.run(programs[chunk ? 0 : 1]);
      executor.download(logits.data(), setup.plan.next_logits);
      counting = false;
      counters[ENG_C_POSITION] += chunk ? prefill : 1;
    }
    CHECK(calls == 0);
  }
}

TEST_CASE("the executed arena has exactly the planned bytes", "[step]") {
  Run run(1);
  REQUIRE(run.setup.plan.arenas.size() == 1);
  const uint64_t planned = whole_pages(run.setup.plan.arenas[0].total());
  REQUIRE(planned > (1 << 20));
  n_maps = 0;
  counting = true;
  run.executor = std::make_unique<Executor>(run.setup.plan, *run.device, *run.setup.kernels);
  counting = false;
  REQUIRE(n_maps <= 64);
  int arenas = 0;
  for (int k = 0; k < n_maps; ++k) {
    if (maps[k] == planned)
      ++arenas;
    else
      CHECK(maps[k] < (1 << 20));  // nothing else of that kind
  }
  CHECK(arenas == 1);
}
#endif
