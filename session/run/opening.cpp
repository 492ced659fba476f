// SPDX-License-Identifier: Apache-2.0
#include "session/run/opening.hpp"

#include "core/base/error.hpp"
#include "session/cards/target.hpp"
#include "session/checksum.hpp"
#include "session/config/config_text.hpp"
#include "session/planning/bookkeeping.hpp"
#include "session/planning/fits.hpp"
#include "session/planning/free_workspace.hpp"
#include "session/run/waiting.hpp"
#include "session/train/epochs.hpp"

namespace eng {

ResolvedConfig::ResolvedConfig(const Config& config)
    : text(resolved_text(config)), hash(Checksum::of(config_item(config).text)) {}

void Opening::tell(const std::vector<std::string>& notes) const {
  if (member_.first())
    for (const std::string& note : notes) listener_.note(note);
}

void Opening::join() {
  Config& config = opened.config;
  if (!member_.has_parent()) tell(config.notes());  // a parent has printed them
  has_source_ = !options_.no_data && (!options_.without_data || config.has_data());
  if (has_source_) config.require("data");
  refuse_described(config);
  member_.join(*opened.registry, config);
  if (options_.trains && by_epochs(config)) count_epochs();
}

void Opening::count_epochs() {
  Config& config = opened.config;
  if (!has_source_)
    throw Error(Exit::usage, "train.epochs counts samples of [data], and there are none", "give train.steps instead");
  build(model_vocabulary(config, *opened.registry));
  count_steps(config, *opened.registry, member_.size());
}

// A parent has done it. Without a parent, rank 0 does it and the others wait.
void Opening::build(int64_t vocabulary) {
  if (std::exchange(built_, true)) return;
  if (has_source_ && member_.first() && !member_.has_parent() && options_.build_data)
    options_.build_data(opened.config, *opened.registry, vocabulary);
  member_.from_first("");
}

// The first rank says it for all: they must have the same kernels.
void Opening::settle_workspace(const World& world, const Readable& readable) {
  std::optional<Workspace> own;
  if (member_.first()) own = planned_workspace(opened.config, *opened.registry, world, readable);
  const std::string all = member_.from_first(own ? fmt::format("{} {}", own->bytes, own->origin) : "");
  if (const size_t end = all.find(' '); end != all.npos)
    settle(opened.config, Workspace{std::strtoull(all.c_str(), nullptr, 10), all.substr(end + 1)});
}

void Opening::plan(Readable readable, bool check) {
  const Config& config = opened.config;
  Communicator* comm = member_.communicator();
  const World world = comm ? comm->world() : World{};
  settle_workspace(world, readable);
  resolved.emplace(config);
  if (check) readable.traced = weights_check(config, *opened.registry);
  setup = make_setup(config, *opened.registry, 0, world, comm, readable);
  tell(setup.notes);
}

void Opening::open_data() {
  const Config& config = opened.config;
  const int64_t vocabulary = setup.model.info.vocabulary;
  build(vocabulary);
  if (has_source_)
    data.emplace(*opened.registry, config, vocabulary, setup.model.fields);
  else
    data.emplace(config.section("train").integer("sequence_length"), vocabulary, setup.model.fields);
  if (options_.trains && has_source_) tell(notes_of(config, *data, vocabulary));
  count_data(setup, *data);
  std::vector<Item> items = collective_items(setup.plan);
  for (Item& item : plugins_items(*opened.registry, setup.plan.ranks)) items.push_back(std::move(item));
  items.push_back({"data", Exit::data, data->info().content_hash, {}});
  agree(member_.exchange(), items);
}

void Opening::share_place() {
  const std::string from = member_.from_first(place.from ? place.from->string() : "");
  if (!from.empty()) place.from = from;
}

void Opening::start() {
  const Config& config = opened.config;
  Registry& registry = *opened.registry;
  const bool resumes = options_.trains && place.from;
  if (setup.kernels->host_memory()) check_threads(setup.kernels->info().parallel);
  release_freed_memory();  // of planning
  trainer.emplace(config, registry, setup, *data, member_.communicator(),
                  member_.first() && resumes ? choices_of(*place.from) : "");
  auto [reference, hash] = reference_weights(config, registry);
  trainer->set_reference(std::move(reference), std::move(hash));
  if (resumes) {
    trainer->load(*place.from);
    if (member_.first())
      if (std::string text = rounding_note(*place.from, pretrained_table(config, registry), parameters(setup.plan));
          !text.empty())
        tell({std::move(text)});
  } else {
    const std::filesystem::path weights = weights_source(config);
    WeightsProgress progress;
    std::function<void(const std::string&)> note;
    if (member_.first()) {
      progress = [&](uint64_t done, uint64_t all) { listener_.reading(weights, done, all); };
      note = [&](const std::string& text) { listener_.note(text); };
    }
    trainer->initialise(weights_of(weights, config, registry, progress, note));
  }
  release_freed_memory();  // of reading a checkpoint
}

void Opening::make_directory(const std::filesystem::path& out) {
  if (!member_.first() || place.dir) return;
  const Section& run = opened.config.section("run");
  place.dir.emplace(out.empty() ? RunDir::create(run.string("out"), run.string("name")) : RunDir::at(out));
}

std::filesystem::path Opening::enter() {
  directory = member_.from_first(place.dir ? place.dir->path().string() : "");
  if (directory.empty()) return {};
  member_.works_in(directory);
  const HeldFolder& folder = place.dir ? place.dir->folder() : held_.emplace(directory);
  return folder.inside() / checkpoints_folder;
}

}  // namespace eng
