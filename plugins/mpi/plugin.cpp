// SPDX-License-Identifier: Apache-2.0
#include "../common/comm/plugin.hpp"
#include "collectives.hpp"
#include "comm.hpp"

ENG_DESCRIPTION(R"toml([plugin]
id = 'eng.mpi'
name = 'mpi'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'Many ranks, joined by Open MPI'

[[provides]]
kind = ')toml" ENG_COMM_DRAFT R"toml('
name = 'mpi'
summary = 'The ranks that one mpirun or srun started; moves host memory'

[provides.options.message_bytes]
type = 'bytes'
default = '64MiB'
min = 1
max = '2047MiB'
help = 'Largest message; longer transfers are split into several'

[[provides]]
kind = ')toml" ENG_KERNELS_DRAFT R"toml('
name = 'mpi'
summary = 'all_gather, all_to_all and broadcast of any dtype; reduce_scatter and all_reduce of f32 and f64, summed by MPI'
)toml")

namespace {

using mpi::Comm;
using Functions = common::CommFunctions<Comm>;

eng_status create(const eng_options* options, double deadline, eng_world* out, void** self, eng_error* error) {
  int64_t message_bytes = 0;
  if (const eng_status s = options->get_int(options, "message_bytes", &message_bytes, error)) return s;
  return common::guarded(error, [&] {
    eng_world world = *out;
    *self = Functions::adopt(std::make_unique<Comm>(deadline, static_cast<uint64_t>(message_bytes), world));
    *out = world;
  });
}

const eng_comm comm_table = Functions::table(0, create, 11300000);

constexpr char name[] = "mpi";

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &common::CommPlugin<Comm, comm_table, mpi::collectives, name, eng_description>::plugin;
}
