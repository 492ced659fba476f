// SPDX-License-Identifier: Apache-2.0
// eng.attention/1, eng.attention_window/1 and their gradients.
#include <algorithm>
#include <iterator>

#include "../../common/documents.hpp"
#include "../../common/kernel.hpp"
#include "device.hpp"
#include "kernels.hpp"
#include "scores.hpp"
#include "shapes.hpp"
#include "threads.hpp"

namespace cpu {
namespace {

// q, k, v stand at `first` in the inputs.
AttentionShape shape_of(const Call& c, size_t first) {
  const eng_desc &q = c.in[first], &k = c.in[first + 1], &v = c.in[first + 2];
  if (q.ndim != 3 || k.ndim != 3 || v.ndim != 3) throw Error{ENG_INVALID, "q, k and v are (B, T, heads*D)"};
  const int64_t heads = c.integer("heads"), kv_heads = c.integer("kv_heads");
  if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0)
    throw Error{ENG_INVALID, std::to_string(heads) + " heads cannot share " + std::to_string(kv_heads) + " key heads"};
  if (q.dims[2] % heads != 0)
    throw Error{ENG_INVALID,
                std::to_string(q.dims[2]) + " columns of q are not a multiple of " + std::to_string(heads) + " heads"};
  const auto [window, cap] = bounds_of(c);
  const AttentionShape s{
      q.dims[0],    q.dims[1], heads, kv_heads, q.dims[2] / heads, static_cast<float>(c.real("scale")),
      stored_of(q), window,    cap};
  for (const eng_desc* x : {&k, &v}) {
    need_size("batch of k or v", x->dims[0], s.batch);
    need_size("length of k or v", x->dims[1], s.tokens);
    need_size("columns of k or v", x->dims[2], kv_heads * s.width);
  }
  return s;
}

template <bool window>
struct Attention {
  static constexpr const char* op = window ? ENG_OP_ATTENTION_WINDOW : ENG_OP_ATTENTION;
  const Isa* isa;
  AttentionShape shape;
  unsigned threads;
  int64_t parts;  // of the query blocks of one key head

  static void check(const Call& c) {
    need_arguments(c, 3, 4, 2), need_one_type(c, 3), need_numbers(c, 3, c.in[0], "segments");
    need_same_type(c.in[0], c.out[0], "q and o"), need_f32(c.out[1], "lse");
    const AttentionShape s = shape_of(c, 0);
    need_size("elements of o", elements(c.out[0]), elements(c.in[0]));
    need_size("elements of lse", elements(c.out[1]), s.batch * s.heads * s.tokens);
  }
  static uint64_t workspace(const Call& c) { return c.parallel * shape_of(c, 0).forward_scratch(); }
  Attention(const Call& c, void* device)
      : isa(device_of(device).isa), shape(shape_of(c, 0)), threads(c.parallel), parts(1) {
    // Few key heads for many threads: a head's query blocks are shared out. No result depends on that.
    const int64_t key_heads = std::max<int64_t>(shape.batch * shape.kv_heads, 1);
    if (threads > 1 && key_heads < 2 * int64_t{threads})
      parts = std::clamp<int64_t>((2 * int64_t{threads} + key_heads - 1) / key_heads, 1,
                                  std::max<int64_t>(shape.heads / shape.kv_heads * shape.query_blocks(), 1));
  }
  void run(const Args& a) const {
    parallel_tasks(threads, shape.batch * shape.kv_heads * parts, [&](unsigned thread, int64_t task) {
      const int64_t part = task % parts, head = task / parts % shape.kv_heads, b = task / parts / shape.kv_heads;
      isa->attention_forward(shape, b, head, part, parts, segments_of(a, 3, b, shape.tokens), a.in<void>(0),
                             a.in<void>(1), a.in<void>(2), a.out<void>(0), a.out<float>(1),
                             a.scratch<char>() + thread * shape.forward_scratch());
    });
  }
};

template <bool window>
struct AttentionGrad {
  static constexpr const char* op = window ? ENG_OP_ATTENTION_WINDOW_GRAD : ENG_OP_ATTENTION_GRAD;
  const Isa* isa;
  AttentionShape shape;
  unsigned threads;

  static void check(const Call& c) {
    need_arguments(c, 6, 7, 3), need_one_type(c, 5), need_f32(c.in[5], "lse"), need_numbers(c, 6, c.in[1], "segments");
    for (size_t k = 0; k < 3; ++k) need_same_type(c.in[0], c.out[k], "do and a gradient");
    const AttentionShape s = shape_of(c, 1);
    need_size("elements of do", elements(c.in[0]), elements(c.in[1]));
    need_size("elements of o", elements(c.in[4]), elements(c.in[1]));
    need_size("elements of lse", elements(c.in[5]), s.batch * s.heads * s.tokens);
    for (size_t k = 0; k < 3; ++k)
      need_size("elements of output " + std::to_string(k), elements(c.out[k]), elements(c.in[k + 1]));
  }
  static uint64_t workspace(const Call& c) { return c.parallel * shape_of(c, 1).backward_scratch(); }
  AttentionGrad(const Call& c, void* device) : isa(device_of(device).isa), shape(shape_of(c, 1)), threads(c.parallel) {}
  void run(const Args& a) const {
    parallel_tasks(threads, shape.batch * shape.kv_heads, [&](unsigned thread, int64_t task) {
      const int64_t b = task / shape.kv_heads;
      isa->attention_backward(shape, b, task % shape.kv_heads, segments_of(a, 6, b, shape.tokens), a.in<void>(0),
                              a.in<void>(1), a.in<void>(2), a.in<void>(3), a.in<void>(4), a.in<float>(5),
                              a.out<void>(0), a.out<void>(1), a.out<void>(2),
                              a.scratch<char>() + thread * shape.backward_scratch());
    });
  }
};

}  // namespace

const eng_kernel* const attention_kernels[] = {&kernel<Attention<false>>, &kernel<AttentionGrad<false>>,
                                               &kernel<Attention<true>>, &kernel<AttentionGrad<true>>};
const uint32_t attention_kernel_count = std::size(attention_kernels);

}  // namespace cpu
