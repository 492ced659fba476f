// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "../common/comm/plugin.hpp"
#include "collectives.hpp"
#include "comm.hpp"

ENG_DESCRIPTION(R"toml([plugin]
id = 'eng.nccl'
name = 'nccl'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'Many ranks with GPUs, joined by NCCL'

[[provides]]
kind = ')toml" ENG_COMM_DRAFT R"toml('
name = 'nccl'
summary = 'The ranks that any launcher started; moves memory of GPUs. Not yet run on a GPU'

[provides.options]
address = { type = 'string', default = '127.0.0.1', help = 'where rank 0 listens and the others find it; MASTER_ADDR comes first, where it is set' }
port = { type = 'int', default = 29500, min = 1, max = 65535, help = 'the port there; MASTER_PORT comes first, where it is set' }

[provides.options.share_gpus]
type = 'bool'
default = false
help = 'ranks may have the same GPU, which NCCL 2.30 and later try with NCCL_MULTI_RANK_GPU_ENABLE=1; slow, for tests'

[[provides]]
kind = ')toml" ENG_KERNELS_DRAFT R"toml('
name = 'nccl'
summary = 'all_gather, all_to_all and broadcast of any dtype; reduce_scatter and all_reduce of floats, summed by NCCL'
)toml")

namespace {

using nccl::Comm;
using Functions = common::CommFunctions<Comm>;

eng_status create(const eng_options* options, double deadline, eng_world* out, void** self, eng_error* error) {
  const char* address = nullptr;
  int64_t port = 0;
  int32_t share = 0;
  if (const eng_status s = options->get_string(options, "address", &address, error)) return s;
  if (const eng_status s = options->get_int(options, "port", &port, error)) return s;
  if (const eng_status s = options->get_bool(options, "share_gpus", &share, error)) return s;
  return common::guarded(error, [&] {
    if (Functions::living) throw nccl::Error{ENG_PRECONDITION, "this process has already joined the other ranks"};
    eng_world world = *out;
    constexpr double most = 1e9;  // seconds: what clocks count
    auto made = std::make_unique<Comm>(*out, address, static_cast<uint16_t>(port), std::min(deadline, most), world);
    made->take_gpu(share != 0);
    *out = world;
    *self = Functions::adopt(std::move(made));
  });
}

constexpr uint64_t overhead = uint64_t{256} << 20;  // bytes; assumed: not yet measured on a GPU
const eng_comm comm_table = Functions::table(ENG_COMM_DEVICE_MEMORY | ENG_COMM_ANY_LAUNCHER, create, overhead);

constexpr char name[] = "nccl";

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &common::CommPlugin<Comm, comm_table, nccl::collectives, name, eng_description>::plugin;
}
