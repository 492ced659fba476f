// SPDX-License-Identifier: Apache-2.0
// The text of a conversation, and which of its bytes are trained on.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "chat_template.hpp"

namespace text_data {

enum class TrainOn { assistant, last, all };

using Span = std::pair<std::size_t, std::size_t>;  // bytes [first, second)

struct MaskedText {
  std::string text;
  std::vector<Span> spans;     // in order, none of them empty
  std::vector<float> weights;  // of each span in the loss, above 0
};

// The spans are those of {% generation %}, if the template has it. Otherwise the answer of message i begins where the
// template begins an answer to the messages before it, and ends behind what ends it: the end of turn. It is found by
// rendering the conversation up to there, and with another content in its place.
// The weight of a span is that of its message times that of the row; a span of weight 0 does not train and is none.
// Throws Failure with a text that begins with `where`: the template fails, or drops a message, tool calls or the tools,
// or does not tell where an answer begins or ends.
MaskedText masked_text(const ChatTemplate& chat, const Conversation& conversation, TrainOn train_on,
                       const std::string& where);

// The text of the whole conversation; `answer`: up to where the template begins an answer, after a last message that is
// none. Throws Failure as masked_text does, for a template that fails or drops something.
std::string whole_text(const ChatTemplate& chat, const Conversation& conversation, bool answer,
                       const std::string& where);

// The text with which the template ends an answer that another message follows, without white space around it; "" if it
// does not tell.
std::string end_of_answer(const ChatTemplate& chat);

}  // namespace text_data
