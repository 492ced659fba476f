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

void pin(void* address, uint64_t bytes) {
  const std::lock_guard lock(ranges_mutex);
  pinned_ranges[static_cast<const char*>(address)] = {pages(bytes), static_cast<char*>(address)};
}

void unpin(void* address) {
  const std::lock_guard lock(ranges_mutex);
  pinned_ranges.erase(static_cast<const char*>(address));
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

uint64_t size_of(const DLTensor& t) {
  uint64_t n = static_cast<uint64_t>(t.dtype.bits / 8) * t.dtype.lanes;
  for (int32_t k = 0; k < t.ndim; ++k) n *= static_cast<uint64_t>(t.shape[k]);
  return n;
}

std::vector<std::pair<char*, uint64_t>> fresh_bytes(const std::vector<const DLTensor*>& tensors, size_t n_in) {
  std::vector<std::pair<char*, uint64_t>> out;
  for (size_t o = n_in; o < tensors.size(); ++o) {
    if (!tensors[o]) continue;
    std::vector<std::pair<char*, char*>> left = {{static_cast<char*>(tensors[o]->data), nullptr}};
    left[0].second = left[0].first + size_of(*tensors[o]);
    for (size_t i = 0; i < n_in; ++i) {
      if (!tensors[i]) continue;
      char* const from = static_cast<char*>(tensors[i]->data);
      char* const to = from + size_of(*tensors[i]);
      std::vector<std::pair<char*, char*>> rest;
      for (const auto& [a, b] : left) {
        if (a < std::min(b, from)) rest.emplace_back(a, std::min(b, from));
        if (std::max(a, to) < b) rest.emplace_back(std::max(a, to), b);
      }
      left = rest;
    }
    for (const auto& [a, b] : left) out.emplace_back(a, static_cast<uint64_t>(b - a));
  }
  return out;
}

}  // namespace far
