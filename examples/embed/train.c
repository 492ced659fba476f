/* SPDX-License-Identifier: Apache-2.0
 * A training loop in C: the engine steps on batches of this program, and its weights are read where they lie.
 *
 *     cc train.c $(pkg-config --cflags --libs engine-embed) -o train && ./train ../installed.toml
 */
#include <engine/embed.h>
#include <stdio.h>
#include <stdlib.h>

/* Prints why a call failed: the text of the sink says what is wrong and what to change. */
static void told(eng_error* self, eng_status code, const char* text, uint64_t length) {
  (void)self;
  fprintf(stderr, "status %d: %.*s\n", (int)code, (int)length, text ? text : "");
}

static eng_error sink = {sizeof(eng_error), 0, NULL, told};

static void check(eng_status status) {
  if (status != ENG_OK) exit(1);
}

int main(int argc, char** argv) {
  eng_session_request request = {.struct_size = sizeof(request), .flags = ENG_SESSION_NO_FILES};
  eng_session_info info = {.struct_size = sizeof(info)};
  eng_eval_result eval = {.struct_size = sizeof(eval)};
  eng_session* run = NULL;
  DLManagedTensorVersioned* weight = NULL;
  int32_t* tokens;
  int64_t k, n, shape[2];
  if (argc < 2) {
    fprintf(stderr, "usage: train CONFIG [section.key=value ...]\n");
    return 2;
  }
  request.target = argv[1];
  request.overrides = (const char* const*)(argv + 2);
  request.n_overrides = (uint32_t)(argc - 2);
  check(eng_session_open(&request, &run, &sink));
  check(eng_session_start(run, &sink));
  check(eng_session_describe(run, &info, &sink));

  /* In place: no byte is copied, and each step shows through it. */
  check(eng_session_take(run, "model.norm.weight", ENG_TENSOR_PARAMETER, 0, &weight, &sink));

  /* A batch is (rows, length); with one column more, the last one is only a label. Here each row counts bytes up. */
  shape[0] = info.rows, shape[1] = info.length + 1;
  n = shape[0] * shape[1];
  tokens = malloc((size_t)n * sizeof(*tokens));
  if (!tokens) return 1;
  for (k = 0; k < info.steps; ++k) {
    eng_step_result step = {.struct_size = sizeof(step)};
    DLTensor view = {.device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 32, 1}};
    eng_tensor_in field = {.struct_size = sizeof(field), .name = "tokens"};
    int64_t i;
    for (i = 0; i < n; ++i) tokens[i] = (int32_t)((k * 31 + i / shape[1] * 7 + i % shape[1]) % info.vocabulary);
    view.data = tokens, view.shape = shape;
    field.borrowed = &view; /* stays ours: the engine copies it during the call */
    check(eng_session_step(run, &field, 1, &step, &sink));
    if (step.ended) break;
    printf("step %d loss %.4f norm weight[0] %.6f\n", (int)step.step, step.loss,
           (double)*(const float*)weight->dl_tensor.data);
  }
  if (info.held_out) {
    check(eng_session_evaluate(run, NULL, 0, 4, &eval, &sink));
    printf("held-out loss %.4f\n", eval.loss);
  }
  check(eng_session_close(run, &sink));
  printf("after close: %.6f\n", (double)*(const float*)weight->dl_tensor.data); /* the tensor keeps its memory */
  weight->deleter(weight);
  free(tokens);
  return 0;
}
