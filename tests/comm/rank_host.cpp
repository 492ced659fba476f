// SPDX-License-Identifier: Apache-2.0
// The communicator mpi, on memory of the host.
#include "rank.hpp"

namespace rank {

const Subject subject = {
    .plugin = "mpi",
    .device = "reference",
    .files = {"mpi/mpi", "cpu/reference"},
    .enqueues = false,
    .allocate = [](size_t bytes) { return ::operator new(bytes); },
    .release = [](void* p) { ::operator delete(p); },
    .queue = []() -> void* { return nullptr; },
    .begin = [](void*) {},
    .wait = [](void*) { return std::string(); },
    .options =
        [](double timeout, int64_t message_bytes) {
          return eng::Section("comm", {{"plugin", {std::string("mpi"), "test", true}},
                                       {"timeout", {timeout, "test", true}},
                                       {"message_bytes", {message_bytes, "test", true}}});
        },
};

}  // namespace rank
