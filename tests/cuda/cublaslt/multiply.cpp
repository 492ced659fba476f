// SPDX-License-Identifier: Apache-2.0
// A product as each of the algorithms would give it: sums in f32, in the order of k.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "state.hpp"
#include "tests/cuda/runtime/software.hpp"

namespace softblas {
namespace {

// To the nearest, of two the even one.
uint16_t as_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>(std::isnan(x) ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
// From the bits of the formats: a number of `fraction` bits behind the point, and the largest exponent for what is
// none.
float from_fp8(uint8_t code, bool e4m3) {
  const int fraction = e4m3 ? 3 : 2, exponent = (code & 0x7f) >> fraction, rest = code & ((1 << fraction) - 1);
  const int bias = e4m3 ? 7 : 15;
  float size = std::ldexp(static_cast<float>(rest + (exponent ? 1 << fraction : 0)),
                          (exponent ? exponent : 1) - bias - fraction);
  if (e4m3 ? (code & 0x7f) == 0x7f : exponent == 31) size = e4m3 || rest ? NAN : INFINITY;
  return code & 0x80 ? -size : size;
}
float read(const void* from, uint32_t type, uint64_t i) {
  if (is_fp8(type)) return from_fp8(static_cast<const uint8_t*>(from)[i], type == CUDA_R_8F_E4M3);
  if (type == CUDA_R_32F) return static_cast<const float*>(from)[i];
  if (type == CUDA_R_16F) return static_cast<float>(static_cast<const _Float16*>(from)[i]);
  return std::bit_cast<float>(uint32_t{static_cast<const uint16_t*>(from)[i]} << 16);
}
void write(void* to, uint32_t type, uint64_t i, float x) {
  if (type == CUDA_R_32F)
    static_cast<float*>(to)[i] = x;
  else if (type == CUDA_R_16F)
    static_cast<_Float16*>(to)[i] = static_cast<_Float16>(x);
  else
    static_cast<uint16_t*>(to)[i] = as_bf16(x);
}
float rounded(float x, uint32_t type) {
  float room = 0;
  write(&room, type, 0, x);
  return read(&room, type, 0);
}
// 10 bits of fraction.
float as_tf32(float x) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  bits = (bits + 0x0fff + (bits >> 13 & 1)) & ~0x1fffu;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

uint64_t place(const Layout& l, uint64_t row, uint64_t column) {
  const auto ld = static_cast<uint64_t>(l.ld);
  return l.order == CUBLASLT_ORDER_ROW ? row * ld + column : column * ld + row;
}

// op(x), column by column of `rows` each, in f32.
std::vector<float> gather(const void* x, const Layout& l, bool turned, bool tf32) {
  const uint64_t rows = turned ? l.columns : l.rows, columns = turned ? l.rows : l.columns;
  std::vector<float> out(rows * columns);
  for (uint64_t c = 0; c < columns; ++c)
    for (uint64_t r = 0; r < rows; ++r) {
      const float value = read(x, l.type, turned ? place(l, c, r) : place(l, r, c));
      out[c * rows + r] = tf32 ? as_tf32(value) : value;
    }
  return out;
}

std::string unreachable(const Problem& p, const Addresses& at) {
  const auto all = [](const void* address, uint64_t bytes) { return software_cuda_reaches(address, bytes) != 0; };
  if (!all(at.a, reach(p.a))) return "A reaches beyond an allocation";
  if (!all(at.b, reach(p.b))) return "B reaches beyond an allocation";
  if (at.beta != 0 && !all(at.c, reach(p.c))) return "C reaches beyond an allocation";
  if (!all(at.d, reach(p.d))) return "D reaches beyond an allocation";
  if (at.scratch_bytes && !all(at.scratch, at.scratch_bytes)) return "the workspace reaches beyond an allocation";
  if (has_mask(p.operation.epilogue) && !all(p.operation.mask, p.n() * static_cast<uint64_t>(p.operation.mask_ld) / 8))
    return "the mask reaches beyond an allocation";
  if (has_vector(p.operation.epilogue) &&
      !all(p.operation.bias, p.m() * size_of(static_cast<uint32_t>(p.operation.bias_type))))
    return "the bias reaches beyond an allocation";
  for (const void* scale : {p.operation.a_scale, p.operation.b_scale})
    if (scale && !all(scale, sizeof(float))) return "a scale reaches beyond an allocation";
  return "";
}

}  // namespace

std::string multiply(const Problem& p, const Algorithm& algorithm, const Addresses& at) {
  if (std::string what = unreachable(p, at); !what.empty()) return "cublasLtMatmul: " + what;
  const uint64_t m = p.m(), n = p.n(), k = p.k(), parts = algorithm.parts;
  const bool tf32 = algorithm.numbers & CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32;
  const std::vector<float> a = gather(at.a, p.a, p.operation.ta, tf32), b = gather(at.b, p.b, p.operation.tb, tf32);
  // The workspace is the algorithm's: whoever keeps something there loses it.
  std::memset(at.scratch, 0xff, std::min<uint64_t>(at.scratch_bytes, std::max<uint64_t>(algorithm.scratch, 65536)));
  const bool outside = algorithm.scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  std::vector<float> inside(outside ? 0 : m * n * parts);
  float* const sums = outside ? static_cast<float*>(at.scratch) : inside.data();  // (parts, n, m)
  std::vector<float> column(m);
  for (uint64_t part = 0; part < parts; ++part)
    for (uint64_t j = 0; j < n; ++j) {
      std::fill(column.begin(), column.end(), 0.0f);
      for (uint64_t i = k * part / parts; i < k * (part + 1) / parts; ++i) {
        const float factor = b[j * k + i];
        for (uint64_t r = 0; r < m; ++r) column[r] += a[i * m + r] * factor;
      }
      std::memcpy(sums + (part * n + j) * m, column.data(), m * sizeof(float));
    }
  float alpha = at.alpha;
  for (const void* scale : {p.operation.a_scale, p.operation.b_scale})
    if (scale) alpha *= *static_cast<const float*>(scale);
  // In place, parts are added in the order in which they end: another one in each call.
  std::vector<uint64_t> order(parts);
  std::iota(order.begin(), order.end(), uint64_t{0});
  static std::atomic<uint64_t> calls{0};
  std::mt19937_64 random(++calls);
  if (algorithm.scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE)
    for (uint64_t i = parts; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  const bool narrow = !outside && parts > 1;
  const uint32_t epilogue = p.operation.epilogue;
  const bool relu = has_mask(epilogue) && (epilogue & CUBLASLT_EPILOGUE_RELU), relu_grad = has_mask(epilogue) && !relu;
  const bool bias_grad = epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD;
  const uint64_t line = static_cast<uint64_t>(p.operation.mask_ld) / 8;
  auto* const mask = static_cast<uint8_t*>(p.operation.mask);
  // The content behind the last bit of a column is unspecified.
  if (relu) std::memset(mask, 0xa5, n * line);
  column.assign(m, 0.0f);  // the gradient of the bias
  for (uint64_t j = 0; j < n; ++j)
    for (uint64_t r = 0; r < m; ++r) {
      float sum = 0;
      for (const uint64_t part : order) {
        const float more = sums[(part * n + j) * m + r];
        sum = narrow ? rounded(sum + rounded(more, p.d.type), p.d.type) : sum + more;
      }
      sum *= alpha;
      if (at.beta != 0) sum += at.beta * read(at.c, p.c.type, place(p.c, r, j));
      if (epilogue & CUBLASLT_EPILOGUE_BIAS)
        sum += read(p.operation.bias, static_cast<uint32_t>(p.operation.bias_type), r);
      if (has_mask(epilogue)) {
        uint8_t& byte = mask[j * line + r / 8];
        const unsigned bit = 1u << r % 8;
        if (relu) byte = static_cast<uint8_t>(sum > 0 ? byte | bit : byte & ~bit);
        if (!(byte & bit)) sum = 0;
      }
      if (relu_grad) column[r] += sum;
      write(at.d, p.d.type, place(p.d, r, j), sum);
    }
  for (uint64_t r = 0; bias_grad && r < m; ++r)
    write(const_cast<void*>(p.operation.bias), static_cast<uint32_t>(p.operation.bias_type), r, column[r]);
  return "";
}

}  // namespace softblas
