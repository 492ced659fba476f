// SPDX-License-Identifier: Apache-2.0
// The tables that the plugin hands out.
#pragma once

#include "engine/chat.h"
#include "engine/data.h"
#include "engine/tokenizer.h"

namespace text_data {

extern const eng_data text_table, tokens_table, pairs_table, chat_table;
extern const eng_chat chat_kind_table;
const eng_tokenizer* tokenizer_table(const char* name);  // NULL: no such tokenizer

}  // namespace text_data
