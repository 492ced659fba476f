// SPDX-License-Identifier: Apache-2.0
// Products of matrices by cuBLASLt. It counts matrices by columns, and the engine by rows: what is c (M, N) here is
// c^T (N, M) there, the product op(b)^T op(a)^T. So its A is our b, its B is our a, and a bias of our columns is the
// bias of its rows, the only one that it has.
//
// NVIDIA promises the same bits in every run for one version of the library and GPUs of one architecture with the same
// number of processors; streams that share scratch are the exception, and here each product has scratch of the plan.
//
// The algorithm. cuBLASLt proposes some, from the shapes, the GPU and its version alone: so every run gets the same.
// Of these, the first one is taken that
//   - needs at most the scratch that the plan has: [device] workspace;
//   - gives the same bits in every run: K is summed in one go, or its parts are stored in f32 and then added in one
//     step. Adding parts in place, in the order in which blocks end, is refused, and so are parts rounded to 16 bits;
//   - multiplies f32 as f32 (no TF32, nothing made of 16-bit parts) and sums products of 16-bit values in f32.
// If there is none, `prepare` gives nothing, and the kernels of this plugin compute the product.
// With [device] tune, all that are allowed are measured, and the fastest is taken. Two runs may then differ; one run
// does not, since its choices are kept (choices.cpp).
#include "blas.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <climits>
#include <cstdio>
#include <vector>

#include "../common/cuda/cublaslt.hpp"
#include "device.hpp"
#include "measure.hpp"

namespace cuda::blas {
namespace {

using namespace lt;
using library::Epilogue;
using library::Operands;
using library::Product;

// Made anew for each launch: the addresses of the bias, the mask and the column sums are part of it.
struct Operation : MatmulOf {
  Operation(const Product& p, const Operands& o) : MatmulOf(p.tb, p.ta) {
    uint32_t epilogue = p.bias ? CUBLASLT_EPILOGUE_BIAS : 0;
    if (p.epilogue == Epilogue::relu) epilogue |= CUBLASLT_EPILOGUE_RELU_AUX;
    if (p.epilogue == Epilogue::relu_grad) epilogue |= p.sums ? CUBLASLT_EPILOGUE_DRELU_BGRAD : CUBLASLT_EPILOGUE_DRELU;
    if (epilogue) set<uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (p.bias || p.sums) {  // the column sums of c are the gradient of a bias
      set<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias ? o.bias : o.sums);
      set<int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.bias ? p.type : p.sums));
    }
    if (p.epilogue != Epilogue::none) {
      set<void*>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, o.mask);
      set<int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, eng_relu_mask_bytes(p.n) * 8);  // bits
    }
  }
  // For the heuristic, which looks only at how well the addresses are aligned.
  explicit Operation(const Product& p) : Operation(p, aligned()) {}

 private:
  static Operands aligned() {
    void* const most = reinterpret_cast<void*>(uintptr_t{library::most_aligned});
    return {most, most, most, most, most, most, most};
  }
};

// CUBLASLT_NUMERICAL_IMPL_FLAGS_* that the product may have.
uint64_t allowed_numbers(const Product& p) {
  uint64_t refused = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F;
  if (p.type == ENG_F32)
    refused |= CUBLASLT_NUMERICAL_IMPL_FLAGS_TENSOR_OP_MASK | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32 |
               CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF;
  return ~refused;
}

// A name of the product for the run's choices.
std::string text_of(const Product& p, uint64_t scratch) {
  constexpr const char* epilogues[] = {"", " relu", " relu_grad"};  // by their numbers
  const auto named = [](int32_t type) { return type == ENG_BF16 ? " bf16" : type == ENG_F16 ? " f16" : " f32"; };
  const auto matrix = [&](const char* name, int32_t type, uint32_t aligned) {
    return std::string(name) + named(type) + " aligned to " + std::to_string(aligned) + ", ";
  };
  return std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k) + (p.ta ? " ta" : "") +
         (p.tb ? " tb" : "") + (p.add ? " add" : "") + (p.bias ? " bias" : "") +
         epilogues[static_cast<size_t>(p.epilogue)] + (p.sums ? std::string(" sums") + named(p.sums) : "") +
         (p.a_stride ? " a by " + std::to_string(p.a_stride) : "") +
         (p.c_stride > p.n ? " c by " + std::to_string(p.c_stride) : "") + ", " + matrix("a", p.type, p.a_aligned) +
         matrix("b", p.type, p.b_aligned) + matrix("c", p.result, p.c_aligned) + "scratch " + std::to_string(scratch);
}

std::string hexadecimal(const cublasLtMatmulAlgo_t& algorithm) {
  std::string out;
  std::array<char, 17> word{};
  for (const uint64_t w : algorithm.data) {
    std::snprintf(word.data(), word.size(), "%016" PRIx64, w);
    out += word.data();
  }
  return out;
}

bool from_hexadecimal(const std::string& text, cublasLtMatmulAlgo_t& algorithm) {
  constexpr size_t words = std::size(cublasLtMatmulAlgo_t{}.data);
  if (text.size() != words * 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos) return false;
  for (size_t k = 0; k < words; ++k) algorithm.data[k] = std::stoull(text.substr(k * 16, 16), nullptr, 16);
  return true;
}

struct ProductTrial : Trial {
  Operands o{};
  void* scratch = nullptr;
  ProductTrial(const Product& p, uint64_t bytes) {
    const auto size = [](int32_t type) { return int64_t{type == ENG_F32 ? 4 : 2}; };
    const int64_t of_a = p.a_stride ? p.a_stride * (p.ta ? p.k : p.m) : p.m * p.k;
    o.a = room(of_a * size(p.type)), o.b = room(p.k * p.n * size(p.type));
    o.c = room(p.m * (p.c_stride ? p.c_stride : p.n) * size(p.result));
    if (p.add) o.acc = o.c;
    if (p.bias) o.bias = room(p.n * size(p.type));
    if (p.epilogue != Epilogue::none) o.mask = room(p.m * eng_relu_mask_bytes(p.n));
    if (p.sums) o.sums = room(p.n * size(p.sums));
    if (bytes) scratch = room(static_cast<int64_t>(bytes));
  }
};

