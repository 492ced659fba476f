// SPDX-License-Identifier: Apache-2.0
// The job: what it keeps, its programs, and the order of the work (run.cpp).
#pragma once

#include <string>
#include <vector>

#include "../common/error.hpp"
#include "engine/job.h"
#include "options.hpp"

namespace curvature {

using common::Error;

// States of a parameter, by number. With job.noise_seeds = 0 the last two do not exist.
enum State : uint32_t {
  base,      // the parameters as the job found them
  gradient,  // a gradient that was taken, in f32
  mean,      // of the estimates of the diagonal
  m2,        // the sum of squares around it
  kinds,     // u8: the class of an element
  scale,     // of the noise: one for each 4,096 elements
};

enum Program : uint32_t {
  program_keep,     // base = parameter
  program_restore,  // parameter = base
  program_take,     // gradient = the last gradient
  program_add,      // one more estimate
  program_shift,    // parameter = base + a * v
  program_noise,    // parameter = base + noise for one class
};

// Tensors of its own.
enum Value : uint32_t {
  value_progress,   // i64 (2): probes done, cells of the response map done
  value_responses,  // f64: perplexity and AUC of each cell
};

// The part of the job that an object does (eng_job.part): the whole; or sizes of the model and activations; or the
// probes of a group of tensors; or all that needs every tensor's measures.
enum class Part { whole, survey, group, join };

struct Job {
  Options options;
  bool narrow = false;  // activations have 16 bits
  Part part = Part::whole;
  uint32_t groups = 0;  // of tensors, in parts 1 to this
  explicit Job(const eng_options* given) : options(given) {}

  bool probes() const { return part == Part::whole || part == Part::group; }
  // Noise is added to classes.
  bool responds() const { return options.responds() && (part == Part::whole || part == Part::join); }
  uint32_t cells() const { return static_cast<uint32_t>(options.noise.size()) * 3 * options.noise_seeds; }
  // The part of a parameter's elements that is measured, before job.max_parameters.
  double rate_of(const eng_desc& shape) const;
};

constexpr uint64_t piece = 1 << 18;  // elements of a tensor that are in host memory at a time

uint64_t elements_of(const eng_desc& shape);
uint64_t rows_of(const eng_desc& shape);

// plan.cpp
eng_status describe(void* self, eng_job_info* out, eng_error* error);
eng_status states(void* self, eng_state_rule* out, uint32_t cap, uint32_t* n, eng_error* error);
eng_status values(void* self, eng_job_value* out, uint32_t cap, uint32_t* n, eng_error* error);
eng_status emit(void* self, eng_build* b, const eng_update* run, eng_error* error);
eng_status host_bytes(void* self, const eng_parameter* const* parameters, uint32_t n_parameters,
                      const eng_job_site* const* sites, uint32_t n_sites, uint64_t* bytes, eng_error* error);
eng_status site(void* self, const eng_job_site* site, eng_desc* out, eng_error* error);
eng_status observe(void* self, eng_build* b, const eng_job_site* site, eng_id value, eng_id into, eng_error* error);
eng_status part(void* self, uint32_t index, uint32_t count, eng_error* error);
// run.cpp
eng_status run(void* self, eng_job_host* host, eng_error* error);

extern const eng_job job;

}  // namespace curvature
