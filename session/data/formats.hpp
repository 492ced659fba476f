// SPDX-License-Identifier: Apache-2.0
// The formats of all plugins, for data sources: the extension eng.formats/1 of engine/documents.h.
#pragma once

#include <map>
#include <memory>

#include "core/registry/registry.hpp"
#include "engine/documents.h"

namespace eng {

// While it lives, sources that are called on this thread find the formats of `registry`. A later one on the same thread
// takes the place of an earlier one until it ends.
class FormatsInUse {
 public:
  // `data`: the resolved section [data]. Both must outlive the object.
  FormatsInUse(Registry& registry, const Section& data);
  FormatsInUse(const FormatsInUse&) = delete;
  FormatsInUse& operator=(const FormatsInUse&) = delete;
  ~FormatsInUse();

  // Loads the plugin of the format. Throws Error(Exit::usage) if there is none, or if it needs an option.
  eng_format get(const std::string& name);
  // The names of the formats that claim a file with this name and first bytes; no plugin is loaded.
  std::vector<std::string> claiming(const std::string& file, std::string_view head) const;

 private:
  struct Held;
  Registry& registry_;
  const Section& data_;
  std::map<std::string, std::unique_ptr<Held>> held_;  // those that were asked for, by name
  FormatsInUse* const before_;
};

}  // namespace eng
