// SPDX-License-Identifier: Apache-2.0
// [reference] store: the log-probabilities of a data set, computed once; whether a file belongs to a run.
#pragma once

#include <functional>

#include "session/run/weights.hpp"

namespace eng {

// [reference] store: the file; "" if there is none.
std::filesystem::path stored_reference(const Config& config);
// Throws Error(Exit::data) if the file is not there, or was computed by another model, with other weights or another
// precision. Whether it belongs to the data is checked where these are opened. Returns the hash of the weights.
std::string check_stored_reference(const Config& config);

struct StoredWork {
  uint64_t sequences = 0, samples = 0;  // different ones, and all
};
// Computes the file: the log-probability of the labels of every sample, training and held out, by the model that
// [reference] from names. `plan`: is called with the setup before memory is allocated; `progress`: with the samples
// done and all. Throws Error.
StoredWork compute_stored_reference(const Config& config, Registry& registry,
                                    const std::function<void(Setup&, const Data&)>& plan,
                                    const std::function<void(uint64_t, uint64_t)>& progress);

}  // namespace eng
