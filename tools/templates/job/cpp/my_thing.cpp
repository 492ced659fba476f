// SPDX-License-Identifier: Apache-2.0
// A job: work on a model that is no training. It computes the gradients of several batches and says how much they
// agree: the noise scale of McCandlish et al. 2018, the batch size above which larger batches help little.
//
//     engine --plugin-path build analyse RUN --job my_thing
//
// With gradients g of `windows` windows each, K of them:
//   between = (mean of |g|^2 - |mean of g|^2) K / (K - 1)    the variance of one gradient, summed over its elements
//   signal  = |mean of g|^2 - between / K
//   noise scale = windows * between / signal                 in windows
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "engine/job.h"
#include "engine/ops.h"
#include "engine/plugin.h"

ENG_DESCRIPTION(R"(
[plugin]
id = 'org.example.my_thing'
name = 'my_thing'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'a job'

[[provides]]
kind = ')" ENG_JOB_DRAFT R"('
name = 'my_thing'
summary = 'the noise scale of gradients'

[provides.options]
turns = { type = 'int', default = 16, min = 2, max = 10000, help = 'gradients' }
windows = { type = 'int', default = 4, min = 1, max = 1000000, help = 'of a gradient, over all ranks' }
)")

namespace {

enum { last_gradient, sum_of_gradients, n_states };  // states: a value for each element of the parameters
enum { done, squares, n_values };                    // values: tensors of the job's own
constexpr uint64_t piece = 1 << 16;                  // elements that are read at a time

struct Job {
  int64_t turns, windows;
};

eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, std::strlen(text));
  return status;
}

const Job& of(const void* self) {
  return *static_cast<const Job*>(self);
}

eng_status create(const eng_options* options, void** self, eng_error* error) {
  Job made{};
  if (eng_status s = options->get_int(options, "turns", &made.turns, error)) return s;
  if (eng_status s = options->get_int(options, "windows", &made.windows, error)) return s;
  Job* kept = new (std::nothrow) Job(made);
  if (!kept) return fail(error, ENG_NO_MEMORY, "out of memory");
  *self = kept;
  return ENG_OK;
}

void destroy(void* self) {
  delete static_cast<Job*>(self);
}

// ---- while the plan is made ----

// `kept` are the states that are saved: a job that was stopped goes on with them.
eng_status describe_job(void* self, eng_job_info* out, eng_error*) {
  out->programs = 1;
  out->micro_batch = 1;  // a window at a time takes the least memory
  out->windows = static_cast<uint32_t>(of(self).windows);
  out->kept = 1u << sum_of_gradients;
  return ENG_OK;
}

eng_status states(void*, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error) {
  if (cap < n_states) return fail(error, ENG_OUT_OF_RANGE, "there are two states");
  out[last_gradient].name = "last_gradient";
  out[sum_of_gradients].name = "sum_of_gradients";
  out[last_gradient].dtype = out[sum_of_gradients].dtype = ENG_F32;
  *n = n_states;
  return ENG_OK;
}

eng_status values(void* self, eng_job_value* out, uint32_t cap, uint32_t* n, eng_error* error) {
  if (cap < n_values) return fail(error, ENG_OUT_OF_RANGE, "there are two values");
  out[done].name = "done";
  out[done].shape = {ENG_I64, 1, {1}};
  out[squares].name = "squares";  // |g|^2 of each gradient
  out[squares].shape = {ENG_F64, 1, {of(self).turns}};
  out[done].flags = out[squares].flags = ENG_JOB_KEPT;
  *n = n_values;
  return ENG_OK;
}

// The program: last = g, sum = sum + g. Called for each run of parameters; nothing is computed yet.
eng_status emit(void*, eng_build* b, const eng_update* run, eng_error* error) {
  eng_desc shape{};
  eng_id g = run->grad;
  if (eng_status s = b->api->shape(b, g, &shape, error)) return s;
  if (shape.dtype != ENG_F32) {  // as the precision says
    const eng_attr wide = {"dtype", ENG_F32, 0};
    g = 0;
    if (eng_status s = b->api->emit(b, ENG_OP_CAST, &run->grad, 1, &g, 1, &wide, 1, error)) return s;
  }
  const eng_attr once = {"factor", 0, 1};
  eng_id out = run->states[last_gradient];
  if (eng_status s = b->api->emit(b, ENG_OP_SCALE, &g, 1, &out, 1, &once, 1, error)) return s;
  out = run->states[sum_of_gradients];
  const eng_id terms[] = {out, g};
  return b->api->emit(b, ENG_OP_ADD, terms, 2, &out, 1, nullptr, 0, error);
}

// The memory that `run` allocates; the plan counts it.
eng_status host_bytes(void*, const eng_parameter* const*, uint32_t, const eng_job_site* const*, uint32_t,
                      uint64_t* bytes, eng_error*) {
  *bytes = piece * sizeof(float);
  return ENG_OK;
}

// ---- the work: the same calls on every rank ----

