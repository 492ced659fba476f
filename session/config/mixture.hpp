// SPDX-License-Identifier: Apache-2.0
// [[data.sources]]: several data sources in one stream of samples.
#pragma once

#include "session/config/source.hpp"

namespace eng {

inline constexpr std::size_t most_sources = 64;

// True if [data] has [[data.sources]].
bool is_mixture(const Section& data);
// The plugin of an entry: its own, or that of [data].
std::string source_plugin(const Table& entry, const Section& data);
// The name of entry k: its own, or "text-1" of the first, if its plugin is text.
std::string source_name(const Table& entry, std::size_t k, const Section& data);

// The entries in a document; none if it has no mixture.
Tables sources_in(const Document& document);
// The keys of [data]: without entries the engine's, but those of mixtures, and its plugin's; with entries the engine's
// and those of their plugins, of which none is required. `plugin`: of [data]; `named`: its name, for entries without
// one.
Schema data_keys(const SectionSchema& section, const PluginSchema* plugin, const Tables& entries,
                 const std::string& named, const SchemaSource& plugins);
// The faults in the entries, which stand at `place`, and between them and [data]; converts their values.
Problems mixture_problems(Tables& entries, const TextRange& place, const Document& document,
                          const SchemaSource& plugins);

}  // namespace eng
