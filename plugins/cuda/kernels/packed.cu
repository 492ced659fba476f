// SPDX-License-Identifier: Apache-2.0
// pack and unpack, EXACT: frozen weights in the formats of engine/packed.h, one pass over what is read and written.
#include "../../common/packed.hpp"

#include "../../common/cuda/glue.hpp"
#include "list.hpp"

namespace cuda {
namespace packed {

constexpr int chunk = ENG_PACKED_CHUNK, lot = ENG_PACKED_BLOCK, lots = chunk / lot;  // a lot shares a scale

// Numbers that the host made: the levels of codes, or the middles between them.
template <int n>
struct Table {
  float at[n];
};

// The scale of lot k of the chunk that ends at `end`.
template <bool doubled>
__device__ __forceinline__ float scale_of(const uint8_t* end, int k) {
  const float* const scales = reinterpret_cast<const float*>(end);
  if constexpr (doubled)
    return scales[-1] * (static_cast<float>(end[k - 4 - lots]) / 255.0f);
  else
    return scales[k - lots];
}

constexpr int unpack_block = 256;

// A block decodes a chunk at a time. A thread stores 16 bytes at once, and loads as many codes: neighbours are beside
// each other in both. All that it reads of a chunk is under way before the first value is made.
template <class T, bool four, bool doubled>
__global__ void __launch_bounds__(unpack_block)
    unpack(const uint8_t* x, T* y, int64_t chunks, int bytes, Table<four ? 16 : 256> given) {
  constexpr int width = widest<T>, in_byte = four ? 2 : 1, depth = chunk / width / unpack_block;
  auto& levels = shared<Table<four ? 16 : 256>>().at;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < (four ? 16 : 256)) levels[thread] = given.at[thread];
  __syncthreads();
  for (int64_t c = blockIdx.x; c < chunks; c += gridDim.x) {
    const uint8_t *const from = x + c * bytes, *const end = from + bytes;
    Pack<uint8_t, width / in_byte> codes[depth];
    float scales[depth];
    ENG_UNROLL
    for (int k = 0; k < depth; ++k) {
      const int first = (k * unpack_block + thread) * width;
      codes[k] = load_pack<width / in_byte>(from + first / in_byte);
      scales[k] = scale_of<doubled>(end, first / lot);
    }
    ENG_UNROLL
    for (int k = 0; k < depth; ++k) {
      float out[width];
      ENG_UNROLL
      for (int e = 0; e < width; ++e) {
        const int byte = codes[k].at[e / in_byte];
        out[e] = scales[k] * levels[!four ? byte : e % 2 ? byte & 15 : byte >> 4];
      }
      store<width, Nan::any>(y + c * chunk + (k * unpack_block + thread) * width, out);
    }
  }
}

// The larger one of two absolute values, the second of later elements: NaN if one is, and the later NaN of two.
__device__ __forceinline__ float larger(float before, float after) {
  return after > before || after != after ? after : before;
}
// As eng_packed_round and eng_packed_e4m3.
__device__ __forceinline__ int nearest(float x) {
  return static_cast<int>(rintf(x));
}
__device__ __forceinline__ uint8_t nearest_e4m3(float x) {
  const uint32_t bits = bits_of<uint32_t>(x), size = bits & 0x7fffffffu, sign = bits >> 31 << 7;
  if (size < 0x3c800000u) return static_cast<uint8_t>(sign | static_cast<uint32_t>(nearest(fabsf(x) * 512.0f)));
  return static_cast<uint8_t>(sign | (((size + 0x7ffffu + (bits >> 20 & 1u)) >> 20) - (120u << 3)));
}

constexpr int of_thread = 8, of_lot = lot / of_thread, pack_block = chunk / of_thread;

// A block encodes a chunk.
template <int32_t form>
__global__ void __launch_bounds__(pack_block) pack(const float* x, uint8_t* y, int bytes, Table<15> middles) {
  constexpr bool doubled = form == ENG_PACKED_NF4_DOUBLE, four = doubled || form == ENG_PACKED_NF4;
  const int thread = static_cast<int>(threadIdx.x), k = thread / of_lot;  // k: the lot
  uint8_t *const to = y + static_cast<int64_t>(blockIdx.x) * bytes, *const end = to + bytes;
  float in[of_thread], scale = 0;
  load(x + static_cast<int64_t>(blockIdx.x) * chunk + thread * of_thread, in);
  ENG_UNROLL
  for (int e = 0; e < of_thread; ++e) scale = larger(scale, in[e] < 0 ? -in[e] : in[e]);
  ENG_UNROLL
  for (int by = 1; by < of_lot; by *= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, scale, by);
    scale = thread & by ? larger(other, scale) : larger(scale, other);
  }
  if (scale < 1e-38f) scale = 0;
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  Pack<uint8_t, four ? of_thread / 2 : of_thread> codes{};
  ENG_UNROLL
  for (int e = 0; e < of_thread; ++e) {
    float share = in[e] * inverse;
    if (share != share) share = 0;
    share = share > 1 ? 1.0f : share < -1 ? -1.0f : share;
    if constexpr (four) {
      uint32_t code = 0;  // of two levels that are as near, the lower one
      ENG_UNROLL
      for (int m = 0; m < 15; ++m) code += share > middles.at[m] ? 1u : 0u;
      codes.at[e / 2] = static_cast<uint8_t>(codes.at[e / 2] | code << (e % 2 ? 0 : 4));
    } else if constexpr (form == ENG_PACKED_INT8) {
      codes.at[e] = static_cast<uint8_t>(nearest(share * 127.0f));
    } else {
      codes.at[e] = nearest_e4m3(share * 448.0f);
    }
  }
  if constexpr (doubled) {
    auto& scales = shared<Table<lots>>().at;
    if (thread % of_lot == 0) scales[k] = scale;
    __syncthreads();
    float top = 0;
    for (const float one : scales) top = larger(top, one);
    const float share = top > 0 ? scale / top : 0.0f;
    uint8_t code = share <= 1 && top == top ? static_cast<uint8_t>(nearest(share * 255.0f)) : 255;  // 255: infinite
    if (top * (static_cast<float>(code) / 255.0f) < 1e-38f) code = 0;
    if (code == 0) codes = {{0x77, 0x77, 0x77, 0x77}};
    if (thread % of_lot == 0) end[k - 4 - lots] = code;
    if (thread == 0) reinterpret_cast<float*>(end)[-1] = top;
  } else if (thread % of_lot == 0) {
    reinterpret_cast<float*>(end)[k - lots] = scale;
  }
  store_pack(to + thread * (of_thread / (four ? 2 : 1)), codes);
}

