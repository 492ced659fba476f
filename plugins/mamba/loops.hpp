// SPDX-License-Identifier: Apache-2.0
// The inner loops of the fast kernels, compiled once per instruction set. A loop runs over whole channels, as many
// side by side as a register is wide: a channel's results do not depend on which others are computed with it.
#pragma once

#include <stdint.h>

namespace mamba {

constexpr int64_t widest = 16;  // floats of a register
constexpr int64_t most_taps = 4;

struct Sizes {
  int64_t T, E, N;  // tokens, channels, states
  int64_t G;        // columns of the matrix that x or the gate is a part of
  int64_t S;        // tokens of a chunk
  int64_t K;        // taps of the convolution
};

// One sequence. Rows of u, delta, y, dy have E columns, those of gate G (its own E come last), of bc 2N.
struct ScanIn {
  const float *u, *delta, *a_log, *bc, *d, *dt_bias, *gate;
};
struct ScanGradIn {
  ScanIn forward;
  const float *dy, *states;  // (T, E), (chunks, N, E)
};
struct ScanGradOut {
  float *du, *ddelta, *dgate;
  float* dbc;                     // (T, 2N), of these channels alone
  float *da_log, *dd, *ddt_bias;  // (N, E), (E), (E), of this sequence alone
};

struct Loops {
  const char* name;
  // Channels first .. last - 1 each. taps (4, E): the weights of the convolution, zeros before fewer taps. before
  // (K - 1, E): the x before the first token, replaced by those before the next one; nullptr: zeros.
  void (*conv)(const Sizes&, const float* x, const float* taps, const float* bias, float* y, float* before,
               int64_t first, int64_t last);
  // dtaps (4, E) and dbias (E) of this sequence alone; `add`: dx holds a gradient already.
  void (*conv_grad)(const Sizes&, const float* dy, const float* x, const float* taps, const float* bias, float* dx,
                    bool add, float* dtaps, float* dbias, int64_t first, int64_t last);
  // running (N, E): the states before the first token, replaced by those after the last one; nullptr: they start
  // from zero, and those before each chunk go to `states`.
  void (*scan)(const Sizes&, const ScanIn&, float* y, float* states, float* running, int64_t first, int64_t last,
               float* scratch);
  void (*scan_grad)(const Sizes&, const ScanGradIn&, const ScanGradOut&, int64_t first, int64_t last, float* scratch);
};

// Floats of scratch for one thread.
inline int64_t scan_scratch(const Sizes& s) {
  return 2 * s.N * widest;
}
inline int64_t scan_grad_scratch(const Sizes& s, int64_t channels) {
  const int64_t vectors = (channels + widest - 1) / widest * widest;
  return 3 * s.N * vectors + 2 * vectors + widest * ((2 * s.S + 1) * s.N + 4 * s.S + 2 * s.N * s.S);
}

extern const Loops loops_portable, loops_avx2, loops_avx512;
// The best for this processor, or the one of that name; nullptr where it cannot run.
const Loops* best_loops();
const Loops* find_loops(const char* name);

}  // namespace mamba
