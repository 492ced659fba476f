// SPDX-License-Identifier: Apache-2.0
// selective_scan and its step (Gu and Dao 2023): one pass, the states in registers.
#include "scan.cuh"

namespace mamba {
namespace on_cuda {

enum class Pass { whole, step, ends };  // ends: of each span but the last, only what it leaves in the states

// Rows that the threads of a block compute together: the step, the input, the gate's factor, and the sum over the
// states.
struct Rows {
  enum { steps, inputs, gates, sums, count };
};

template <int lanes>
struct alignas(16) ScanShared {
  float bc[scan_tile * 2 * lane_states * lanes], rows[Rows::count * scan_tile * (scan_block / lanes)];
};

// `kept`: the states before each chunk, or, for a step, those that running sequences go on with. `ends` begins with
// states of 0, and writes those after the span to the place of those before the next one, and to `steps` (B, spans, E),
// likewise, the sum of its steps.
template <class T, int lanes, Pass pass>
__global__ void __launch_bounds__(scan_block, 4) scan(ScanOf<T> p, T* y, float* kept, float* steps) {
  constexpr int tile = pass == Pass::step ? 1 : scan_tile;
  ScanShared<lanes>& room = shared<ScanShared<lanes>>();
  const ScanSizes& s = p.s;
  const Lane<lanes, tile> me(p, blockIdx.x, room.bc, room.rows);
  float rate[lane_states];
  me.load_rates(p.a_log, rate);
  const float d = me.of_e < s.channels ? p.d[me.of_e] : 0.0f;
  const int64_t spans = pass == Pass::ends ? s.spans - 1 : s.spans;
  for (int64_t b = blockIdx.z; b < s.batch; b += gridDim.z)
    for (int64_t q = blockIdx.y; q < spans; q += gridDim.y) {
      const int64_t begin = s.first(q), end = s.end(q);
      const auto kept_row = [&](int64_t of_chunk) { return pass == Pass::step ? b : b * s.chunks + of_chunk; };
      float h[lane_states] = {}, all_steps = 0;
      unsigned cut = 0;
      if (pass == Pass::step || (pass == Pass::whole && q > 0)) me.load(kept, kept_row(q * s.span), h);
      // The next tokens, from k on; where there are several, none of their loads waits for the states.
      const auto go = [&]<int count>(int k) {
        float sum[count];
        ENG_UNROLL
        for (int i = 0; i < count; ++i) {
          const float by = me.own[me.at(Rows::steps, k + i)], in = by * me.own[me.at(Rows::inputs, k + i)];
          float b_t[lane_states], c_t[lane_states] = {};
          load<lane_states>(me.bc + (k + i) * me.width + me.first, b_t);
          if (pass != Pass::ends) load<lane_states>(me.bc + (k + i) * me.width + me.half + me.first, c_t);
          sum[i] = 0, all_steps += by;
          for (int n = 0; n < lane_states; ++n) {
            h[n] = fmaf(exp2_approx(by * rate[n]), h[n], in * b_t[n]);
            sum[i] = fmaf(c_t[n], h[n], sum[i]);
          }
        }
        if constexpr (pass != Pass::ends) {
          for (int i = 0; i < count; ++i) {
            const float all = sum_of_lanes<lanes>(sum[i]);
            if (me.lane == 0) me.own[me.at(Rows::sums, k + i)] = all;
          }
        }
      };
      for (int64_t first = begin; first < end; first += tile) {
        const int count = end - first < tile ? static_cast<int>(end - first) : tile;
        const int computed = me.of_e < s.channels ? count - me.token : 0;  // the thread's tokens: 0, lanes, .. below it
        const int64_t at = s.at(b, first + me.token, me.of_e);
        const unsigned begins = load_tile<pass != Pass::step, tile, me.width>(p, b, first, end, me.bc, [&] {
          const T *u = p.u + at, *delta = p.delta + at;
          const T* gate = p.gate + s.gate_at(b, first + me.token, me.of_e);
          me.each([&](int k) {
            const bool there = k < computed;
            me.of_column(Rows::inputs, k) = there ? value(*u) : 0.0f;
            me.of_column(Rows::steps, k) = there ? softplus(value(*delta) + me.bias) : 0.0f;
            if constexpr (pass != Pass::ends) {
              const float z = there ? value(*gate) : 0.0f;
              me.of_column(Rows::gates, k) = z * sigmoid(z);
            }
            u += lanes * s.channels, delta += lanes * s.channels, gate += lanes * s.stride;
          });
        });
        cut |= begins;
        for (int k = 0; k < count;) {
          if (begins >> k & 1) {
            for (int n = 0; n < lane_states; ++n) h[n] = 0;
          }
          if (pass == Pass::whole && k == 0 && first % chunk == 0) me.store(h, kept, kept_row(first / chunk));
          const unsigned later = begins >> k >> 1;
          const int to = later ? k + __ffs(static_cast<int>(later)) : count;  // up to the next document
          ENG_ROLL
          for (; k + 4 <= to; k += 4) go.template operator()<4>(k);
          ENG_ROLL
          for (; k < to; ++k) go.template operator()<1>(k);
        }
        if constexpr (pass != Pass::ends) {
          __syncthreads();
          T* out = y + at;
          me.each([&](int k) {
            const float all = fmaf(d, me.of_column(Rows::inputs, k), me.of_column(Rows::sums, k));
            if (k < computed) put(all * me.of_column(Rows::gates, k), *out);
            out += lanes * s.channels;
          });
        }
      }
      if (pass != Pass::whole) me.store(h, kept, kept_row((q + 1) * s.span));
      if (pass == Pass::ends && me.e < s.channels && me.lane == 0)
        steps[(b * s.spans + q + 1) * s.channels + me.e] = cut ? cut_span : all_steps;
    }
}

template <bool step>
struct Scan {
  static constexpr const char* op = step ? MAMBA_OP_SCAN_STEP : MAMBA_OP_SCAN;
  static constexpr size_t segments = 9;  // a step has none
  int32_t type;
  ScanSizes s;
  static ScanSizes sizes(const Call& c) { return scan_sizes(c, 0, !step); }
  static void check(const Call& c) {
    need_counts(c, step ? 8 : 7, step ? 8 : 10, 2, 2), need_float(c.in[0], "u");
    need_types(c, c.in[0].dtype, {1, 3, 6}, {0}, "delta, bc, gate or y");
    need_types(c, ENG_F32, {2, 4, 5, step ? 7u : 5u}, {1}, "a_log, d, dt_bias or the states");
    const ScanSizes s = sizes(c);
    need_scan(c, 0, s), need_size(c.out[0], s.batch * s.tokens * s.channels, "y");
    need_size(c.out[1], s.batch * (step ? 1 : s.chunks) * s.states * s.channels, "the states");
    if (!step) need_segments(c, segments, s.batch * s.tokens);
  }
  static uint64_t workspace(const Call& c) {
    const ScanSizes s = sizes(c);
    return s.spans > 1 ? sizeof(float) * static_cast<uint64_t>(s.batch * s.spans * s.channels) : 0;
  }
  explicit Scan(const Call& c) : type(c.in[0].dtype), s(sizes(c)) {}
  void run(const Args& a, cudaStream_t stream) const {
    by_type(type, [&]<class T>(T) { by_lanes(s, [&]<int lanes>() { run_by<T, lanes>(a, stream); }); });
  }
  template <class T, int lanes>
  void run_by(const Args& a, cudaStream_t stream) const {
    constexpr size_t bytes = sizeof(ScanShared<lanes>);
    const ScanOf<T> p = scan_of<T>(a, 0, s, step ? nullptr : a.in<int32_t>(segments));
    T* const y = a.out<T>(0);
    float *const kept = a.out<float>(1), *const steps = a.scratch<float>();
    const auto grid = [&](int64_t spans) { return grid_of(s.groups(), 1, spans, s.batch); };
    if (s.spans > 1) {
      launch<scan<T, lanes, Pass::ends>>(grid(s.spans - 1), scan_block, bytes, stream, p, y, kept, steps);
      launch_each(s.batch * s.states * s.channels, stream, HandOver{p.a_log, steps, kept, s.chunks, s.span, false, s});
    }
    launch<scan<T, lanes, step ? Pass::step : Pass::whole>>(grid(s.spans), scan_block, bytes, stream, p, y, kept,
                                                            steps);
  }
};

}  // namespace on_cuda

void add_scan(std::vector<const eng_kernel*>& list) {
  using namespace on_cuda;
  list.insert(list.end(), {&kernel<Scan<false>>, &kernel<Scan<true>>});
}

}  // namespace mamba
