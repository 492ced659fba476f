// SPDX-License-Identifier: Apache-2.0
// The products of engine/ops_fp8.h. A factor is rounded into scratch, a byte for each value, the terms beside each
// other and filled up with zeros to a multiple of 16; then cuBLASLt multiplies. Sizes that it does not take are
// multiplied here, as bf16, which has every value of both formats.
#include "../../common/cuda/tiles.hpp"
#include "fp8.cuh"

namespace fp8 {
namespace on_cuda {

// The numbers of a factor: it is multiplied by 2^n when it is rounded, and the product by 2^-n.
struct Factor {
  const float *parts, *scale;  // scale: of a state; null: there is none
  int count;
  bool e4m3;
  float *up, *down;
};
// A block for each of the two.
__global__ void decide(Factor a, Factor b, int margin) {
  const bool second = blockIdx.x != 0;  // a reference to one of the two would lie in local memory
  const float* const scale = second ? b.scale : a.scale;
  float up = scale ? *scale : 0.0f;
  if (!(up > 0)) {
    const float mine = largest_of_thread(second ? b.parts : a.parts, second ? b.count : a.count),
                largest = max_of_block(mine, shared<Warps>().at);
    up = scale_of(second ? b.e4m3 : a.e4m3, largest, margin);
  }
  const uint32_t exponent = bits_of<uint32_t>(up) >> 23;
  if (threadIdx.x > 0) return;
  *(second ? b.up : a.up) = bits_of<float>(exponent << 23);
  *(second ? b.down : a.down) = bits_of<float>((254 - exponent) << 23);
}

// ---- rounding --------------------------------------------------------------------------------------------------

// out (rows, padded) of x (rows, terms).
template <class T, bool e4m3>
struct Round {
  static constexpr int width = 16;
  const T* x;
  uint8_t* out;
  const float* up;
  int64_t terms, padded;
  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    const float by = *up;
    Pack<uint8_t, W> pack;
    if (terms == padded) {
      constexpr int part = W < widest<T> ? W : widest<T>;
      ENG_UNROLL
      for (int k = 0; k < W; k += part) {
        float v[part];
        load<part, Nan::any>(x + row * terms + column + k, v);
        for (int i = 0; i < part; ++i) pack.at[k + i] = as_fp8<e4m3>(v[i], by);
      }
    } else {
      for (int k = 0; k < W; ++k)
        pack.at[k] = as_fp8<e4m3>(column + k < terms ? to_f32<Nan::any>(x[row * terms + column + k]) : 0.0f, by);
    }
    store_pack(out + row * padded + column, pack);
  }
};

constexpr int side = tile;
struct Turned {
  uint8_t at[side][side + 4];  // lines begin in different banks
};
// out (columns, padded) of x (terms, columns). blockIdx: a tile of terms, and one of columns.
template <class T, bool e4m3>
__global__ void round_turned(const T* x, uint8_t* out, const float* up, int64_t terms, int64_t columns,
                             int64_t padded) {
  Turned& tile = shared<Turned>();
  const int thread = static_cast<int>(threadIdx.x), line = thread / 16, beside = thread % 16 * 4;
  const float by = *up;
  const bool vectors = columns % 4 == 0;
  const int64_t term = int64_t{blockIdx.x} * side, first = int64_t{blockIdx.y} * side;
  ENG_UNROLL
  for (int l = line; l < side; l += block / 16) {
    const int64_t t = term + l, c = first + beside;
    float v[4] = {};
    if (t < terms && vectors && c < columns)
      load<4, Nan::any>(x + t * columns + c, v);
    else if (t < terms)
      for (int k = 0; k < 4; ++k) v[k] = c + k < columns ? to_f32<Nan::any>(x[t * columns + c + k]) : 0.0f;
    for (int k = 0; k < 4; ++k) tile.at[beside + k][l] = as_fp8<e4m3>(v[k], by);
  }
  __syncthreads();
  ENG_UNROLL
  for (int l = line; l < side; l += block / 16)
    if (first + l < columns && term + beside < padded)
      store_pack(out + (first + l) * padded + term + beside, load_pack<4>(&tile.at[l][beside]));
}

// ---- products of other sizes -----------------------------------------------------------------------------------

template <class T, class C>
__global__ void __launch_bounds__(tile_block) multiply(Operands o, Product p) {
  auto& factors = shared<cuda::Factors<bf16>>();
  const int64_t row = int64_t{blockIdx.y} * tile, column = int64_t{blockIdx.x} * tile;
  const auto *const a = static_cast<const uint8_t*>(o.a), *const b = static_cast<const uint8_t*>(o.b);
  Sums<bf16> sums;
  for (int64_t term = 0; term < p.k; term += tile) {
    const auto left = [&](int i, int j) {
      return row + i < p.m && term + j < p.k ? from_fp8(p.a, a[(row + i) * p.k + term + j]) : 0.0f;
    };
    factors.fill(left, [&](int i, int j) {
      return column + i < p.n && term + j < p.k ? from_fp8(p.b, b[(column + i) * p.k + term + j]) : 0.0f;
    });
    __syncthreads();
    factors.template add_to<true, true>(sums, left);
    __syncthreads();
  }
  const float down = o.scales[0] * o.scales[b_scale];
  sums.each([&](int i, int j, float sum) {
    if (row + i >= p.m || column + j >= p.n) return;
    const int64_t at = (row + i) * p.n + column + j;
    sum *= down;
    if (o.bias) sum += to_f32(static_cast<const T*>(o.bias)[column + j]);
    if (o.acc) sum += to_f32(static_cast<const C*>(o.acc)[at]);
    from_f32(sum, static_cast<C*>(o.c)[at]);
  });
}

// y += bias, where the library has no bias of its type.
struct AddBias {
  const float* bias;
  float* y;
  int64_t columns;
  template <int W>
  __device__ void at(int64_t row, int64_t column) const {
    float sum[W], more[W];
    load<W>(y + row * columns + column, sum), load<W>(bias + column, more);
    for (int k = 0; k < W; ++k) sum[k] += more[k];
    store<W>(y + row * columns + column, sum);
  }
};

// ---- ops -------------------------------------------------------------------------------------------------------

template <class N>
N filled(N n, N to) {
  return (n + to - 1) / to * to;
}
constexpr int64_t most_lines = int64_t{65535} * side;  // of a grid
unsigned tiles_of(int64_t n) {
  return static_cast<unsigned>((n + side - 1) / side);
}

// c = op(a) op(b) of two tensors.
struct Rounded {
  struct Side {
    bool turned;    // the terms are its rows
    int64_t scale;  // the element of the state with its scale; -1: there is none
  };
  Product p;
  int64_t terms;  // which p.k are, filled up
  Side a, b;
  int margin;
  uint64_t library_bytes;
  mutable std::shared_ptr<const Algorithm> algorithm = nullptr;  // of all bound uses

