// SPDX-License-Identifier: Apache-2.0
// A launch never reaches malloc.
#include <catch2/catch.hpp>

#include "../sanitized.hpp"
#include "fast_device.hpp"

#ifndef SANITIZED
#include <atomic>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {
std::atomic<bool> counting{false};
std::atomic<int> calls{0};
void count() {
  if (counting.load(std::memory_order_relaxed)) calls.fetch_add(1, std::memory_order_relaxed);
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
int posix_memalign(void** p, size_t a, size_t n) {
  count();
  *p = __libc_memalign(a, n);
  return *p ? 0 : 12;
}
}

namespace {

using fast::random_tensor;
using fast::Run;
using fast::Tensor;

// Calls of malloc and its kin in a launch, when the first launches are over.
int counted(Run& run) {
  run.launch();  // starts the threads
  calls = 0;
  counting = true;
  for (int k = 0; k < 5; ++k) run.launch();
  counting = false;
  return calls;
}

}  // namespace

TEST_CASE("the counter sees an allocation", "[cpu]") {
  calls = 0;
  counting = true;
  void* volatile p = malloc(100);
  counting = false;
  std::free(p);
  REQUIRE(calls == 1);
}

TEST_CASE("launches do not allocate", "[cpu]") {
  for (const uint32_t threads : {1U, 2U}) {
    const fast::Device device(threads);
    const int64_t n = 256, h = 128, v = 500;
    const Tensor x = random_tensor({1, n, h}, 1), w = random_tensor({v, h}, 2), y({1, n, v}),
                 bias = random_tensor({v}, 3);
    const Tensor dx({1, n, h}), dw({v, h}), loss({1}), scalars = random_tensor({ENG_S_COUNT}, 4);
    const Tensor labels({1, n}, ENG_I32);
    for (int64_t t = 0; t < n; ++t) labels.ints()[t] = static_cast<int32_t>(t);
    const Tensor o({1, n, h}), lse({1, 4, n}), dq({1, n, h}), dk({1, n, h}), dv({1, n, h});
    const std::vector<eng_attr> heads = {{"heads", 4, 0}, {"kv_heads", 4, 0}, {"scale", 0, 0.2}};
    Run linear(device, threads, ENG_OP_LINEAR, {x, w, bias}, {y});
    Run weight(device, threads, ENG_OP_MATMUL, {y, x, dw}, {dw}, {{"ta", 1, 0}, {"tb", 0, 0}});
    Run sums(device, threads, ENG_OP_SUM_ROWS, {y, Tensor()}, {bias});
    const Tensor mask({1, n, eng_relu_mask_bytes(v)}, ENG_U8), dlast({1, n, h}), last_w({h, v});
    Run relu(device, threads, ENG_OP_LINEAR_RELU, {x, w, bias}, {y, mask});
    Run relu_grad(device, threads, ENG_OP_MATMUL_RELU_GRAD, {dlast, last_w, mask}, {y, bias}, {{"sums", 1, 0}});
    Run attention(device, threads, ENG_OP_ATTENTION, {x, x, x}, {o, lse}, heads);
    Run attention_grad(device, threads, ENG_OP_ATTENTION_GRAD, {x, x, x, x, o, lse}, {dq, dk, dv}, heads);
    const Tensor segments(labels.clone()), angles = random_tensor({n, h / 4}, 8), places({n, h});
    for (int64_t t = 0; t < n; ++t) segments.ints()[t] = static_cast<int32_t>(t / 50);
    Run packed(device, threads, ENG_OP_ATTENTION, {x, x, x, segments}, {o, lse}, heads);
    Run packed_grad(device, threads, ENG_OP_ATTENTION_GRAD, {x, x, x, x, o, lse, segments}, {dq, dk, dv}, heads);
    Run rope(device, threads, ENG_OP_ROPE, {x, angles, labels}, {o}, {{"heads", 4, 0}, {"inverse", 0, 0}});
    Run positions_grad(device, threads, ENG_OP_POSITIONS_GRAD, {x, Tensor(), labels}, {places},
                       {{"offset", 0, 0}, {"rows", n, 0}});
    Run head(device, threads, ENG_OP_CROSS_ENTROPY_GRAD, {x, w, labels, scalars, Tensor()}, {loss, dx, dw});
    const Tensor z({1, n, h}), stats({1, n, 2}), hw = random_tensor({h}, 5), dhw({h}), dbias({h}), none;
    Tensor counters({ENG_C_COUNT * 2});  // i64 (8)
    counters.desc.dtype = ENG_I64, counters.desc.dims[0] = ENG_C_COUNT;
    Run norm(device, threads, ENG_OP_LAYER_NORM, {x, hw, hw, none}, {z, stats}, {{"eps", 0, 1e-5}});
    Run norm_grad(device, threads, ENG_OP_LAYER_NORM_GRAD, {x, x, hw, stats, none, none, none}, {dx, dhw, dbias},
                  {{"bias", 1, 0}});
    Run act(device, threads, ENG_OP_ACTIVATION, {x}, {z}, {{"act", ENG_ACT_GELU, 0}});
    Run dropout(device, threads, ENG_OP_DROPOUT, {x, counters}, {z}, {{"p", 0, 0.1}, {"seed", 1, 0}, {"stream", 1, 0}});
    const Tensor hx({1, n, h}, ENG_BF16), hdx({1, n, h}, ENG_BF16), hscale({h}, ENG_BF16), hdw({h}, ENG_BF16),
        hdbias({h}, ENG_BF16), table({v, h}, ENG_BF16);
    for (const Tensor& t : {hx, hscale}) std::memset(t.data(), 0x3f, static_cast<size_t>(t.count) * 2);  // about 0.75
    Run half_grad(device, threads, ENG_OP_LAYER_NORM_GRAD, {hx, hx, hscale, stats, none, none, none},
                  {hdx, hdw, hdbias}, {{"bias", 1, 0}});
    Run half_table(device, threads, ENG_OP_EMBEDDING_GRAD, {labels, hx, none}, {table}, {{"rows", v, 0}});
    const Tensor p = random_tensor({n * h}, 6), moment(p.clone()), w16({n * h}, ENG_BF16), codes({n * h}, ENG_U8);
    const Tensor scales = random_tensor({n * h / 256}, 7);
    const std::vector<eng_attr> adam = {
        {"beta1", 0, 0.9}, {"beta2", 0, 0.95}, {"eps", 0, 1e-8}, {"weight_decay", 0, 0.1}, {"weight", ENG_BF16, 0}};
    Run adamw(device, threads, ENG_OP_ADAMW, {p, x, moment, moment, scalars}, {p, moment, moment, w16}, adam);
    Run adamw8bit(device, threads, "eng.adamw8bit.update/1", {p, x, codes, scales, codes, scales, scalars},
                  {p, codes, scales, codes, scales, w16}, adam);
    std::vector<eng_attr> rounding(adam.begin(), adam.end() - 1);
    for (const char* key : {"seed", "stream", "first"}) rounding.push_back({key, 0, 0});
    Run rounded(device, threads, ENG_OP_ADAMW, {w16, x, w16, w16, scalars, counters}, {w16, w16, w16}, rounding);
    const std::vector<eng_attr> halves = {{"axis", 1, 0}, {"parts", 2, 0}};
    const Tensor half({1, n / 2, h}), upper(half.clone()), turned({1, h, n});
    Run split(device, threads, ENG_OP_SPLIT, {x}, {half, upper}, halves);
    Run joined(device, threads, ENG_OP_CONCAT, {half, upper}, {x}, halves);
    Run transposed(device, threads, ENG_OP_TRANSPOSE, {x}, {turned}, {{"a", 1, 0}, {"b", 2, 0}});
    Run reshaped(device, threads, ENG_OP_RESHAPE, {x}, {turned}, {{"keep", 1, 0}, {"ndim", 1, 0}, {"dim0", -1, 0}});
    INFO("threads " << threads);
    for (Run* run : {&split, &joined, &transposed, &reshaped}) CHECK(counted(*run) == 0);
    CHECK(counted(adamw) == 0);
    CHECK(counted(rounded) == 0);
    CHECK(counted(adamw8bit) == 0);
    CHECK(counted(norm) == 0);
    CHECK(counted(norm_grad) == 0);
    CHECK(counted(act) == 0);
    CHECK(counted(half_grad) == 0);
    CHECK(counted(half_table) == 0);
    CHECK(counted(dropout) == 0);
    for (Run* run : {&packed, &packed_grad, &rope, &positions_grad}) CHECK(counted(*run) == 0);
    CHECK(counted(linear) == 0);
    CHECK(counted(weight) == 0);
    CHECK(counted(sums) == 0);
    CHECK(counted(relu) == 0);
    CHECK(counted(relu_grad) == 0);
    CHECK(counted(attention) == 0);
    CHECK(counted(attention_grad) == 0);
    CHECK(counted(head) == 0);
  }
}

#endif
