// SPDX-License-Identifier: Apache-2.0
// Existing weights, as named by [model] from: a Hugging Face directory, a run, or one of its checkpoints.
#pragma once

#include "session/train/trainer.hpp"

namespace eng {

enum class WeightsKind { none, hugging_face, checkpoint, run };
WeightsKind weights_kind(const std::filesystem::path& directory);

// The model that a directory describes, from config.json or from the configuration of the run. `plugin`: the model
// plugin that the user named, or "" to find it. Throws an Error(Exit::usage) that lists everything that is not
// supported.
ModelSource read_model_source(const std::filesystem::path& directory, const std::string& plugin,
                              const SchemaSource& plugins);

// [model] from: the directory, "" if there is none.
std::filesystem::path weights_source(const Config& config);
// The place of a directory's weights: the directory itself, or the newest good checkpoint of a run. Throws
// Error(Exit::checkpoint).
std::filesystem::path find_weights(const std::filesystem::path& directory, const Peers& peers = {});

// Called with the number of bytes read so far, and of all bytes.
using WeightsProgress = std::function<void(uint64_t done, uint64_t all)>;

// Fills exactly the ranges of the given parameters, each in its own element type. `pretrained` says which names are
// accepted in a Hugging Face directory. Without `fill`, checks only what needs no data. Throws the same
// Error(Exit::checkpoint) on all ranks; it lists every tensor that does not fit.
void load_weights(const std::filesystem::path& directory, const Pretrained& pretrained,
                  const std::vector<TensorShare>& parameters, const Fill& fill, const WeightsProgress& progress = {},
                  const Peers& peers = {});
// A note if some of the given parameters are kept in a type that cannot hold all values of the one that they have in a
// Hugging Face directory or a checkpoint; "" if there are none. Reads headers only.
std::string rounding_note(const std::filesystem::path& place, const Pretrained& pretrained,
                          const std::vector<TensorShare>& parameters);
// Reads the headers of the files that [model] from names, if any, and refuses tensors that do not fit before memory is
// allocated. Throws Error(Exit::checkpoint).
void check_weights(const Config& config, const Registry& registry, const Setup& setup);
// The check of check_weights as Readable::traced, before anything is planned.
std::function<void(const Model&)> weights_check(const Config& config, const Registry& registry);

// The directories that say how a run's texts end: the Hugging Face directory that it came from, and the folder of its
// tokenizer.
std::vector<std::filesystem::path> text_directories(const Config& config);

// [reference] from: the directory; "" if the reference begins as the model does, or has no weights of its own.
std::filesystem::path reference_source(const Config& config);
struct ReferenceWeights {
  Weights weights;   // none: it begins as the model does
  std::string hash;  // of them; "" if there are none
};
// For Trainer::set_reference. With [reference] store there are no weights, only their hash. Borrows the registry.
// Throws Error(Exit::usage) if they are of another model, and whatever check_stored_reference throws.
ReferenceWeights reference_weights(const Config& config, const Registry& registry);

// Tells weights apart without reading all of them: of a checkpoint, its manifest, which has the checksums of all
// values; of files of weights, their names and sizes and 64 pieces of each. 32 hexadecimal digits.
std::string fingerprint(const std::filesystem::path& source);
// Throws Error(Exit::usage) if a directory has another model than [model]: it may differ in its weights only.
void compare_models(const std::filesystem::path& source, const Config& config, const Registry& registry);

// That of the configured model plugin.
const Pretrained& pretrained_table(const Config& config, const Registry& registry);

// For Trainer::initialise; none for "". If `directory` is [model] from, also the paths of [model] adapter. `note` gets
// a rounding_note, if there is one. Borrows the configuration and the registry.
Weights weights_of(const std::filesystem::path& directory, const Config& config, const Registry& registry,
                   const WeightsProgress& progress = {}, const std::function<void(const std::string&)>& note = {});

}  // namespace eng
