// SPDX-License-Identifier: Apache-2.0
// Names of other trainers, and what becomes of them here: the files of session/config/foreign, one for each trainer.
// What another trainer's key means is said there and nowhere else; a key that is not there is one that nobody knows.
//
//   of          whose names the file has
//   trainer     the names count in files of this trainer alone, or, with `everywhere`, in others too
//   rules       names that have a rule of their own in session/convert; sections: with all names in them
//   [alias]     another spelling = the name that it stands for; "deepspeed:NAME" is a key of DeepSpeed's file
//   [ours]      name = { is = our key or section, ... }, see below
//   [[none]]    no effect on the numbers: text, keys
//   [[same]]    the engine does this anyway, if the value is one of `when` (absent: any); otherwise `otherwise` is an
//               error, or with `mild` a note. `job`: other values than those of `when` and `other` are another kind of
//               training
//   [[told]]    other numbers, or something that only a person can fill in: a note
//   [[refused]] other numbers: an error that --ignore removes
//   [[job]]     another kind of training: an error
// With `conversion`, the names are not told to somebody who writes them in a configuration.
// A key of [[told]], [[refused]] and [[job]] is off with a value of `off`: by default false, 0, "", "none", "no". A
// name that means something else in a section is written with its section in front: "optimizer.type".
//
// The keys of a row of [ours]:
//   values    their value = our value; if `is` names a plugin and this is no conversion, a value that is not listed is
//             written in small letters
//   times     our value is theirs times this whole number
//   scale     our value is theirs times this fraction
//   into      our keys for the items of their list
//   null      our value for null
//   of_steps  their value is a part of train.steps, ours a number of steps
//   differs   what our value means, if theirs cannot be translated
//   why       what else to know
// Without values, times, scale, into and differs the value means the same here.
#pragma once

#include <string>
#include <vector>

#include "session/config/config.hpp"

namespace eng {

// For SchemaSource::foreign. Translates a key with its value, given the section in which it was written ("" outside
// any), or a section's name.
std::optional<Foreign> foreign_name(const std::string& section, const std::string& name, const Value& value);

// The treatment of a key by a conversion.
enum class Fate { ours, rule, alias, none, same, told, refused, job, off };
struct Account {
  Fate fate;
  std::string text = {};  // what is true here; of `alias`: the name that it stands for
  std::size_t below = 0;  // said of a section: so many characters of the name are below it
};
// By the trainer ("deepspeed", "huggingface", ...) and the name, with dots for a key in a section. Nothing for a name
// that nobody knows.
std::optional<Account> account_of(const std::string& trainer, const std::string& name, const Value& value);
// The translation of a key that is `ours` for this trainer.
std::optional<Foreign> translation(const std::string& trainer, const std::string& name, const Value& value);

// Every name that the files have, with "trainer:" in front where it counts for one trainer alone.
std::vector<std::string> foreign_names();
// Our value of a key of ours, such as "precision.plugin", for another trainer's word: "bf16" for "bfloat16". "" if none
// is known.
std::string foreign_value(const std::string& key, const std::string& word);

// The replacement for a flag of another trainer's command; "" for an unknown flag. `word` is the flag as typed, such as
// "--num_gpus=2", and `next` the word after it.
std::string foreign_flag(const std::string& word, const std::string& next);

}  // namespace eng
