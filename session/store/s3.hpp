// SPDX-License-Identifier: Apache-2.0
// A store that speaks S3: Amazon's, MinIO, Ceph and others. Requests are signed here (signature version 4), so that any
// libcurl will do: that of Ubuntu 22.04 signs no bodies for S3.
#pragma once

#include "session/objects.hpp"
#include "session/store/address.hpp"

namespace eng::store {

// Objects of more bytes are sent in parts of so many, or of more where 10,000 parts would not do.
inline constexpr uint64_t part_bytes = uint64_t{64} << 20;
inline constexpr uint64_t most_parts = 10'000;
uint64_t part_size(uint64_t bytes);

// Reads the environment and loads libcurl; sends nothing. Until told otherwise, a signal stops it. `stall`: as
// hub::open_transport has it. Throws Error(Exit::usage, environment).
std::unique_ptr<ObjectStore> open_store(const std::string& address, double stall = 60);
std::unique_ptr<ObjectStore> open_store(const std::string& address, const Variable& variable, double stall);

}  // namespace eng::store
