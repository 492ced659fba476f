// SPDX-License-Identifier: Apache-2.0
// The rates of the tier "nvme" in one directory, from and to memory that a disk reaches directly.
//   bench-nvme DIRECTORY [--bytes N] [--block BYTES] [--depth N] [--call BYTES] [--cached]
// Reads lines from its input: `write` goes once over the arena, in calls of --call bytes each, `read` likewise. Answers
// each with one line: the seconds. At the start it writes the arena once, so that no measurement is of a new file.
#include <dlfcn.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>

#include "core/base/error.hpp"
#include "core/config/section.hpp"
#include "engine/plugin.h"
#include "engine/tier.h"

namespace {

using eng::Exit;

struct Choice {
  std::string directory;
  int64_t bytes = int64_t{1} << 30, block = 1 << 20, depth = 16, call = 64 << 20;
  bool direct = true;
};

Choice parse(int argc, char** argv) {
  Choice out;
  for (int k = 1; k < argc; ++k) {
    const std::string word = argv[k];
    if (word == "--cached") {
      out.direct = false;
    } else if (word.rfind("--", 0) != 0) {
      out.directory = word;
    } else {
      int64_t* const value = word == "--bytes"   ? &out.bytes
                             : word == "--block" ? &out.block
                             : word == "--depth" ? &out.depth
                             : word == "--call"  ? &out.call
                                                 : nullptr;
      if (!value || k + 1 == argc) throw eng::Error(Exit::usage, "unknown or without a value: " + word);
      *value = std::stoll(argv[++k]);
    }
  }
  if (out.directory.empty() || out.call <= 0 || out.bytes % out.call != 0)
    throw eng::Error(Exit::usage, "name a directory, and a multiple of --call as --bytes");
  return out;
}

const eng_tier& load() {
  void* const file = dlopen(ENGINE_PLUGIN_DIR "/offload/nvme.eng.so", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!file) throw eng::Error(Exit::environment, dlerror());
  const eng_plugin* plugin = reinterpret_cast<eng_plugin_query_fn>(dlsym(file, "eng_plugin_query_1"))(ENG_ABI_MINOR);
  if (plugin->start(nullptr, nullptr) != ENG_OK) throw eng::Error(Exit::environment, "the plugin does not start");
  return *static_cast<const eng_tier*>(plugin->get_interface(ENG_TIER_KIND, "nvme"));
}

eng::Section section(const Choice& choice) {
  const auto given = [](eng::Value value) { return eng::Setting{std::move(value), "command line", true}; };
  return eng::Section("offload", {{"nvme_paths", given(std::vector<std::string>{choice.directory})},
                                  {"nvme_block", given(choice.block)},
                                  {"nvme_depth", given(choice.depth)},
                                  {"nvme_direct", given(choice.direct)}});
}

void run(const Choice& choice) {
  const eng_tier& tier = load();
  const eng::Section keys = section(choice);
  const eng::Options options(keys);
  const auto check = [](auto&& call) {
    eng::Sink sink;
    sink.check(call(sink.get()), Exit::disk, "tier nvme");
  };
  void *self = nullptr, *arena = nullptr;
  const auto bytes = static_cast<uint64_t>(choice.bytes), call = static_cast<uint64_t>(choice.call);
  check([&](eng_error* sink) { return tier.create(options.get(), 0, &self, sink); });
  check([&](eng_error* sink) { return tier.alloc(self, bytes, &arena, sink); });
  void* const memory = mmap(nullptr, call, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw eng::Error(Exit::host_memory, "no memory for one call");
  auto* const words = static_cast<uint64_t*>(memory);
  for (uint64_t k = 0; k < call / 8; ++k) words[k] = k * 0x9e3779b97f4a7c15u;

  const auto pass = [&](bool write) {
    const auto start = std::chrono::steady_clock::now();
    for (uint64_t at = 0; at < bytes; at += call)
      check([&](eng_error* sink) {
        return write ? tier.write(self, arena, at, memory, call, sink) : tier.read(self, arena, at, memory, call, sink);
      });
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  pass(true);
  std::puts("{}");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    if (line != "read" && line != "write") throw eng::Error(Exit::usage, "neither read nor write: " + line);
    std::printf("%.6f\n", pass(line == "write"));
    std::fflush(stdout);
  }
  tier.free(self, arena, bytes);
  tier.destroy(self);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse(argc, argv));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
