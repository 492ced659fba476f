// SPDX-License-Identifier: Apache-2.0
// The script that makes JSON Lines of what is no text: Parquet files, datasets of Hugging Face.
#pragma once

#include <string>

namespace text_data {

// A path as it is typed in a shell.
std::string shell_word(std::string text);

// The command, of this installation or of the tree in which this was built: "TOP/tools/export-dataset".
std::string export_dataset();

}  // namespace text_data
