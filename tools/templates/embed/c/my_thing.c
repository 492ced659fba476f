/* SPDX-License-Identifier: Apache-2.0
 *
 * A program with the engine inside: it trains step by step, looks at a weight where it lies, and evaluates a batch of
 * its own. The engine prints nothing and installs no signal handlers; what goes wrong arrives as a status and a text.
 */
#include <engine/embed.h>
#include <stdio.h>
#include <stdlib.h>

/* Receives the text of a call that failed: what is wrong, and what to change. */
static void told(eng_error* self, eng_status code, const char* text, uint64_t length) {
  (void)self;
  fprintf(stderr, "status %d: %.*s\n", (int)code, (int)length, text ? text : "");
}

static eng_error sink = {sizeof(eng_error), 0, NULL, told};

static void check(eng_status status) {
  if (status != ENG_OK) exit(1);
}

/* A batch is (rows, length) ids; here each row counts upwards. Without labels, that of an id is the id after it. */
static double loss_of_numbers(eng_session* run, const eng_session_info* info) {
  int64_t shape[2], k, n;
  int32_t* ids;
  DLTensor view = {.device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 32, 1}}; /* strides NULL: dense */
  eng_tensor_in field = {.struct_size = sizeof(field), .name = "tokens"};
  eng_eval_result eval = {.struct_size = sizeof(eval)};
  shape[0] = info->micro_rows, shape[1] = info->length;
  n = shape[0] * shape[1];
  ids = malloc((size_t)n * sizeof *ids);
  if (!ids) exit(1);
  for (k = 0; k < n; ++k) ids[k] = (int32_t)(k % info->vocabulary);
  view.data = ids, view.shape = shape;
  field.borrowed = &view; /* stays ours: the engine reads it during the call */
  check(eng_session_evaluate(run, &field, 1, 0, &eval, &sink));
  free(ids);
  return eval.loss;
}

int main(int argc, char** argv) {
  eng_session_request request = {.struct_size = sizeof(request)};
  eng_session_info info = {.struct_size = sizeof(info)};
  eng_step_result step = {.struct_size = sizeof(step)};
  eng_session* run = NULL;
  DLManagedTensorVersioned* weight = NULL;
  if (argc < 2) {
    fprintf(stderr, "usage: my_thing CONFIG [section.key=value ...]\n");
    return 2;
  }
  request.target = argv[1];
  request.overrides = (const char* const*)(argv + 2);
  request.n_overrides = (uint32_t)(argc - 2);
  request.flags = ENG_SESSION_NO_FILES; /* without it: a run directory with checkpoints, as of `engine run` */
  check(eng_session_open(&request, &run, &sink));
  check(eng_session_start(run, &sink)); /* plans, and takes the memory */
  check(eng_session_describe(run, &info, &sink));

  /* In place: no byte is copied, and each step shows through it. Read it between steps. */
  check(eng_session_take(run, "model.norm.weight", ENG_TENSOR_PARAMETER, 0, &weight, &sink));

  /* On the data of the configuration. A step also takes batches, as the evaluation does. */
  for (;;) {
    check(eng_session_step(run, NULL, 0, &step, &sink));
    if (step.ended) break;
    printf("step %d loss %.4f weight[0] %.6f\n", (int)step.step, step.loss,
           (double)*(const float*)weight->dl_tensor.data);
  }
  printf("loss of numbers in order: %.4f\n", loss_of_numbers(run, &info));

  weight->deleter(weight); /* it may outlive the session, too */
  check(eng_session_close(run, &sink));
  return 0;
}
