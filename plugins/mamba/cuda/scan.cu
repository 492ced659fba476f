// SPDX-License-Identifier: Apache-2.0
// selective_scan and its step (Gu and Dao 2023): one pass, the states in registers.
#include "scan.cuh"

namespace mamba {
namespace on_cuda {

// Tokens whose values are loaded at once: none of them waits for the states. More f32 would not fit into the registers.
template <class T>
constexpr int ahead = sizeof(T) == 4 ? 2 : 4;

enum class Pass { whole, step, ends };  // ends: of each span but the last, only what it leaves in the states

// S states in each lane. `kept`: the states before each chunk, or, for a step, those
// that running sequences go on with. `ends` begins with states of 0, and writes those after the span to the place of
// those before the next one, and to `steps` (B, spans, E), likewise, the sum of its steps.
template <class T, int S, int lanes, Pass pass>
__global__ void __launch_bounds__(scan_block, lanes > 1 ? 3 : 4) scan(ScanOf<T> p, T* y, float* kept, float* steps) {
  float* const tile = shared<float[scan_tile * 2 * most_states]>();
  const ScanSizes& s = p.s;
  const Place<S, lanes> me(s, blockIdx.x);
  constexpr int width = 2 * S * lanes;
  float rate[S];
  me.load_rates(p.a_log, rate);
  const float bias = p.dt_bias[me.e], d = p.d[me.e];
  const int64_t spans = pass == Pass::ends ? s.spans - 1 : s.spans;
  for (int64_t b = blockIdx.z; b < s.batch; b += gridDim.z)
    for (int64_t q = blockIdx.y; q < spans; q += gridDim.y) {
      const int64_t begin = s.first(q), end = s.end(q), at = s.at(b, begin, me.e);
      const auto kept_row = [&](int64_t of_chunk) { return pass == Pass::step ? b : b * s.chunks + of_chunk; };
      float h[S] = {}, all_steps = 0;
      unsigned cut = 0;
      if (pass == Pass::step || (pass == Pass::whole && q > 0)) me.load(kept, kept_row(q * s.span), h);
      const T *u = p.u + at, *delta = p.delta + at, *gate = p.gate + s.gate_at(b, begin, me.e);
      T* out = y + at;
      // The next tokens, whose B and C begin at `row`.
      const auto go = [&]<int count>(const float* row) {
        float by[count], x[count], z[count];
        ENG_UNROLL
        for (int k = 0; k < count; ++k, u += s.channels, delta += s.channels, gate += s.stride)
          by[k] = value(*delta), x[k] = value(*u), z[k] = pass == Pass::ends ? 0.0f : value(*gate);
        ENG_UNROLL
        for (int k = 0; k < count; ++k, row += width, out += s.channels) {
          by[k] = softplus(by[k] + bias), all_steps += by[k];
          const float input = by[k] * x[k];
          float sum = 0;
          ENG_UNROLL
          for (int n = 0; n < S; ++n) {
            h[n] = fmaf(exp2_approx(by[k] * rate[n]), h[n], input * row[n]);
            if (pass != Pass::ends) sum = fmaf(row[width / 2 + n], h[n], sum);
          }
          if constexpr (pass != Pass::ends) {
            sum = sum_of_lanes<lanes>(sum);
            if (me.lane == 0 && me.there) put(fmaf(d, x[k], sum) * (z[k] * sigmoid(z[k])), *out);
          }
        }
      };
      for (int64_t first = begin; first < end; first += scan_tile) {
        const unsigned begins = load_tile<pass != Pass::step, scan_tile, width>(p, b, first, end, tile, [] {});
        cut |= begins;
        const int count = end - first < scan_tile ? static_cast<int>(end - first) : scan_tile;
        for (int k = 0; k < count;) {
          const float* const bc = tile + me.first;
          if (begins >> k & 1) {
            ENG_UNROLL
            for (int n = 0; n < S; ++n) h[n] = 0;
          }
          if (pass == Pass::whole && k == 0 && first % chunk == 0) me.store(h, kept, kept_row(first / chunk));
          const unsigned later = begins >> k >> 1;
          const int to = later ? k + __ffs(static_cast<int>(later)) : count;  // up to the next document
          ENG_ROLL
          for (; k + ahead<T> <= to; k += ahead<T>) go.template operator()<ahead<T>>(bc + k * width);
          ENG_ROLL
          for (; k < to; ++k) go.template operator()<1>(bc + k * width);
        }
      }
      if (pass != Pass::whole) me.store(h, kept, kept_row((q + 1) * s.span));
      if (pass == Pass::ends && me.there && me.lane == 0)
        steps[(b * s.spans + q + 1) * s.channels + me.e] = cut ? cut_span : all_steps;
    }
}

template <bool step>
struct Scan {
  static constexpr const char* op = step ? MAMBA_OP_SCAN_STEP : MAMBA_OP_SCAN;
  static constexpr int states = 16;      // of a lane
  static constexpr size_t segments = 9;  // a step has none
  int32_t type;
  ScanSizes s;
  static int lanes_of(int64_t of_channel) { return of_channel <= states ? 1 : most_states / states; }
  static ScanSizes sizes(const Call& c) { return scan_sizes(c, 0, lanes_of, !step); }
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
    by_type(type, [&]<class T>(T) {
      if (s.states <= 8)
        run_by<T, 8, 1>(a, stream);
      else if (s.lanes == 1)
        run_by<T, states, 1>(a, stream);
      else
        run_by<T, states, most_states / states>(a, stream);
    });
  }
  template <class T, int S, int lanes>
  void run_by(const Args& a, cudaStream_t stream) const {
    constexpr size_t bytes = sizeof(float[scan_tile * 2 * most_states]);
    const ScanOf<T> p = scan_of<T>(a, 0, s, step ? nullptr : a.in<int32_t>(segments));
    T* const y = a.out<T>(0);
    float *const kept = a.out<float>(1), *const steps = a.scratch<float>();
    const auto grid = [&](int64_t spans) { return grid_of(s.groups(), 1, spans, s.batch); };
    if (s.spans > 1) {
      launch<scan<T, S, lanes, Pass::ends>>(grid(s.spans - 1), scan_block, bytes, stream, p, y, kept, steps);
      launch_each(s.batch * s.states * s.channels, stream, HandOver{p.a_log, steps, kept, s.chunks, s.span, false, s});
    }
    launch<scan<T, S, lanes, step ? Pass::step : Pass::whole>>(grid(s.spans), scan_block, bytes, stream, p, y, kept,
                                                               steps);
  }
};

}  // namespace on_cuda

void add_scan(std::vector<const eng_kernel*>& list) {
  using namespace on_cuda;
  list.insert(list.end(), {&kernel<Scan<false>>, &kernel<Scan<true>>});
}

}  // namespace mamba