  // Bytes of the scratch: the library's, scales and parts of two largest values, a and b.
  uint64_t numbers_at() const { return filled<uint64_t>(library_bytes, 256); }
  uint64_t a_at() const { return numbers_at() + sizeof(float) * 2 * (64 + most_parts); }
  uint64_t b_at() const { return a_at() + filled<uint64_t>(static_cast<uint64_t>(p.m * p.k), 256); }
  uint64_t bytes() const { return b_at() + static_cast<uint64_t>(p.n * p.k); }

  void choose(const Operands& o, const void* scratch) const {
    Product by_library = p;
    by_library.bias = p.bias && p.type != ENG_F32;
    if (prepare) algorithm = prepare(by_library, library_bytes, o, scratch);
  }
  void run(Operands o, const float* state, void* scratch, cudaStream_t stream) const {
    char* const at = static_cast<char*>(scratch);
    float *const numbers = reinterpret_cast<float*>(at + numbers_at()), *const up = numbers + 64,
                 *const parts = numbers + 128;
    auto *const a8 = reinterpret_cast<uint8_t*>(at + a_at()), *const b8 = reinterpret_cast<uint8_t*>(at + b_at());
    const auto scale = [&](const Side& s) { return state && s.scale >= 0 ? state + s.scale : nullptr; };
    by_type(p.type, [&]<class T>(T) {
      const auto *const x = static_cast<const T*>(o.a), *const y = static_cast<const T*>(o.b);
      const int a_parts = largest(x, p.m * terms, scale(a), parts, stream),
                b_parts = largest(y, p.n * terms, scale(b), parts + most_parts, stream);
      launch<decide>(
          2, block, sizeof(Warps), stream, Factor{parts, scale(a), a_parts, p.a == ENG_FP8_E4M3, up, numbers},
          Factor{parts + most_parts, scale(b), b_parts, p.b == ENG_FP8_E4M3, up + 1, numbers + b_scale}, margin);
      round(x, p.a, a, p.m, up, a8, stream), round(y, p.b, b, p.n, up + 1, b8, stream);
      o.a = a8, o.b = b8, o.scales = numbers;
      multiply_rounded<T>(o, scratch, stream);
    });
  }

