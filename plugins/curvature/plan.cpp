// SPDX-License-Identifier: Apache-2.0
// The states that the job keeps, and the ops of its programs.
#include <algorithm>
#include <cmath>

#include "engine/ops.h"
#include "job.hpp"
#include "ops.hpp"
#include "report/charts.hpp"
#include "results.hpp"

namespace curvature {

uint64_t elements_of(const eng_desc& shape) {
  uint64_t n = 1;
  for (uint32_t k = 0; k < shape.ndim; ++k) n *= static_cast<uint64_t>(shape.dims[k]);
  return n;
}

double Job::rate_of(const eng_desc& shape) const {
  const auto n = static_cast<double>(elements_of(shape)), wanted = static_cast<double>(options.samples_per_tensor);
  return options.samples_per_tensor == 0 || wanted >= n ? 1.0 : wanted / n;
}

uint64_t rows_of(const eng_desc& shape) {
  return shape.ndim ? static_cast<uint64_t>(shape.dims[0]) : 1;
}

eng_status describe(void* self, eng_job_info* out, eng_error*) {
  const Job& job = *static_cast<const Job*>(self);
  out->programs = job.responds() ? program_noise + 1 : job.probes() ? uint32_t{program_noise} : 0;
  out->micro_batch = job.options.micro_batch;
  out->windows = job.options.windows;
  if (job.probes()) out->kept = 1U << mean | 1U << m2, out->writes = 1U << program_restore | 1U << program_shift;
  if (!job.probes()) out->flags = ENG_JOB_NO_GRADIENTS;
  if (job.responds()) out->writes |= 1U << program_restore | 1U << program_noise;
  return ENG_OK;
}

eng_status part(void* self, uint32_t index, uint32_t count, eng_error*) {
  Job& job = *static_cast<Job*>(self);
  job.groups = count - 2;
  job.part = index == 0 ? Part::survey : index <= job.groups ? Part::group : Part::join;
  return ENG_OK;
}

namespace {

eng_status in_blocks(void*, const eng_parameter*, eng_state_shape* io, eng_error*) {
  io->kind = ENG_STATE_BLOCKS, io->block = noise_block;
  return ENG_OK;
}

eng_status in_no_part(void*, const eng_parameter*, eng_state_shape* io, eng_error*) {
  io->kind = ENG_STATE_NONE;
  return ENG_OK;
}

eng_desc flat(int32_t dtype, int64_t n) {
  eng_desc d{};
  d.dtype = dtype, d.ndim = 1, d.dims[0] = n;
  return d;
}

// The ops of one parameter in a run of elements.
class Emitted {
 public:
  Emitted(const Job& job, eng_build* b, const eng_update& run, const eng_range& range)
      : job_(job), b_(b), run_(run), range_(range) {}

  void shift() {
    const eng_id in[] = {state(base), run_.scalars, run_.counters};
    op(CURVATURE_OP_PERTURB, in, 3, {part(run_.master)}, true);
  }
  void noise() {
    const eng_id in[] = {state(base), state(kinds), scale_part(), run_.scalars, run_.counters};
    op(CURVATURE_OP_NOISE, in, 5, {part(run_.master)}, true);
  }
  void add() {
    const eng_id after = state(mean), squares = state(m2), grad = fresh();
    if (job_.options.fisher) {
      const eng_id in[] = {grad, after, squares, run_.scalars};
      return op(CURVATURE_OP_FISHER, in, 4, {after, squares}, false);
    }
    const eng_id in[] = {state(gradient), grad, after, squares, run_.scalars, run_.counters};
    op(CURVATURE_OP_HUTCHINSON, in, 6, {after, squares}, true);
  }