// ---- ops -------------------------------------------------------------------------------------------------------

struct Encode : common::PackKernel<void> {
  using PackKernel::PackKernel;
  static void check(const Call& c) {
    PackKernel::check(c);
    need(elements(c.in[0]) / chunk < int64_t{1} << 31, "x has too many chunks for one grid");
  }
  void run(const Args& a, cudaStream_t stream) const {
    Table<15> middles{};
    float levels[16];
    eng_packed_levels(ENG_PACKED_NF4, levels);
    for (int m = 0; m < 15; ++m) middles.at[m] = (levels[m] + levels[m + 1]) / 2;
    const auto go = [&]<int32_t form>() {
      launch<pack<form>>(static_cast<unsigned>(p.chunks), pack_block, sizeof(Table<lots>), stream, a.in<float>(0),
                         a.out<uint8_t>(0), static_cast<int>(p.bytes), middles);
    };
    switch (p.packed) {
      case ENG_PACKED_INT8:
        return go.template operator()<ENG_PACKED_INT8>();
      case ENG_PACKED_E4M3:
        return go.template operator()<ENG_PACKED_E4M3>();
      case ENG_PACKED_NF4:
        return go.template operator()<ENG_PACKED_NF4>();
      default:
        return go.template operator()<ENG_PACKED_NF4_DOUBLE>();
    }
  }
};

struct Decode : common::UnpackKernel<void> {
  using UnpackKernel::UnpackKernel;
  void run(const Args& a, cudaStream_t stream) const {
    by_type(dtype, [&]<class T>(T) {
      const auto go = [&]<bool four, bool doubled>() {
        Table<four ? 16 : 256> table;
        memcpy(table.at, levels, sizeof table.at);
        launch<unpack<T, four, doubled>>(blocks_for(p.chunks, 1), unpack_block, sizeof table, stream, a.in<uint8_t>(0),
                                         a.out<T>(0), p.chunks, static_cast<int>(p.bytes), table);
      };
      if (!eng_packed_is_nf4(p.packed))
        go.template operator()<false, false>();
      else if (p.packed == ENG_PACKED_NF4)
        go.template operator()<true, false>();
      else
        go.template operator()<true, true>();
    });
  }
};

}  // namespace packed

void add_packed(List& list) {
  using namespace packed;
  list.insert(list.end(), {&kernel<Encode>, &kernel<Decode>});
}

}  // namespace cuda