class Chosen final : public library::Algorithm {
 public:
  Chosen(Device& device, const Product& p, uint64_t scratch)
      : device_(device),
        p_(p),
        limits_{scratch, allowed_numbers(p), p.b_aligned, p.a_aligned, p.c_aligned},
        a_(type_of(p.type), p.ta ? p.k : p.m, p.ta ? p.m : p.k, p.a_stride),
        b_(type_of(p.type), p.tb ? p.n : p.k, p.tb ? p.k : p.n),
        c_(type_of(p.result), p.m, p.n, p.c_stride) {}

  // False: the library has nothing that fits.
  bool choose() {
    auto& known = device_.choices.algorithms;
    const bool measure = device_.choices.measure;
    const std::string product = text_of(p_, limits_.scratch);
    if (const auto at = known.find(product); at != known.end()) return restore(at->second, product), true;
    // Column sums of a type that c does not have may be an invalid value.
    const std::vector<cublasLtMatmulAlgo_t> allowed =
        propose(device_.blas.get(), Operation(p_), b_, a_, c_, limits_, p_.sums != 0);
    if (allowed.empty()) return false;
    algorithm_ = measure && allowed.size() > 1 ? fastest(allowed) : allowed[0];
    if (measure) known[product] = hexadecimal(algorithm_);
    return true;
  }

  bool takes(const Operands& o) const override {
    const auto at = [](const void* address) { return reinterpret_cast<uintptr_t>(address); };
    return at(o.a) % p_.a_aligned == 0 && at(o.b) % p_.b_aligned == 0 && at(o.c) % p_.c_aligned == 0 &&
           at(o.acc) % p_.c_aligned == 0 && (at(o.bias) | at(o.mask) | at(o.sums)) % library::most_aligned == 0;
  }

  void run(const Operands& o, void* scratch, void* queue) const override {
    const cublasStatus_t status = multiply(o, algorithm_, scratch, static_cast<cudaStream_t>(queue));
    if (status != CUBLAS_STATUS_SUCCESS) check(status, device_.queue_name(queue) + ", multiplying");
  }

 private:
  // Restores an algorithm from a run's choices. Checked as if it had been proposed: its text may have been changed.
  void restore(const std::string& text, const std::string& product) {
    const std::string algorithm = "the measured algorithm of product " + product;
    cublasLtMatmulHeuristicResult_t result{};
    if (!from_hexadecimal(text, algorithm_) ||
        cublasLtMatmulAlgoCheck(device_.blas.get(), Operation(p_).get(), b_.get(), a_.get(), c_.get(), c_.get(),
                                &algorithm_, &result) != CUBLAS_STATUS_SUCCESS)
      throw Error{ENG_INVALID, algorithm + " is not one of this cuBLASLt: " + text};
    result.algo = algorithm_;
    if (!acceptable(result, limits_))
      throw Error{ENG_INVALID,
                  algorithm + " is not allowed: it adds in any order, rounds, or needs more than [device] workspace"};
  }

  // Measured in memory of its own: the arenas are allocated later.
  cublasLtMatmulAlgo_t fastest(const std::vector<cublasLtMatmulAlgo_t>& allowed) const {
    const ProductTrial trial(p_, limits_.scratch);
    const cublasLtMatmulAlgo_t* best = &allowed[0];
    float least = 0;
    for (const cublasLtMatmulAlgo_t& one : allowed) {
      const std::optional<float> time = trial.time(
          [&](cudaStream_t queue) { return multiply(trial.o, one, trial.scratch, queue) == CUBLAS_STATUS_SUCCESS; });
      if (time && (least == 0 || *time < least)) best = &one, least = *time;
    }
    return *best;
  }

  cublasStatus_t multiply(const Operands& o, const cublasLtMatmulAlgo_t& algorithm, void* scratch,
                          cudaStream_t queue) const {
    const float one = 1, added = o.acc ? 1 : 0;
    return cublasLtMatmul(device_.blas.get(), Operation(p_, o).get(), &one, o.b, b_.get(), o.a, a_.get(), &added,
                          o.acc ? o.acc : o.c, c_.get(), o.c, c_.get(), &algorithm, limits_.scratch ? scratch : nullptr,
                          limits_.scratch, queue);
  }

  Device& device_;
  Product p_;
  Limits limits_;  // of A, which is b, and B
  Layout a_, b_, c_;
  cublasLtMatmulAlgo_t algorithm_{};
};

// Sizes that cuBLASLt has numbers for.
bool possible(const Product& p) {
  return std::min({p.m, p.n, p.k}) > 0 && std::max({p.m, p.n, p.k}) <= INT_MAX;
}

uint64_t scratch_of(const common::Call& call, const Product& p) {
  return possible(p) ? call.device.settings[workspace_setting] : 0;
}

std::shared_ptr<const library::Algorithm> prepare(void* device, const Product& p, uint64_t scratch) {
  if (!possible(p)) return nullptr;
  of(device).enter();
  const auto chosen = std::make_shared<Chosen>(of(device), p, scratch);
  return chosen->choose() ? chosen : nullptr;
}

}  // namespace

std::shared_ptr<cublasLtContext> create() {
  return lt::make_handle();
}

const library::Table products = {scratch_of, prepare};

}  // namespace cuda::blas