 private:
  eng_id slice(eng_id value, uint64_t first, uint64_t count) {
    eng_id out = 0;
    b_->api->slice(b_, value, first, count, &out, nullptr);
    return out;
  }
  eng_id part(eng_id value) { return slice(value, range_.offset, range_.count); }
  eng_id state(State s) { return part(run_.states[s]); }
  eng_id scale_part() {
    return slice(run_.states[scale], range_.offset / noise_block, (range_.count + noise_block - 1) / noise_block);
  }
  // The gradient in f32.
  eng_id fresh() {
    eng_desc shape{};
    b_->api->shape(b_, run_.grad, &shape, nullptr);
    const eng_id grad = part(run_.grad);
    return shape.dtype == ENG_F32 ? grad : eng_cast(b_, grad, ENG_F32);
  }
  void op(const char* name, const eng_id* in, uint32_t n_in, std::vector<eng_id> out, bool draws) {
    const eng_attr attrs[] = {{"seed", job_.options.seed, 0},
                              {"stream", range_.parameter->number, 0},
                              {"first", static_cast<int64_t>(range_.first), 0},
                              {"rate", 0, job_.rate_of(*range_.parameter->shape)}};
    b_->api->emit(b_, name, in, n_in, out.data(), static_cast<uint32_t>(out.size()), attrs, draws ? 4 : 0, nullptr);
  }
  const Job& job_;
  eng_build* b_;
  const eng_update& run_;
  const eng_range& range_;
};

void emit_copy(eng_build* b, eng_id from, eng_id to) {
  b->api->emit(b, CURVATURE_OP_COPY, &from, 1, &to, 1, nullptr, 0, nullptr);
}
// As f32.
void emit_taken(eng_build* b, eng_id grad, eng_id to) {
  eng_desc shape{};
  b->api->shape(b, grad, &shape, nullptr);
  if (shape.dtype == ENG_F32) return emit_copy(b, grad, to);
  const eng_attr attr = {"dtype", ENG_F32, 0};
  b->api->emit(b, ENG_OP_CAST, &grad, 1, &to, 1, &attr, 1, nullptr);
}

void need_f32(eng_build* b, eng_id master) {
  eng_desc shape{};
  if (b->api->shape(b, master, &shape, nullptr) == ENG_OK && shape.dtype != ENG_F32)
    throw Error{ENG_UNSUPPORTED,
                "it moves parameters by small steps, so it needs masters in f32, and this precision.plugin keeps them "
                "in another type; set precision.plugin = \"fp32\""};
}

}  // namespace

eng_status states(void* self, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error) {
  const Job& job = *static_cast<const Job*>(self);
  const auto measured = job.probes() ? nullptr : in_no_part;
  const eng_state_rule rules[] = {{"base", ENG_F32, 0, nullptr},     {"gradient_kept", ENG_F32, 0, measured},
                                  {"hessian", ENG_F32, 0, measured}, {"hessian_m2", ENG_F32, 0, measured},
                                  {"class", ENG_U8, 0, nullptr},     {"noise_scale", ENG_F32, 0, in_blocks}};
  const uint32_t all = job.responds() ? scale + 1 : job.probes() ? uint32_t{kinds} : 0;
  if (cap < all) return common::report(error, ENG_OUT_OF_RANGE, "curvature has 6 states; the host has room for fewer");
  std::copy_n(rules, all, out);
  *n = all;
  return ENG_OK;
}

eng_status values(void* self, eng_job_value* out, uint32_t cap, uint32_t* n, eng_error* error) {
  const Job& job = *static_cast<const Job*>(self);
  const uint32_t all = job.options.responds() ? value_responses + 1 : value_responses;
  if (cap < all) return common::report(error, ENG_OUT_OF_RANGE, "curvature has 2 values; the host has room for fewer");
  const eng_job_value both[] = {{"progress", flat(ENG_I64, 2), ENG_JOB_KEPT, 0},
                                {"responses", flat(ENG_F64, int64_t{2} * job.cells()), ENG_JOB_KEPT, 0}};
  std::copy_n(both, all, out);
  *n = all;
  return ENG_OK;
}

eng_status emit(void* self, eng_build* b, const eng_update* run, eng_error* error) {
  return common::guarded(error, [&]() -> eng_status {
    const Job& job = *static_cast<const Job*>(self);
    need_f32(b, run->master);
    if (!job.probes() && run->stage >= program_take && run->stage <= program_shift) return ENG_OK;  // never called
    if (run->stage == program_keep) emit_copy(b, run->master, run->states[base]);
    if (run->stage == program_restore) emit_copy(b, run->states[base], run->master);
    if (run->stage == program_take) emit_taken(b, run->grad, run->states[gradient]);
    for (uint32_t r = 0; r < run->n_ranges; ++r) {
      Emitted one(job, b, *run, run->ranges[r]);
      if (run->stage == program_add) one.add();
      if (run->stage == program_shift) one.shift();
      if (run->stage == program_noise) one.noise();
    }
    return b->api->status(b, error);
  });
}

// The measures, and the most that the job has beside them at a time: pieces of a tensor; a picture with its surface and
// the library that draws it; or, later, the text of results.json beside what that library keeps. What a row, a tensor,
// a mark of a chart and a unit take is measured: their numbers, and their text.
eng_status host_bytes(void* self, const eng_parameter* const* parameters, uint32_t n_parameters,
                      const eng_job_site* const* sites, uint32_t n_sites, uint64_t* bytes, eng_error*) {
  const Job& job = *static_cast<const Job*>(self);
  const Options& o = job.options;
  uint64_t rows = 0, units = 0, largest = 0;
  for (uint32_t k = 0; k < n_parameters; ++k) {
    rows += rows_of(*parameters[k]->shape);
    largest = std::max(largest, elements_of(*parameters[k]->shape));
  }
  for (uint32_t k = 0; k < n_sites; ++k)
    units += static_cast<uint64_t>(sites[k]->shape->dims[sites[k]->shape->ndim - 1]);
  if (rows > o.max_rows) rows = 0;  // none is kept
  const uint64_t divided = o.by_row ? rows : n_parameters, points = std::min<uint64_t>(o.points, divided),
                 marks = report::drawn(points) * 350 + (o.by_row ? report::drawn(divided) * 2000 : 0);
  const uint64_t pieces = 4 * sizeof(float) * std::min(largest, piece),
                 windows = (uint64_t{o.held_windows} + o.train_windows) * 64,
                 parts = rows * 88 + units * 16 + uint64_t{n_parameters} * 512;  // the text of `earlier`
  if (job.part == Part::survey || job.part == Part::group) {
    *bytes = pieces + parts + rows * sizeof(Row) + units * sizeof(Site::Unit) + windows;
    return ENG_OK;
  }
  const uint64_t picture = 9'300'000 + (o.responds() ? 150'000 : 0) + (o.embedding == "none" ? 0 : 150'000),
                 library = 3'950'000;
  const uint64_t text = 750'000 + rows * 304 + units * (rows ? 40 : 0) + uint64_t{n_parameters} * 640;
  *bytes = std::max({pieces, picture, library + text, job.part == Part::join ? parts : 0}) + rows * sizeof(Row) +
           uint64_t{n_parameters} * 2048 + marks + units * sizeof(Site::Unit) + windows;
  return ENG_OK;
}

eng_status site(void* self, const eng_job_site* site, eng_desc* out, eng_error* error) {
  return common::guarded(error, [&] {
    Job& job = *static_cast<Job*>(self);
    const auto& names = job.options.activations;
    if (job.part == Part::group || job.part == Part::join) return;
    if (site->output != 0 || std::find(names.begin(), names.end(), site->op) == names.end()) return;
    for (uint32_t k = 0; k < site->n_attrs; ++k) {
      if (std::string(site->attrs[k].key) != "act") continue;
      const int64_t act = site->attrs[k].i;
      if (act < ENG_ACT_SILU || act > ENG_ACT_RELU)
        throw Error{ENG_UNSUPPORTED, std::string(site->op) + " in block " + site->block + " has the activation " +
                                         std::to_string(act) +
                                         ", which is unknown: remove the op from job.activations"};
    }
    const int32_t type = site->shape->dtype;
    if (site->shape->ndim < 1 || (type != ENG_F32 && type != ENG_F64 && type != ENG_BF16 && type != ENG_F16))
      throw Error{ENG_UNSUPPORTED, std::string(site->op) + " in block " + site->block +
                                       " gives no real numbers: remove it from job.activations"};
    job.narrow = job.narrow || type == ENG_BF16 || type == ENG_F16;
    *out = eng_desc{};
    out->dtype = ENG_I64, out->ndim = 2, out->dims[0] = 2, out->dims[1] = site->shape->dims[site->shape->ndim - 1];
  });
}

eng_status observe(void* self, eng_build* b, const eng_job_site*, eng_id value, eng_id into, eng_error* error) {
  const Job& job = *static_cast<const Job*>(self);
  const eng_id in[] = {value, into};
  const eng_attr attr = {"threshold", 0, job.options.sparsity_threshold};
  b->api->emit(b, CURVATURE_OP_COUNT, in, 2, &into, 1, &attr, 1, nullptr);
  return b->api->status(b, error);
}

}  // namespace curvature
