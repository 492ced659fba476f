// SPDX-License-Identifier: Apache-2.0
#include "job.hpp"

namespace curvature {
namespace {

eng_status create(const eng_options* options, void** self, eng_error* error) {
  return common::guarded(error, [&] { *self = new Job(options); });
}
void destroy(void* self) {
  delete static_cast<Job*>(self);
}

}  // namespace

const eng_job job = {.struct_size = sizeof(eng_job),
                     .minor = 0,
                     .create = create,
                     .destroy = destroy,
                     .describe = describe,
                     .states = states,
                     .values = values,
                     .emit = emit,
                     .host_bytes = host_bytes,
                     .run = run,
                     .site = site,
                     .observe = observe,
                     .part = part};

}  // namespace curvature
