// SPDX-License-Identifier: Apache-2.0
// The functions of cuBLASLt that the cuda plugin calls. They refuse what NVIDIA's documentation says is refused.
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "state.hpp"
#include "tests/cuda/runtime/software.hpp"

struct cublasLtContext {
  uint32_t mark;
  int device;
};

namespace softblas {

bool asked(const char* variable, const char* value) {
  const char* given = std::getenv(variable);
  return given && std::strcmp(given, value) == 0;
}
void complain(const std::string& what) {
  std::fprintf(stderr, "software cuBLASLt: %s\n", what.c_str());
}
uint64_t size_of(uint32_t type) {
  return type == CUDA_R_32F ? 4 : is_fp8(type) ? 1 : 2;
}
uint64_t reach(const Layout& l) {
  const bool by_rows = l.order == CUBLASLT_ORDER_ROW;
  const uint64_t lines = by_rows ? l.rows : l.columns, line = by_rows ? l.columns : l.rows;
  return ((lines - 1) * static_cast<uint64_t>(l.ld) + line) * size_of(l.type);
}
uint64_t Problem::hash() const {
  uint64_t h = 0xcbf29ce484222325;
  const auto mix = [&](uint64_t x) { h = (h ^ x) * 0x100000001b3; };
  mix(static_cast<uint64_t>(operation.ta * 2 + operation.tb)), mix(operation.epilogue);
  mix(static_cast<uint64_t>(operation.bias_type)), mix(static_cast<uint64_t>(operation.mask_ld));
  for (const Layout* l : {&a, &b, &c, &d})
    for (const uint64_t x :
         {uint64_t{l->type}, static_cast<uint64_t>(l->order), l->rows, l->columns, static_cast<uint64_t>(l->ld)})
      mix(x);
  return h;
}

namespace {

constexpr uint32_t context_mark = 0x1a1a0000;
std::mutex last_lock;
software_blas_use last{};

cublasStatus_t invalid(const std::string& what) {
  complain(what);
  return CUBLAS_STATUS_INVALID_VALUE;
}

// Copies an attribute's value; its size must be that of the field.
template <class T>
cublasStatus_t take(T& field, const void* value, size_t bytes) {
  if (!value || bytes != sizeof field) return invalid("an attribute has another size");
  std::memcpy(&field, value, sizeof field);
  return CUBLAS_STATUS_SUCCESS;
}
template <class T>
cublasStatus_t give(const T& field, void* value, size_t bytes, size_t* written) {
  if (!value || bytes != sizeof field) return invalid("an attribute has another size");
  std::memcpy(value, &field, sizeof field);
  if (written) *written = sizeof field;
  return CUBLAS_STATUS_SUCCESS;
}

// The requirements of products of 8 bits on Ada and Hopper: A transposed and B not, sizes in memory that are multiples
// of 16 bytes, at most one factor in e5m2, and a bias that is never f32.
cublasStatus_t refuse_fp8(const Problem& p) {
  const Operation& o = p.operation;
  const bool types = is_fp8(p.a.type) && is_fp8(p.b.type) && (p.a.type == CUDA_R_8F_E4M3 || p.b.type == CUDA_R_8F_E4M3);
  if (!types || !o.ta || o.tb || is_fp8(p.d.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const Layout* l : {&p.a, &p.b, &p.c, &p.d})
    if (l->order != CUBLASLT_ORDER_COL || static_cast<uint64_t>(l->ld) * size_of(l->type) % 16)
      return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.k() % 16 || p.m() * size_of(p.d.type) % 16) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (o.epilogue != CUBLASLT_EPILOGUE_DEFAULT && o.epilogue != CUBLASLT_EPILOGUE_BIAS)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const uint32_t bias = p.d.type == CUDA_R_16F ? CUDA_R_16F : CUDA_R_16BF;
  if (o.epilogue == CUBLASLT_EPILOGUE_BIAS && o.bias_type != static_cast<int32_t>(bias))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return CUBLAS_STATUS_SUCCESS;
}

// The fault in a problem, as far as the documentation of cublasLtMatmul says.
cublasStatus_t refuse(const Problem& p) {
  for (const auto& [name, l] : {std::pair("A", &p.a), {"B", &p.b}, {"C", &p.c}, {"D", &p.d}}) {
    if (l->rows == 0 || l->columns == 0) return invalid(std::string(name) + " is empty");
    if (l->rows > INT_MAX || l->columns > INT_MAX) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (l->order != CUBLASLT_ORDER_COL && l->order != CUBLASLT_ORDER_ROW) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (l->ld < static_cast<int64_t>(l->order == CUBLASLT_ORDER_ROW ? l->columns : l->rows))
      return invalid(std::string("the leading dimension of ") + name + " is too small");
    if (l->batch != 1) return invalid("batches are not emulated");
  }
  const Operation& o = p.operation;
  const uint64_t bk = o.tb ? p.b.columns : p.b.rows;
  if ((o.ta ? p.a.columns : p.a.rows) != p.m() || (o.tb ? p.b.rows : p.b.columns) != p.n() || bk != p.k())
    return invalid("the sizes of op(A), op(B) and D do not go together");
  if (p.c.rows != p.d.rows || p.c.columns != p.d.columns || p.c.type != p.d.type) return invalid("C is not like D");
  if (o.compute != CUBLAS_COMPUTE_32F || o.scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (is_fp8(p.a.type) || is_fp8(p.b.type)) return refuse_fp8(p);
  if (o.a_scale || o.b_scale) return invalid("only products of 8 bits have scales");
  const bool wide = p.a.type == CUDA_R_32F;
  if (p.a.type != p.b.type || (!wide && p.a.type != CUDA_R_16F && p.a.type != CUDA_R_16BF) ||
      (p.d.type != CUDA_R_32F && (wide || p.d.type != p.a.type)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  switch (o.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
      break;
    case CUBLASLT_EPILOGUE_RELU_AUX:
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DRELU:
    case CUBLASLT_EPILOGUE_DRELU_BGRAD:
      if (p.d.order != CUBLASLT_ORDER_COL) return CUBLAS_STATUS_NOT_SUPPORTED;
      if (o.mask_ld % 128 || o.mask_ld < static_cast<int64_t>(p.d.rows))
        return invalid("the leading dimension of the mask is no multiple of 128 bits, or too small");
      break;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (has_vector(o.epilogue)) {
    // A GPU's library takes a bias only for results by columns: a public report, and what "bias of rows" suggests.
    if (p.d.order != CUBLASLT_ORDER_COL) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (o.bias_type != -1 && o.bias_type != static_cast<int32_t>(p.d.type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

bool problem_of(cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, Problem& p) {
  const auto* o = of<Operation>(operation);
  const Layout *la = of<Layout>(a), *lb = of<Layout>(b), *lc = of<Layout>(c), *ld = of<Layout>(d);
  if (!o || !la || !lb || !lc || !ld) return false;
  p = {*o, *la, *lb, *lc, *ld};
  if (p.operation.bias_type == -1) p.operation.bias_type = static_cast<int32_t>(p.d.type);
  return true;
}

// All that can compute it, the "fastest" first.
std::vector<Algorithm> algorithms(const Problem& p) {
  constexpr uint64_t sums = CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F;
  const uint64_t mn = p.m() * p.n(), parts = 4;
  const bool wide = p.a.type == CUDA_R_32F;
  const auto size = is_fp8(p.a.type) ? 16 : static_cast<uint32_t>(size_of(p.a.type));
  const auto input = [](uint32_t type) {
    return type == CUDA_R_8F_E4M3   ? CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_8F_E4M3
           : type == CUDA_R_8F_E5M2 ? CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_8F_E5M2
           : type == CUDA_R_16F     ? CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F
                                    : CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF;
  };
  const uint64_t numbers = sums | (wide ? CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F
                                        : CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA | input(p.a.type) | input(p.b.type));
  std::vector<Algorithm> all;
  const auto add = [&](uint32_t scheme, uint64_t split, uint32_t aligned, uint64_t flags, uint64_t scratch) {
    all.push_back({Algorithm::kind, scheme, static_cast<uint32_t>(split), aligned, flags, scratch, p.hash(), {}});
  };
  if (is_fp8(p.a.type))
    add(CUBLASLT_REDUCTION_SCHEME_NONE, 1, 16,
        CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_16F | CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA, 0);
  if (wide)
    add(CUBLASLT_REDUCTION_SCHEME_NONE, 1, 16,
        sums | CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA | CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_TF32, 0);
  if (p.k() >= 64) {
    add(CUBLASLT_REDUCTION_SCHEME_INPLACE, parts, 16, numbers, 1024);
    if (!wide) add(CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, parts, 16, numbers, parts * mn * size_of(p.d.type));
    add(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, parts, 16, numbers, parts * mn * sizeof(float));
  }
  add(CUBLASLT_REDUCTION_SCHEME_NONE, 1, 16, numbers, 0);
  if (wide || !asked("SOFTCUBLAS_REFUSE", "narrow")) add(CUBLASLT_REDUCTION_SCHEME_NONE, 1, size, numbers, 0);
  return all;
}

bool allows(const Preference& preference, const Problem& p, const Algorithm& one) {
  if (one.scratch > preference.scratch) return false;
  const Layout* layouts[] = {&p.a, &p.b, &p.c, &p.d};
  for (int k = 0; k < 4; ++k)
    if (static_cast<uint64_t>(layouts[k]->ld) * size_of(layouts[k]->type) % one.aligned ||
        preference.aligned[k] % one.aligned)
      return false;
  if (asked("SOFTCUBLAS_CARELESS", "1")) return true;
  return (one.scheme == 0 || (one.scheme & preference.schemes)) && (one.numbers & ~preference.numbers) == 0;
}

bool usable(const cublasLtContext* context) {
  int device = -1;
  cudaGetDevice(&device);
  if (!context || context->mark != context_mark) return complain("no handle"), false;
  if (context->device != device) return complain("the handle is of another device than the current one"), false;
  return true;
}

struct Work {
  Problem problem;
  Algorithm algorithm;
  Addresses addresses;
};

cublasStatus_t refuse_addresses(const Problem& p, const Algorithm& algorithm, const Addresses& at) {
  if (!at.a || !at.b || !at.d || (at.beta != 0 && !at.c)) return invalid("a matrix has no address");
  if (has_vector(p.operation.epilogue) && !p.operation.bias) return invalid("the bias has no address");
  if (has_mask(p.operation.epilogue) && (!p.operation.mask || reinterpret_cast<uintptr_t>(p.operation.mask) % 16))
    return invalid("the mask has no address, or one that is not aligned to 16 bytes");
  for (const void* scale : {p.operation.a_scale, p.operation.b_scale})
    if (reinterpret_cast<uintptr_t>(scale) % 16) return invalid("a scale is not aligned to 16 bytes");
  if (algorithm.scratch > at.scratch_bytes || (algorithm.scratch && !at.scratch))
    return invalid("the workspace of " + std::to_string(at.scratch_bytes) + " bytes is less than the " +
                   std::to_string(algorithm.scratch) + " of the algorithm");
  const auto off = [](const void* address, uint64_t by) { return reinterpret_cast<uintptr_t>(address) % by != 0; };
  if (off(at.scratch, 256)) return invalid("the workspace is not aligned to 256 bytes");
  for (const void* x : {at.a, at.b, at.beta != 0 ? at.c : at.d, static_cast<const void*>(at.d)})
    if (off(x, algorithm.aligned))
      return invalid("a matrix is not aligned to the " + std::to_string(algorithm.aligned) + " bytes of the algorithm");
  if (at.c == at.d && (p.c.ld != p.d.ld || p.c.order != p.d.order))
    return invalid("C in place of D is laid out otherwise");
  if (at.d == at.a || at.d == at.b) return invalid("D is in place of A or B");
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace softblas

using namespace softblas;

extern "C" {

software_blas_use software_blas_last(void) {
  const std::lock_guard lock(last_lock);
  return last;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  int count = 0, device = 0;
  if (!handle) return CUBLAS_STATUS_INVALID_VALUE;
  if (cudaGetDeviceCount(&count) != cudaSuccess || cudaGetDevice(&device) != cudaSuccess)
    return CUBLAS_STATUS_NOT_INITIALIZED;
  if (asked("SOFTCUBLAS_FAIL", "create")) return CUBLAS_STATUS_ALLOC_FAILED;
  *handle = new cublasLtContext{context_mark, device};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  if (!handle || handle->mark != context_mark) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->mark = 0;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion(void) {
  return CUBLAS_VERSION;
}
const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
#define NAME(x) \
  case x:       \
    return #x;
    NAME(CUBLAS_STATUS_SUCCESS)
    NAME(CUBLAS_STATUS_NOT_INITIALIZED)
    NAME(CUBLAS_STATUS_ALLOC_FAILED)
    NAME(CUBLAS_STATUS_INVALID_VALUE)
    NAME(CUBLAS_STATUS_ARCH_MISMATCH)
    NAME(CUBLAS_STATUS_EXECUTION_FAILED)
    NAME(CUBLAS_STATUS_INTERNAL_ERROR)
    NAME(CUBLAS_STATUS_NOT_SUPPORTED)
#undef NAME
    default:
      return "CUBLAS_STATUS_?";
  }
}
const char* cublasLtGetStatusString(cublasStatus_t) {
  return "emulated";
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t ld) {
  if (size < sizeof(Layout)) return CUBLAS_STATUS_ALLOC_FAILED;
  const Layout made = {Layout::kind, static_cast<uint32_t>(type), CUBLASLT_ORDER_COL, 1, rows, columns, ld, {}};
  std::memcpy(layout, &made, sizeof made);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t what,
                                                const void* value, size_t bytes) {
  auto* l = of<Layout>(layout);
  if (!l) return invalid("a layout was never initialised");
  if (what == CUBLASLT_MATRIX_LAYOUT_ORDER) return take(l->order, value, bytes);
  if (what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return take(l->batch, value, bytes);
  return invalid("an attribute of a layout that is not emulated");
}
cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t operation, size_t size, cublasComputeType_t compute,
                                               cudaDataType_t scale) {
  if (size < sizeof(Operation)) return CUBLAS_STATUS_ALLOC_FAILED;
  const Operation made = {Operation::kind,           compute, scale,   0, 0,       -1,      0,
                          CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, 0, nullptr, nullptr, {}};
  std::memcpy(operation, &made, sizeof made);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t what,
                                              const void* value, size_t bytes) {
  auto* o = of<Operation>(operation);
  if (!o) return invalid("an operation was never initialised");
  switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(o->ta, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(o->tb, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(o->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(o->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return take(o->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return take(o->mask, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return take(o->mask_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return take(o->a_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return take(o->b_scale, value, bytes);
    default:
      return invalid("an attribute of an operation that is not emulated");
  }
}
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, size_t size) {
  if (size < sizeof(Preference)) return CUBLAS_STATUS_ALLOC_FAILED;
  const Preference made = {Preference::kind, CUBLASLT_REDUCTION_SCHEME_MASK, 0, ~uint64_t{0}, {256, 256, 256, 256}, {}};
  std::memcpy(preference, &made, sizeof made);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what, const void* value,
                                                    size_t bytes) {
  auto* p = of<Preference>(preference);
  if (!p) return invalid("a preference was never initialised");
  switch (what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(p->scratch, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(p->schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
      return take(p->numbers, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(p->aligned[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    default:
      return invalid("an attribute of a preference that is not emulated");
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results, int* count) {
  if (!usable(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  Problem p;
  const auto* wanted = of<Preference>(preference);
  if (!wanted || most < 1 || !results || !count || !problem_of(operation, a, b, c, d, p))
    return invalid("the heuristic lacks a descriptor");
  *count = 0;
  if (asked("SOFTCUBLAS_FAIL", "heuristic")) return CUBLAS_STATUS_INTERNAL_ERROR;
  if (asked("SOFTCUBLAS_REFUSE", "all") ||
      (asked("SOFTCUBLAS_REFUSE", "bias") && p.operation.epilogue == CUBLASLT_EPILOGUE_BIAS) ||
      (asked("SOFTCUBLAS_REFUSE", "relu") && has_mask(p.operation.epilogue)) ||
      (asked("SOFTCUBLAS_REFUSE", "sums") && p.operation.epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (const cublasStatus_t status = refuse(p); status != CUBLAS_STATUS_SUCCESS) return status;
  for (const Algorithm& one : algorithms(p)) {
    if (*count == most || !allows(*wanted, p, one)) continue;
    cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
    std::memcpy(&result.algo, &one, sizeof one);
    result.workspaceSize = one.scratch, result.state = CUBLAS_STATUS_SUCCESS, result.wavesCount = 1;
  }
  return *count ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (!usable(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  Problem p;
  const auto* one = of<Algorithm>(algorithm);
  if (!one || !result || !problem_of(operation, a, b, c, d, p)) return CUBLAS_STATUS_INVALID_VALUE;
  if (const cublasStatus_t status = refuse(p); status != CUBLAS_STATUS_SUCCESS) return status;
  if (one->product != p.hash()) return CUBLAS_STATUS_INVALID_VALUE;
  *result = {};
  result->workspaceSize = one->scratch, result->state = CUBLAS_STATUS_SUCCESS, result->wavesCount = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t what, void* value,
                                                    size_t bytes, size_t* written) {
  const auto* one = of<Algorithm>(algorithm);
  if (!one || what != CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) return invalid("an attribute of an algorithm");
  return give(one->scheme, value, bytes, written);
}
cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                 cublasLtMatmulAlgoCapAttributes_t what, void* value, size_t bytes,
                                                 size_t* written) {
  const auto* one = of<Algorithm>(algorithm);
  if (!one || what != CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS) return invalid("an attribute of an algorithm");
  return give(one->numbers, value, bytes, written);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t la, const void* b, cublasLtMatrixLayout_t lb, const void* beta,
                              const void* c, cublasLtMatrixLayout_t lc, void* d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  if (!usable(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
  Problem p;
  const auto* chosen = of<Algorithm>(algorithm);
  if (!chosen || !alpha || !beta || !problem_of(operation, la, lb, lc, ld, p))
    return invalid("the product lacks a descriptor, an algorithm or a factor");
  if (const cublasStatus_t status = refuse(p); status != CUBLAS_STATUS_SUCCESS) return status;
  if (chosen->product != p.hash()) return invalid("the algorithm was chosen for another product");
  const Addresses at = {
      a, b, c, d, workspace, workspace_bytes, *static_cast<const float*>(alpha), *static_cast<const float*>(beta)};
  if (const cublasStatus_t status = refuse_addresses(p, *chosen, at); status != CUBLAS_STATUS_SUCCESS) return status;
  if (asked("SOFTCUBLAS_FAIL", "matmul")) return CUBLAS_STATUS_EXECUTION_FAILED;
  {
    const std::lock_guard lock(last_lock);
    last = {last.products + 1, chosen->scratch, chosen->scheme, chosen->parts, chosen->numbers, p.operation.epilogue};
  }
  const int error = software_cuda_enqueue(
      stream,
      [](const void* data, char* text, uint64_t bytes) {
        const Work& w = *static_cast<const Work*>(data);
        if (asked("SOFTCUBLAS_SLOW", w.algorithm.parts > 1 ? "parts" : "whole"))
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        const std::string wrong = multiply(w.problem, w.algorithm, w.addresses);
        std::snprintf(text, bytes, "%s", wrong.c_str());
        return wrong.empty() ? 0 : 1;
      },
      [](const void* data) { delete static_cast<const Work*>(data); }, new Work{p, *chosen, at});
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
}