 private:
  template <class T>
  void round(const T* x, int32_t format, const Side& s, int64_t lines, const float* up, uint8_t* out,
             cudaStream_t stream) const {
    const auto go = [&]<bool e4m3>() {
      if (!s.turned) return launch_rows(lines, p.k, stream, Round<T, e4m3>{x, out, up, terms, p.k});
      launch<round_turned<T, e4m3>>(dim3(tiles_of(p.k), tiles_of(lines)), block, sizeof(Turned), stream, x, out, up,
                                    terms, lines, p.k);
    };
    format == ENG_FP8_E4M3 ? go.template operator()<true>() : go.template operator()<false>();
  }
  template <class T>
  void multiply_rounded(const Operands& o, void* scratch, cudaStream_t stream) const {
    if (!algorithm) {
      const dim3 grid(tiles_of(p.n), tiles_of(p.m));
      const auto kernel = p.result == ENG_F32 ? launch<multiply<T, float>, Operands, Product>
                                              : launch<multiply<T, T>, Operands, Product>;
      return kernel(grid, tile_block, sizeof(cuda::Factors<bf16>), stream, o, p);
    }
    algorithm->run(o, scratch, stream);
    if (o.bias && p.type == ENG_F32)
      launch_rows(p.m, p.n, stream, AddBias{static_cast<const float*>(o.bias), static_cast<float*>(o.c), p.n});
  }
};

// eng.fp8.linear/1, which is a matmul with tb and with input 2 as a bias, and eng.fp8.matmul/1.
template <bool linear>
struct Multiply {
  static constexpr const char* op = linear ? ENG_OP_FP8_LINEAR : ENG_OP_FP8_MATMUL;
  Rounded product;
  static void check(const Call& c) {
    if (c.device.arch && c.device.arch < 89)
      throw Error{ENG_UNSUPPORTED, "fp8 needs a GPU of sm_89 (Ada) or newer, and this one is of sm_" +
                                       std::to_string(c.device.arch) + ": leave out the transform fp8"};
    need_counts(c, 2, 4, 1, 1), need_float(c.in[0], linear ? "x" : "a");
    need_type(c.in[1], c.in[0].dtype, linear ? "w" : "b"), need_state(c, 3), need_margin(c);
    for (const char* key : {linear ? "gradients" : "a", linear ? "gradients" : "b"})
      need_format(c.integer_or(key, linear ? ENG_FP8_E5M2 : 0));
    for (const char* row : {"a_row", "b_row"})
      need(linear || !c.has(3) || (c.integer(row) >= 0 && c.integer(row) < 3), "a row of the state must be 0 to 2");
    const Rounded r = of(c);
    need((r.b.turned ? rows(c.in[1]) : columns(c.in[1])) == r.terms, "the inner sizes of op(a) and op(b) must agree");
    if (std::max(r.p.m, r.p.n) > most_lines) throw Error{ENG_UNSUPPORTED, "the result has too many rows or columns"};
    need(rows(c.out[0]) == r.p.m && columns(c.out[0]) == r.p.n, "the result must be (M, N)");
    if (linear) need_type(c.out[0], c.in[0].dtype, "y"), need_optional(c, 2, c.in[0].dtype, r.p.n, "bias");
    if (!linear) need_sum(c, c.in[0].dtype, 0, "the result", 2);
  }
  static Rounded of(const Call& c) {
    const bool ta = !linear && c.integer("ta") != 0, tb = linear || c.integer("tb") != 0;
    const auto format = [&](const char* key) { return linear ? ENG_FP8_E4M3 : static_cast<int32_t>(c.integer(key)); };
    const auto scale = [&](const char* row, int64_t own) {
      return c.has(3) ? (linear ? own : c.integer(row)) * columns(c.in[3]) : -1;
    };
    const eng_desc &a = c.in[0], &b = c.in[1];
    const int64_t terms = ta ? rows(a) : columns(a);
    return {{format("a"), format("b"), a.dtype, c.out[0].dtype, ta ? columns(a) : rows(a), tb ? rows(b) : columns(b),
             filled<int64_t>(terms, 16), linear && c.has(2)},
            terms,
            {ta, scale("a_row", 0)},
            {!tb, scale("b_row", 1)},
            static_cast<int>(c.integer_or("margin", 0)),
            c.device.settings[0]};  // [device] workspace of the device cuda
  }
  static uint64_t workspace(const Call& c) { return of(c).bytes(); }
  explicit Multiply(const Call& c) : product(of(c)) {}
  static Operands operands(const Args& a) {
    const void* const third = a.in<void>(2);
    return {a.in<void>(0), a.in<void>(1), linear ? nullptr : third, linear ? third : nullptr, nullptr, a.out<void>(0)};
  }
  void run(const Args& a, cudaStream_t stream) const { product.run(operands(a), a.in<float>(3), a.workspace, stream); }
};
// The library chooses when addresses are known: they tell the GPU, and must be aligned.
template <bool linear>
struct Bindable : Placed<Multiply<linear>> {
  using Base = Placed<Multiply<linear>>;
  using Base::Base;
  struct Bound : Base::Bound {
    Bound(const Bindable& k, const Args& a) : Base::Bound(k, a) { k.product.choose(k.operands(a), a.workspace); }
  };
};

}  // namespace on_cuda

void add_product(std::vector<const eng_kernel*>& list) {
  using namespace on_cuda;
  list.insert(list.end(), {&common::kernel<Bindable<true>>, &common::kernel<Bindable<false>>});
}

}  // namespace fp8
