// SPDX-License-Identifier: Apache-2.0
// A text in which a rank tells rank 0 what it has written, and the manifest that rank 0 makes of all of them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "session/checkpoint/manifest.hpp"

namespace eng {

// A rank's part, in about 50 bytes for a range: the names follow from the tensor and the rank.
std::string part_text(const Manifest& part);
// Writes the manifest of all parts, by rank, a tensor at a time; each part lists the tensors of `specs`. Returns the
// bytes of the checkpoint. Throws Error(Exit::disk), and Error(Exit::checkpoint, bug) for parts that are none of one
// checkpoint, such as those that leave an element out.
uint64_t write_manifest(const std::filesystem::path& path, const RunPoint& point,
                        const std::vector<ManifestTensor>& specs, std::vector<std::string> parts);

}  // namespace eng
