// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/kernel.h"
#include "engine/threads.h"
#include "isa.hpp"

namespace cpu {

struct Device {
  unsigned threads;
  const Isa* isa;
};

// The device that eng_device.create made.
inline const Device& device_of(const void* self) {
  return *static_cast<const Device*>(self);
}

extern const eng_device device_table;
// Set when the plugin is started; nullptr: this host has none.
extern const eng_threads* host_threads;

}  // namespace cpu