struct Work {
  const Job& job;
  eng_job_host* host;
  eng_error* error;
  std::vector<float> part;

  // The sum of squares of a state over all parameters.
  eng_status square(uint32_t state, double& out) {
    const eng_parameter* const* all = nullptr;
    uint32_t n = 0;
    out = 0;
    if (eng_status s = host->api->parameters(host, &all, &n, error)) return s;
    for (uint32_t p = 0; p < n; ++p) {
      uint64_t count = 1;
      for (uint32_t d = 0; d < all[p]->shape->ndim; ++d) count *= static_cast<uint64_t>(all[p]->shape->dims[d]);
      for (uint64_t first = 0; first < count; first += piece) {
        const uint64_t some = count - first < piece ? count - first : piece;
        if (eng_status s = host->api->read(host, ENG_JOB_STATE, state, all[p]->number, first, some, part.data(), error))
          return s;
        for (uint64_t k = 0; k < some; ++k) out += static_cast<double>(part[k]) * part[k];
      }
    }
    return ENG_OK;
  }

  eng_status turn(int64_t k) {
    double norm = 0;
    const auto first = static_cast<uint64_t>(k * job.windows);
    if (eng_status s = host->api->gradient(host, ENG_JOB_TRAIN, first, nullptr, error)) return s;
    const float none = 0;  // numbers that ops of the program would find in their scalars
    if (eng_status s = host->api->program(host, 0, &none, 0, 0, error)) return s;
    if (eng_status s = square(last_gradient, norm)) return s;
    const int64_t next = k + 1;
    const auto at = static_cast<uint64_t>(k);
    if (eng_status s = host->api->write(host, ENG_JOB_VALUE, 0, squares, at, 1, &norm, error)) return s;
    if (eng_status s = host->api->write(host, ENG_JOB_VALUE, 0, done, 0, 1, &next, error)) return s;
    if (eng_status s = host->api->save(host, error)) return s;
    return host->api->progress(host, "gradients", static_cast<uint64_t>(next), static_cast<uint64_t>(job.turns),
                               nullptr, error);
  }

  eng_status result() {
    const auto turns = static_cast<double>(job.turns);
    double of_sum = 0, mean = 0;
    if (eng_status s = square(sum_of_gradients, of_sum)) return s;
    for (int64_t k = 0; k < job.turns; ++k) {
      double one = 0;
      const auto at = static_cast<uint64_t>(k);
      if (eng_status s = host->api->read(host, ENG_JOB_VALUE, 0, squares, at, 1, &one, error)) return s;
      mean += one / turns;
    }
    const double of_mean = of_sum / (turns * turns), between = (mean - of_mean) * turns / (turns - 1),
                 signal = of_mean - between / turns, scale = static_cast<double>(job.windows) * between / signal;
    char text[400];
    const int n = std::snprintf(text, sizeof text,
                                "{\"gradients\": %lld, \"windows\": %lld, \"mean_square\": %.9g, \"square_of_mean\": "
                                "%.9g, \"signal\": %.9g, \"noise_scale_windows\": %.9g}\n",
                                static_cast<long long>(job.turns), static_cast<long long>(job.windows), mean, of_mean,
                                signal, signal > 0 ? scale : -1);  // -1: too few gradients to tell
    return host->api->file(host, "my_thing.json", text, static_cast<uint64_t>(n), error);
  }
};

eng_status run(void* self, eng_job_host* host, eng_error* error) {
  Work work{of(self), host, error, {}};
  try {
    work.part.resize(piece);
  } catch (...) {
    return fail(error, ENG_NO_MEMORY, "out of memory");
  }
  uint64_t windows = 0;
  int64_t begin = 0;
  if (eng_status s = host->api->windows(host, ENG_JOB_TRAIN, &windows, nullptr, error)) return s;
  if (windows < static_cast<uint64_t>(work.job.turns * work.job.windows))
    return fail(error, ENG_INVALID, "the data have fewer windows than job.turns * job.windows");
  // 0 the first time; after an interruption what was saved.
  if (eng_status s = host->api->read(host, ENG_JOB_VALUE, 0, done, 0, 1, &begin, error)) return s;
  for (int64_t k = begin; k < work.job.turns; ++k)
    if (eng_status s = work.turn(k)) return s;
  return work.result();
}

constexpr eng_job make_table() {
  eng_job table{};
  table.struct_size = sizeof table;
  table.minor = ENG_ABI_MINOR;
  table.create = create;
  table.destroy = destroy;
  table.describe = describe_job;
  table.states = states;
  table.values = values;
  table.emit = emit;
  table.host_bytes = host_bytes;
  table.run = run;
  return table;  // site and observe are NULL: it reads nothing inside the forward
}
constexpr eng_job table = make_table();

// ---- the plugin ----

const char* describe() {
  return eng_description;
}

eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}

void stop() {}

const void* get_interface(const char* kind, const char* name) {
  return !std::strcmp(kind, ENG_JOB_KIND) && !std::strcmp(name, "my_thing") ? &table : nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
