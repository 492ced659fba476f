// SPDX-License-Identifier: Apache-2.0
// Errors of cuda.eng.so without a GPU, with too little of it, or with one whose context has ended (emulated).
#include <catch2/catch.hpp>

#include "plugin.hpp"

using namespace cuda_test;
using Catch::Contains;

namespace {

std::pair<eng_status, std::string> created() {
  Options options;
  void* self = nullptr;
  Told told;
  const eng_status status = table().create(&options.table, 0, &self, told);
  if (status == ENG_OK) table().destroy(self);
  return {status, told.text};
}

}  // namespace

TEST_CASE("a machine without a usable GPU is told so") {
  for (const auto& [variables, text] : std::vector<std::pair<std::map<std::string, std::string>, const char*>>{
           {{{"SOFTCUDA_DRIVER", "none"}},
            "there is no NVIDIA driver (libcuda.so.1) on this machine: install one for CUDA 13.0"},
           {{{"SOFTCUDA_DRIVER", "old"}},
            "the NVIDIA driver is too old: it supports CUDA 12.4, and this build needs 13.0: update the driver to 580 "
            "or "
            "later; on a data-centre card, such as an A100 or A800, NVIDIA's forward-compatibility package "
            "cuda-compat-13-0"},
           {{{"SOFTCUDA_DRIVER", "compat"}}, "(cuda-compat) is in use, and this card does not support it"},
           {{{"SOFTCUDA_DEVICES", "0"}}, "no GPU is visible: see nvidia-smi, and whether CUDA_VISIBLE_DEVICES"},
           {{{"SOFTCUDA_CARD", "v100-32g"}}, "sm_70: its kernels need sm_80"}}) {
    const Machine machine(variables);
    const auto [status, told] = created();
    CHECK(status == ENG_UNAVAILABLE);
    CHECK_THAT(told, Contains("device cuda: ") && Contains(text));
    CHECK_NOTHROW(describe());  // a plan needs none
  }
}

TEST_CASE("an arena that does not fit is told with what is free") {
  const Machine machine(Variables{{"SOFTCUDA_BYTES", "67108864"}});
  const Device d;
  void* out = nullptr;
  Told told;
  CHECK(table().alloc(d.self, ENG_MEMORY_DEVICE, 100 << 20, &out, told) == ENG_NO_MEMORY);
  CHECK_THAT(told.text, Contains("an arena of 104857600 bytes does not fit into GPU 0, software CUDA runtime (CPU)") &&
                            Contains("64 MiB of 64 MiB are free"));
  CHECK(out == nullptr);
  CHECK(table().alloc(d.self, ENG_MEMORY_DEVICE, ~uint64_t{0}, &out, told) == ENG_NO_MEMORY);
  CHECK(d.alloc(ENG_MEMORY_DEVICE, 32 << 20));
}

TEST_CASE("an error that ends the context says so, then and later") {
  const Machine machine(Variables{{"SOFTCUDA_FAIL", "3"}});  // after the zeroing of the arena, and one copy
  const Device d;
  void *first = d.queue(), *queue = d.queue();
  char *arena = d.alloc(ENG_MEMORY_DEVICE, 64), *host = d.alloc(ENG_MEMORY_PINNED, 64);
  (void)first;
  const Copy copy(d, arena, host, 64);
  copy.launch(queue);
  copy.launch(queue);  // fails, and nobody knows yet
  CHECK_THROWS_WITH(d.call(table().sync, queue), Contains("queue 1, waiting for its work: cudaErrorIllegalAddress") &&
                                                     Contains("ended the CUDA context") &&
                                                     Contains("  engine run RUN device.synchronous=true"));
  CHECK_THROWS_WITH(copy.launch(queue), Contains("ended the CUDA context"));
  CHECK_THROWS_WITH(d.alloc(ENG_MEMORY_DEVICE, 1), Contains("cudaErrorIllegalAddress"));
}

TEST_CASE("with synchronous launches, or when the engine asks, the error is that of its op") {
  for (const bool option : {true, false}) {
    const Machine machine(Variables{{"SOFTCUDA_FAIL", "3"}});
    const Device d(option);
    void* queue = d.queue();
    char *arena = d.alloc(ENG_MEMORY_DEVICE, 64), *host = d.alloc(ENG_MEMORY_PINNED, 64);
    const Copy copy(d, arena, host, 64);
    const uint32_t flags = option ? 0 : ENG_EXEC_SYNC;
    copy.launch(queue, flags);
    CHECK_THROWS_WITH(copy.launch(queue, flags),
                      Contains("[in u8 (64); out u8 (64)]: queue 0, running: cudaErrorIllegalAddress") &&
                          Contains(". It ended the CUDA context: nothing more can run in this process") &&
                          !Contains("engine run"));
  }
}

TEST_CASE("describe: queues, graphs, and none of them where launches are waited for") {
  const Machine machine;
  CHECK(describe().flags == (ENG_DEVICE_ASYNC | ENG_DEVICE_GRAPHS));
  CHECK(describe({}, true).flags == ENG_DEVICE_ASYNC);
  CHECK_THAT(describe().name, Contains("software CUDA runtime (CPU)"));
}

TEST_CASE("a described card is for kernels the card that the runtime announces") {
  for (const char* card : {"a100-40g", "a100-80g", "a800-80g", "h100-80g", "h200", "b200", "rtx4090"}) {
    const eng_device_info here = [&] {
      const Machine machine(Variables{{"SOFTCUDA_CARD", card}});
      return describe();
    }();
    const Machine none(Variables{{"SOFTCUDA_DRIVER", "none"}});
    const eng_device_info described = describe(card);
    INFO(card);
    CHECK(described.arch == here.arch);
    CHECK(described.parallel == here.parallel);
    CHECK(described.parallel_beside == here.parallel_beside);
    CHECK(described.flags == here.flags);
    CHECK(described.dl_device_type == here.dl_device_type);
    CHECK(described.overhead_bytes == here.overhead_bytes);
    CHECK(described.device_overhead_bytes == here.device_overhead_bytes);
  }
}
