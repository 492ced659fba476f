// SPDX-License-Identifier: Apache-2.0
// Runs an op by the kernels of the cuda device and by the reference device. They are the emulated ones, in several
// orders of threads; or, with ENG_TEST_DEVICE = FILE, those of that plugin, which compute on a GPU or on the software
// CUDA runtime (tools/gpu-check). Tests tagged [emulated] ask what only the emulated kernels can do, those tagged
// [own] what attention = "own" promises.
#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/kernels/kernel_harness.hpp"

namespace cuda_test {

using namespace kernels_test;

inline std::string device_file() {
  const char* const given = std::getenv("ENG_TEST_DEVICE");
  return given ? given : "../tests/cuda/emulated/emulated.eng.so";
}
inline const Device& emulated() {
  static const Device device(device_file(), "cuda");
  return device;
}

// A device with the kernels that another plugin brings for it; the plugin is one of the folder of built plugins.
struct With : Device {
  With(const std::string& file, const std::string& name, const std::string& plugin) : Device(file, name) {
    const std::string path = built_plugin(plugin);
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) throw std::runtime_error(dlerror());
    const eng_plugin* found =
        reinterpret_cast<eng_plugin_query_fn>(dlsym(library, "eng_plugin_query_1"))(ENG_ABI_MINOR);
    Sink sink;
    sink.check(found->start(nullptr, sink.get()));
    kernels = static_cast<const eng_kernels*>(found->get_interface(ENG_KERNELS_KIND, name.c_str()));
    if (!kernels) throw std::runtime_error(path + " provides no kernels for " + name);
  }
};
// `of` is the folder of built plugins that brings the kernels: "mamba", "optim".
struct Emulated : With {
  explicit Emulated(const std::string& of, uint32_t processors = 1) : With(device_file(), "cuda", kernels_file(of)) {
    info.parallel = processors;
  }
  static std::string kernels_file(const std::string& of) {
    return std::getenv("ENG_TEST_DEVICE") ? of + "/" + of + "-cuda.eng.so"
                                          : "../tests/cuda/emulated/emulated-" + of + ".eng.so";
  }
};
struct Plain : With {
  explicit Plain(const std::string& plugin) : With("cpu/reference.eng.so", "reference", plugin) {}
};

struct Use {
  std::string op;
  std::vector<Tensor> in;
  std::vector<eng_desc> out;
  std::vector<eng_attr> attrs = {};
  Device::InPlace in_place = {};
  const Device* on = &emulated();
  const Device* as = &reference();
  Device::Outputs wanted() const { return as->run(op, in, out, attrs, in_place); }
};

// The outputs in forward order; in all others it gives the same bits. A GPU takes an order of its own each time.
inline Device::Outputs outputs(const Use& use) {
  const auto in_order = [&](const std::string& order) {
    ::setenv("ENG_EMULATED_ORDER", order.c_str(), 1);
    return use.on->run(use.op, use.in, use.out, use.attrs, use.in_place);
  };
  const Device::Outputs first = in_order("forward");
  int64_t elements = 0;
  for (const Tensor& t : use.in) elements += t.size();
  for (const std::string order : {"backward", "random:1", "random:2", "random:3"}) {
    if ((elements > 2000 || std::getenv("ENG_TEST_DEVICE")) && order == "random:2") break;  // they take long
#ifdef TESTS_SANITIZED
    if (order == "random:1") break;  // and so do all with sanitizers, which see what is out of order in any order
#endif
    const Device::Outputs again = in_order(order);
    INFO(use.op << ", order of threads " << order);
    for (size_t k = 0; k < first.size(); ++k) CHECK(again[k].same_bits(first[k]));
  }
  return first;
}

// A NaN is any NaN: a GPU makes another one than a CPU.
inline void check_exact(const Use& use) {
  const Device::Outputs got = outputs(use), want = use.wanted();
  for (size_t k = 0; k < want.size(); ++k) {
    INFO(use.op << ", output " << k);
    CHECK(got[k].same_numbers(want[k]));
  }
}

// Within `most` of the largest value; 16-bit outputs within a unit of their last place besides.
inline void check_close(const Use& use, double most) {
  const Device::Outputs got = outputs(use), want = use.wanted();
  for (size_t k = 0; k < want.size(); ++k) {
    const int32_t type = want[k].d.dtype;
    const double unit = type == ENG_BF16 ? 0x1p-7 : type == ENG_F16 ? 0x1p-10 : 0;
    INFO(use.op << ", output " << k);
    CHECK(error_of(got[k], want[k]) <= most + unit);
  }
}

// Types of the longest cases. ThreadSanitizer runs them without f16: its kernels are those of bf16 but for
// conversions, and wait at the same barriers.
inline std::vector<int32_t> types_of_long_cases() {
#ifdef EMU_TSAN
  return {ENG_F32, ENG_BF16};
#else
  return {ENG_F32, ENG_BF16, ENG_F16};
#endif
}

inline Tensor counters(int64_t step, int64_t updates, int64_t micro) {
  Tensor t(ENG_I64, {ENG_C_COUNT});
  t.as<int64_t>()[ENG_C_STEP] = step, t.as<int64_t>()[ENG_C_UPDATES] = updates;
  t.as<int64_t>()[ENG_C_MICRO] = micro;
  return t;
}

}  // namespace cuda_test
