// SPDX-License-Identifier: Apache-2.0
#include "isa.hpp"

#include <cstring>

namespace cpu {
namespace {
const Isa* const all[] = {
#ifdef CPU_X86
    &isa_avx512,
    &isa_avx2,
#endif
    &isa_portable,
};
}  // namespace

const Isa* best_isa() {
  for (const Isa* isa : all)
    if (isa->supported()) return isa;
  return &isa_portable;
}

const Isa* find_isa(const char* name) {
  for (const Isa* isa : all)
    if (std::strcmp(isa->name, name) == 0) return isa->supported() ? isa : nullptr;
  return nullptr;
}

}  // namespace cpu
