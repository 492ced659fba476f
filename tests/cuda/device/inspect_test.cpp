// SPDX-License-Identifier: Apache-2.0
// The facts about the machine that cuda.eng.so gives `engine doctor` (software CUDA runtime and management library).
#include <catch2/catch.hpp>

#include "plugin.hpp"

using namespace cuda_test;
using Catch::Contains;

namespace {

std::string inspected(uint64_t capacity = 65536, uint64_t* length = nullptr) {
  Options options;
  std::string text(capacity + 8, '#');
  uint64_t size = 0;
  Told told;
  if (table().inspect(&options.table, text.data(), capacity, &size, told) != ENG_OK)
    throw std::runtime_error(told.text);
  CHECK(text.substr(capacity) == "########");
  if (length) *length = size;
  return text.substr(0, std::min(size, capacity));
}

}  // namespace

TEST_CASE("inspect lists GPUs with memory, clocks, ECC, links and who uses them") {
  const Machine machine(Variables{{"SOFTCUDA_DEVICES", "3"}, {"SOFTCUDA_CARD", "h200"}, {"SOFTCUDA_HIDDEN", "5"}});
  const std::string text = inspected();
  INFO(text);
  CHECK_THAT(text, Contains("driver: software, for CUDA 13.0; this build needs 13.0\n"));
  CHECK_THAT(text, Contains("GPU 0: software CUDA runtime (CPU), as H200, sm_90, 132 processors, PCI 0000:01:00.0\n"
                            "  memory: 139.7 GiB, 104.8 GiB free\n"
                            "  clocks: processors 345 of 1980 MHz, memory 345 of 3201 MHz; 78 C; 352 W\n"
                            "  ECC: on, 0 uncorrected errors\n"
                            "  NVLink: 4 active links of version 4\n"
                            "  in use by: process 4000 (train-4000, 1.5 GiB)\n"
                            "GPU 1: "));
  CHECK_THAT(text, Contains("process 4001 (train-4001), process 4002 (name unknown), ") &&
                       Contains(", process 4069 (name unknown)\nGPU 2: "));
  CHECK_THAT(text, Contains("  in use by: nobody\n5 more of this machine's GPUs are not visible here"));
  CHECK(text.back() == '\n');
  uint64_t length = 0;
  CHECK(inspected(20, &length) == text.substr(0, 20));
  CHECK(length == text.size());
}

TEST_CASE("inspect names the libraries of CUDA with their versions and files, also without a driver") {
  const Machine machine(Variables{{"SOFTCUDA_DRIVER", "none"}});
  const std::string text = inspected();
  INFO(text);
  CHECK_THAT(text, Contains("\nCUDA runtime 13.0: /") && Contains("/tests/cuda/runtime/libcudart.so.13\n"));
  CHECK_THAT(text, Contains("\ncuBLASLt 13.") && Contains("/tests/cuda/runtime/libcublasLt.so.13\n"));
  CHECK_THAT(
      text, Contains("\ncuDNN 9.") || Contains("; pip's nvidia-cudnn-cu13 has it; attention = \"own\" does without\n"));
  CHECK_THAT(text, Contains("\nNCCL 2.") || Contains("; pip's nvidia-nccl-cu13 has it; only"));
}

TEST_CASE("inspect lists visible GPUs, by their address") {
  const Machine machine(Variables{{"SOFTCUDA_DEVICES", "3"}, {"CUDA_VISIBLE_DEVICES", "1"}});
  CHECK_THAT(inspected(), Contains("PCI 0000:02:00.0\n") && !Contains("GPU 1: ") &&
                              Contains("process 4001 (train-4001)") &&
                              Contains("2 more of this machine's GPUs are not visible here"));
}

TEST_CASE("inspect warns of errors of memory, and of a card that is too old") {
  const Machine machine(Variables{{"SOFTCUDA_CARD", "v100-32g"}, {"SOFTCUDA_ECC", "2"}});
  CHECK_THAT(inspected(), Contains("ECC: on, off after the next start, 2 uncorrected errors: its results cannot") &&
                              Contains("; too old: kernels need sm_80 or later\n"));
}

TEST_CASE("inspect says that there is no driver, an old one, or no GPU") {
  for (const auto& [variables, want] : std::vector<std::pair<Variables, std::string>>{
           {{{"SOFTCUDA_DRIVER", "none"}}, "no GPU can be used: there is no NVIDIA driver (libcuda.so.1)"},
           {{{"SOFTCUDA_DRIVER", "old"}}, "no GPU can be used: the NVIDIA driver is too old: it supports CUDA 12.4"},
           {{{"SOFTCUDA_DRIVER", "old"}}, "forward-compatibility package cuda-compat-13-0 is enough"},
           {{{"SOFTCUDA_DRIVER", "compat"}},
            "no GPU can be used: NVIDIA's forward-compatibility package (cuda-compat)"},
           {{{"SOFTCUDA_DEVICES", "0"}}, "no GPU can be used: no GPU is visible"}}) {
    const Machine machine(variables);
    const std::string text = inspected();
    CHECK_THAT(text, Contains(want));
    CHECK_THAT(text, !Contains("GPU 0"));
    CHECK((text.find("driver: ") == std::string::npos) == (variables.at(variables.begin()->first) == "none"));
  }
}
