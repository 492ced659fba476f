// SPDX-License-Identifier: Apache-2.0
// Parts of descriptions that have files of their own. Errors are std::runtime_error, prefixed with `where`.
#pragma once

#include "session/config/toml.hpp"
#include "session/plugins/gguf.hpp"

namespace eng {

std::string json_text(const toml::node& node);  // a value as JSON
// In a pattern of a name, `*` stands for one part between dots; patterns of one entry have as many of them.
void check_patterns(const std::vector<std::string>& patterns, const std::string& where);
// [{ from = "...", to = ["...", ...], axis = 0 }, ...]; in `join` it is `from` that is a list.
void read_regroup(const toml::node* list, bool split, const std::string& where, std::vector<Regroup>& out);
// [provides.gguf] of a model with these options.
std::shared_ptr<const GgufModel> read_gguf(const toml::node& node, const std::string& where, const Schema& options);

}  // namespace eng
