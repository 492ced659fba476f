// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "far.hpp"

namespace far {
namespace {

struct Range {
  uint64_t bytes;
  char* real;
};
std::mutex ranges_mutex;
std::map<const char*, Range> device_ranges, pinned_ranges;  // by first address

uint64_t pages(uint64_t bytes) {
  return (std::max<uint64_t>(bytes, 1) + 4095) / 4096 * 4096;
}

void* map(uint64_t bytes, int protection) {
  void* out = mmap(nullptr, pages(bytes), protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (out == MAP_FAILED) throw Error{ENG_NO_MEMORY, "no " + std::to_string(bytes) + " bytes"};
  return out;
}

char* find(const std::map<const char*, Range>& ranges, const char* address, uint64_t bytes) {
  auto it = ranges.upper_bound(address);
  if (it == ranges.begin()) return nullptr;
  --it;
  const auto offset = static_cast<uint64_t>(address - it->first);
  return offset + bytes <= it->second.bytes ? it->second.real + offset : nullptr;
}

}  // namespace

void* alloc_device(uint64_t bytes) {
  char* address = static_cast<char*>(map(bytes, PROT_NONE));
  char* real = static_cast<char*>(map(bytes, PROT_READ | PROT_WRITE));
  std::memset(real, 0, pages(bytes));
  const std::lock_guard lock(ranges_mutex);
  device_ranges[address] = {pages(bytes), real};
  return address;
}

void* alloc_pinned(uint64_t bytes) {
  char* address = static_cast<char*>(map(bytes, PROT_READ | PROT_WRITE));
  std::memset(address, 0, pages(bytes));
  const std::lock_guard lock(ranges_mutex);
  pinned_ranges[address] = {pages(bytes), address};
  return address;
}

void free_device(void* address) {
  const std::lock_guard lock(ranges_mutex);
  const auto it = device_ranges.find(static_cast<const char*>(address));
  if (it == device_ranges.end()) return;
  munmap(it->second.real, it->second.bytes);
  munmap(address, it->second.bytes);
  device_ranges.erase(it);
}

void free_pinned(void* address) {
  const std::lock_guard lock(ranges_mutex);
  const auto it = pinned_ranges.find(static_cast<const char*>(address));
  if (it == pinned_ranges.end()) return;
  munmap(address, it->second.bytes);
  pinned_ranges.erase(it);
}

void* device_bytes_of(const void* address, uint64_t bytes) {
  const std::lock_guard lock(ranges_mutex);
  if (char* real = find(device_ranges, static_cast<const char*>(address), bytes)) return real;
  throw Error{ENG_INVALID, "an address that is not the device's"};
}

void* bytes_of(const void* address, uint64_t bytes) {
  {
    const std::lock_guard lock(ranges_mutex);
    if (char* real = find(pinned_ranges, static_cast<const char*>(address), bytes)) return real;
  }
  return device_bytes_of(address, bytes);
}

}  // namespace far
