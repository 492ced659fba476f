// SPDX-License-Identifier: Apache-2.0
// Compares the memory-bound kernels of the device cpu with the reference device: on every instruction set that this
// machine has, with 1, 2 and 3 threads, twice.
#pragma once

#include <catch2/catch.hpp>

#include "kernel_harness.hpp"

namespace kernels_test {

struct Fast {
  std::string isa;
  int64_t threads;
  std::unique_ptr<Device> device;
};

// Devices for the given instruction sets that the processor has, each with 1, 2 and 3 threads.
inline std::vector<Fast> devices_of(const std::vector<const char*>& sets) {
  std::vector<Fast> list;
  for (const char* isa : sets)
    for (int64_t threads : {1, 2, 3}) try {
        list.push_back({isa, threads, std::make_unique<Device>("cpu/cpu.eng.so", "cpu", threads, isa)});
      } catch (const Failure& f) {
        if (f.status != ENG_UNSUPPORTED || std::string(isa) == "portable") throw;
      }
  return list;
}
inline const std::vector<Fast>& fast_devices() {
  static const std::vector<Fast> all = devices_of({"portable", "avx2", "avx512"});
  return all;
}
// Also those whose products alone are different.
inline const std::vector<Fast>& product_devices() {
  static const std::vector<Fast> all = devices_of({"portable", "avx2", "avx512", "avx512_bf16"});
  return all;
}

struct Case {
  std::string op;
  std::vector<Tensor> in;
  std::vector<eng_desc> out;
  std::vector<eng_attr> attrs;
  Device::InPlace in_place;
};

inline bool same(const Device::Outputs& a, const Device::Outputs& b) {
  if (a.size() != b.size()) return false;
  for (size_t k = 0; k < a.size(); ++k)
    if (!a[k].same_bits(b[k])) return false;
  return true;
}

// Bits equal to the reference's, everywhere.
inline void check_exact(const Case& c) {
  INFO(c.op);
  const auto want = reference().run(c.op, c.in, c.out, c.attrs, c.in_place);
  for (const Fast& f : fast_devices()) {
    INFO(f.isa << ", threads " << f.threads);
    CHECK(same(f.device->run(c.op, c.in, c.out, c.attrs, c.in_place), want));
    CHECK(same(f.device->run(c.op, c.in, c.out, c.attrs), want));  // not in place
  }
}

// Close to the reference; bits that depend neither on the number of threads nor on the run nor on being in place.
inline void check_close(const Case& c, double tolerance) {
  INFO(c.op);
  for (const eng_desc& d : c.out) INFO(elements(d));
  const auto want = reference().run(c.op, c.in, c.out, c.attrs);
  Device::Outputs one;
  for (const Fast& f : fast_devices()) {
    INFO(f.isa << ", threads " << f.threads);
    const auto got = f.device->run(c.op, c.in, c.out, c.attrs, c.in_place);
    for (size_t k = 0; k < got.size(); ++k) {
      INFO("output " << k << " of size " << got[k].size());
      CHECK(error_of(got[k], want[k]) <= tolerance);
    }
    if (f.threads == 1) one = got;
    CHECK(same(got, one));
    CHECK(same(f.device->run(c.op, c.in, c.out, c.attrs), one));
  }
}

}  // namespace kernels_test
