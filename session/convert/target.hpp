// SPDX-License-Identifier: Apache-2.0
// The configuration that is made: keys with their origin, notes, and what makes it impossible.
#pragma once

#include "session/convert/entries.hpp"

namespace eng::converter {

class Target {
 public:
  explicit Target(const SchemaSource& plugins) : plugins_(plugins) {}

  // Sets `section.key`. `from` says where the value comes from. A value that does not fit is a problem; a second value
  // for a key is a note; a key that the section does not have is a problem. Returns whether the key has this value.
  bool set(const std::string& key, Value value, const Entry& from);
  // Sets a value that no file gives; `why` is the comment.
  bool set(const std::string& key, Value value, const std::string& why);
  // Another value for a key that is set; its comment then also says why.
  void change(const std::string& key, const Value& value, const std::string& why);
  // A line that is commented out: "# section's key = text  # why".
  void leave(const std::string& key, const std::string& text, const std::string& why);
  // Comments out all lines of a section, which something that is not known must complete.
  void comment_out(const std::string& section);
  // nullptr if it is not set.
  const Value* get(const std::string& key) const;
  bool has(const std::string& key) const { return get(key) != nullptr; }
  // True if a plugin of this section exists.
  bool exists(const std::string& section, const std::string& plugin) const;
  // The value of a key of [model]: given, of the preset, or the default.
  std::optional<int64_t> of_model(const std::string& key) const;
  const PluginSchema* plugin_of(const std::string& section) const;

  // On stderr: what has no equivalent, or means something else.
  void note(const std::string& text);
  void problem(const std::string& text);
  const std::vector<std::string>& notes() const { return notes_; }
  const std::vector<std::string>& problems() const { return problems_; }
  // Without the comment at its beginning.
  std::string text() const;

 private:
  struct Line {
    std::string key;  // "train.steps"
    Value value;      // none: commented out
    std::string text, why;
  };
  bool place(const std::string& key, Value value, const std::string& origin, std::string why);
  const SchemaSource& plugins_;
  std::vector<Line> lines_;
  std::vector<std::string> notes_, problems_;
};

}  // namespace eng::converter
