// SPDX-License-Identifier: Apache-2.0
// Matrix products of the cpu device, one for each line of the input: the engine's side of benchmarks/products.py.
//   bench-products THREADS ISA         first prints the processor's name; with 1 thread it measures processor time
//   forward|dx|dw f32|bf16|f16 M N K COUNT   x (M, K), w (N, K), y (M, N); prints the seconds of one of COUNT launches
#include <chrono>
#include <cstdio>
#include <ctime>
#include <iostream>

#include "tests/kernels/fast_device.hpp"

namespace {

using fast::random_tensor;
using fast::Run;
using fast::Tensor;

// The tensor's values in 16 bits: bf16 rounded towards zero, f16 of a fixed exponent.
Tensor narrowed(const Tensor& t, int32_t dtype) {
  if (dtype == ENG_F32) return t;
  Tensor out({(t.count + 1) / 2});
  out.desc = t.desc, out.desc.dtype = dtype;
  const auto* from = reinterpret_cast<const uint16_t*>(t.data());
  auto* to = reinterpret_cast<uint16_t*>(out.data());
  for (int64_t i = 0; i < t.count; ++i) {
    const uint16_t high = from[2 * i + 1];
    to[i] = dtype == ENG_BF16 ? high : static_cast<uint16_t>((high & 0x8000) | 0x3800 | (high & 0x7f));
  }
  return out;
}

// The operands and the result of one product, and its prepared kernel: all in one arena, as in a step.
struct Product {
  fast::Arena arena;
  std::vector<Tensor> in, out;
  Run run;
  Product(const fast::Device& device, uint32_t threads, const char* op, std::vector<Tensor> a, std::vector<Tensor> b,
          const std::vector<eng_attr>& attrs)
      : arena(device, bytes(a) + bytes(b) + most_workspace),
        in(placed(a)),
        out(placed(b)),
        run(device, threads, op, in, out, attrs, &arena) {}

 private:
  static constexpr uint64_t most_workspace = uint64_t{256} << 20;
  static uint64_t bytes(const std::vector<Tensor>& all) {
    uint64_t sum = 0;
    for (const Tensor& t : all)
      if (t.memory) sum += t.bytes();
    return sum;
  }
  std::vector<Tensor> placed(std::vector<Tensor> all) {
    for (Tensor& t : all)
      if (t.memory) t = arena.place(t);
    return all;
  }
};

double now(bool processor_time) {
  if (processor_time) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "bench-products THREADS ISA\n"), 2;
  try {
    const std::string isa = argv[2];
    eng_device_info info{};
    info.struct_size = sizeof info;
    const fast::DeviceOptions options(std::atoll(argv[1]), isa);
    if (fast::device_table().describe(&options.table, &info, nullptr) != ENG_OK) throw std::runtime_error("describe");
    const fast::Device device(std::atoll(argv[1]), isa);
    std::printf("\"%s\"\n", info.name), std::fflush(stdout);
    std::string kind, type, last;
    std::unique_ptr<Product> product;
    for (int64_t m = 0, n = 0, k = 0, count = 0; std::cin >> kind >> type >> m >> n >> k >> count;
         std::fflush(stdout)) {
      const std::string key = kind + type + std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k);
      if (key != last) {
        product.reset();
        const int32_t dtype = type == "f32" ? ENG_F32 : type == "bf16" ? ENG_BF16 : ENG_F16;
        const Tensor x = narrowed(random_tensor({m, k}, 1), dtype),
                     w = narrowed(random_tensor({n, k}, 2, 0.05f), dtype),
                     y = narrowed(random_tensor({m, n}, 3), dtype);
        if (kind == "forward")
          product.reset(new Product(device, info.parallel, ENG_OP_LINEAR, {x, w, Tensor()}, {y}, {}));
        else if (kind == "dx")
          product.reset(new Product(device, info.parallel, ENG_OP_MATMUL, {y, w}, {x}, {{"ta", 0, 0}, {"tb", 0, 0}}));
        else if (kind == "dw")
          product.reset(new Product(device, info.parallel, ENG_OP_MATMUL, {y, x}, {w}, {{"ta", 1, 0}, {"tb", 0, 0}}));
        else
          throw std::runtime_error("forward, dx or dw, not " + kind);
        product->run.launch(), last = key;
      }
      const double start = now(info.parallel == 1);
      for (int64_t r = 0; r < count; ++r) product->run.launch();
      std::printf("%.9f\n", (now(info.parallel == 1) - start) / static_cast<double>(count));
    }
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
