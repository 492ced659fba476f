// SPDX-License-Identifier: Apache-2.0
#include "session/huggingface/config_keys.hpp"

#include <iterator>
#include <sstream>
#include <utility>

namespace eng {
namespace {

std::set<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

}  // namespace

const std::set<std::string>& harmless_keys() {
  static const std::set<std::string> keys = words(
      // of every model: what it is called, how it is loaded, what it returns
      "architectures attn_implementation auto_map chunk_size_feed_forward custom_pipelines dtype "
      "experts_implementation "
      "finetuning_task id2label is_decoder label2id loss_type max_window_layers model_max_length model_name model_type "
      "name_or_path num_labels output_attentions output_hidden_states output_router_logits output_scores prefix "
      "problem_type return_dict task_specific_params tf_legacy_loss tokenizer_class tokenizer_name torch_dtype "
      "torchscript "
      "transformers.js_config transformers_version use_bfloat16 use_cache use_flash_attention use_flash_attention_2 "
      "use_flash_attn "
      "use_return_dict _attn_implementation _attn_implementation_autoset _auto_class _class_name _commit_hash "
      "_diffusers_version _experts_implementation _flash_attn_2_enabled _from_auto _model_name_or_path _name_or_path "
      // tokens
      "bos_token bos_token_id cls_token_id decoder_start_token_id eod_token_id eos_token eos_token_id mask_token_id "
      "pad_token "
      "pad_token_id sep_token_id unk_token unk_token_id "
      // heads for labels
      "classifier_dropout classifier_proj_size summary_activation summary_first_dropout summary_proj_to_labels "
      "summary_type "
      "summary_use_proj "
      // the defaults of generation
      "assistant_confidence_threshold assistant_early_exit assistant_lookbehind bad_words_ids begin_suppress_tokens "
      "cache_config cache_implementation compile_config constraints disable_compile diversity_penalty do_sample "
      "dola_layers "
      "early_stopping encoder_no_repeat_ngram_size encoder_repetition_penalty epsilon_cutoff eta_cutoff "
      "exponential_decay_length_penalty force_words_ids forced_bos_token_id forced_decoder_ids forced_eos_token_id "
      "generation_config guidance_scale is_assistant length_penalty low_memory max_length max_matching_ngram_size "
      "max_new_tokens max_time min_length min_new_tokens min_p no_repeat_ngram_size num_assistant_tokens "
      "num_assistant_tokens_schedule num_beam_groups num_beams num_return_sequences output_logits penalty_alpha "
      "prefill_chunk_size prompt_lookup_num_tokens remove_invalid_values renormalize_logits repetition_penalty "
      "return_dict_in_generate return_legacy_cache sequence_bias stop_strings suppress_tokens target_lookbehind "
      "temperature "
      "token_healing top_h top_k top_p typical_p use_model_defaults watermarking_config "
      // training and tools
      "gradient_checkpointing use_gradient_checkpointing torch_compile");
  return keys;
}

bool is_harmless(const std::string& key) {
  return harmless_keys().count(key) > 0 || key.starts_with("unsloth_");
}

const std::vector<NeutralKey>& neutral_keys() {
  static const std::vector<const char*> off = {"false"}, none = {"0"}, one = {"1"};
  static const std::vector<NeutralKey> keys = {
      {"quantization_config", {}, "quantised weights are not read: give those from before"},
      {"compression_config", {}, "quantised weights are not read: give those from before"},
      {"quantization", {}, "quantised weights are not read: give those from before"},
      {"is_encoder_decoder", off, "an encoder"},
      {"add_cross_attention", off, "attention to an encoder"},
      {"cross_attention_hidden_size", none, "attention to an encoder"},
      {"tie_encoder_decoder", off, "an encoder"},
      {"pruned_heads", {"{}", "[]"}, "heads that were removed"},
      {"per_layer_config", {"{}", "[]"}, "layers that differ"},
      {"use_sliding_window", off, "a window of attention"},
      {"rope_interleaved", off, "pairs of neighbouring channels in rotary embedding"},
      {"rope_traditional", off, "pairs of neighbouring channels in rotary embedding"},
      {"rotary_pct", one, "rotary embedding of a part of a head"},
      {"rotary_percent", one, "rotary embedding of a part of a head"},
      {"rope_ratio", one, "scaled positions"},
      {"alibi", off, "ALiBi"},
      {"use_alibi", off, "ALiBi"},
      {"qk_norm", off, "norms of queries and keys"},
      {"use_qk_norm", off, "norms of queries and keys"},
      {"qk_layernorm", off, "norms of queries and keys"},
      {"qk_layer_norms", off, "norms of queries and keys"},
      {"qkv_bias", off, "biases on q, k and v alone"},
      {"use_qkv_bias", off, "biases on q, k and v alone"},
      {"bias", off, "biases"},
      {"lm_head_bias", off, "a bias on the head"},
      {"clip_qkv", none, "clipped queries, keys and values"},
      {"attn_logit_softcapping", none, "capped scores of attention"},
      {"final_logit_softcapping", none, "capped logits"},
      {"logit_softcapping", none, "capped logits"},
      {"logit_scale", one, "scaled logits"},
      {"logits_scaling", one, "scaled logits"},
      {"lm_head_multiplier", one, "scaled logits"},
      {"embedding_multiplier", one, "scaled embeddings"},
      {"scale_emb", one, "scaled embeddings"},
      {"scale_embedding", off, "scaled embeddings"},
      {"scale_embeddings", off, "scaled embeddings"},
      {"learned_embeddings", {"true"}, "positions that are not learned"},
      {"residual_multiplier", one, "scaled sublayers"},
      {"key_multiplier", one, "scaled keys"},
      {"parallel_attn", off, "attention and feed-forward side by side"},
      {"use_parallel_residual", off, "attention and feed-forward side by side"},
      {"num_experts", {"0", "1"}, "experts"},
      {"num_local_experts", {"0", "1"}, "experts"},
      {"n_routed_experts", {"0", "1"}, "experts"},
      {"num_nextn_predict_layers", none, "layers that predict more tokens"},
      {"activation_dropout", none, "dropout"},
      {"attention_probs_dropout_prob", none, "dropout"},
      {"attn_pdrop", none, "dropout"},
      {"dropout", none, "dropout"},
      {"embd_pdrop", none, "dropout"},
      {"embedding_dropout", none, "dropout"},
      {"hidden_dropout", none, "dropout"},
      {"hidden_dropout_prob", none, "dropout"},
      {"layerdrop", none, "skipped layers"},
      {"mlp_dropout", none, "dropout"},
      {"resid_pdrop", none, "dropout"},
      {"residual_dropout", none, "dropout"}};
  return keys;
}

const std::vector<Twin>& twins() {
  static const char* const wide =
      R"({"intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072,
      "rms_norm_eps": 1e-6, "sliding_window": 4096})";
  static const char* const internlm3 =
      R"({"vocab_size": 128512, "intermediate_size": 10240, "num_hidden_layers": 48, "num_key_value_heads": 2,
      "head_dim": 128, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5})";
  static const std::vector<Twin> all = {
      {"mistral", "llama", "Mistral", "Llama", wide, {"attention_bias", "mlp_bias"}, false},
      {"ministral", "llama", "Ministral", "Llama", wide, {"attention_bias", "mlp_bias"}, true},
      {"internlm3", "llama", "InternLM3", "Llama", internlm3, {}, false}};
  return all;
}

const char* family_defaults(const std::string& model_type) {
  for (const Twin& twin : twins())
    if (model_type == twin.model_type) return twin.defaults;
  if (model_type == "gpt2") return R"({"attn_pdrop": 0.1})";
  if (model_type == "gemma2") return R"({"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0})";
  if (model_type == "falcon_h1") return R"({"mamba_d_ssm": 1024})";
  return model_type == "granitemoehybrid" ? R"({"num_local_experts": 8})" : nullptr;
}

const char* difference_of(const std::string& model_type) {
  static constexpr std::pair<const char*, const char*> families[] = {
      {"ministral3", "it is Mistral with queries that are scaled by their positions"},
      {"gemma", "it is LLaMA with scaled embeddings and other norms"},
      {"granitemoe", "it is Granite with experts"},
      {"olmo", "it is LLaMA with other norms"},
      {"olmo3", "it is OLMo 2 with windows of attention"},
      {"stablelm", "it is LLaMA with other norms, and rotary embedding of a part of a head"}};
  for (const auto& [name, what] : families)
    if (model_type == name) return what;
  return nullptr;
}

}  // namespace eng
