// SPDX-License-Identifier: Apache-2.0
#include "architectures.h"

#include <algorithm>

#include "base/text.h"

namespace zero::tool {
namespace {

/// Returns true unless the class is the model without a head, such as LlamaModel.
bool has_head(const std::string& name) {
  return name.ends_with("ForCausalLM") || name.ends_with("LMHeadModel");
}

void refuse_cross_attention(ConfigKeys& keys) {
  if (keys.flag("add_cross_attention", false))
    keys.refuse("add_cross_attention", "and such layers are not known here");
}

void add_gpt2(ConfigKeys& keys, ModelShapes& shapes, const std::string& name) {
  refuse_cross_attention(keys);
  const int64_t n = keys.number("n_embd"), words = keys.number("vocab_size");
  const int64_t inner = keys.number("n_inner", 4 * n), layers = keys.few("n_layer");
  const std::string top = has_head(name) ? "transformer." : "";
  // GPT-2 stores its layers as [in, out].
  const auto layer = [&](const std::string& of, int64_t in, int64_t out) {
    shapes.add(of + ".weight", {in, out});
    shapes.add(of + ".bias", {out});
  };
  shapes.add(top + "wte.weight", {words, n});
  shapes.add(top + "wpe.weight", {keys.number("n_positions"), n});
  for (int64_t i = 0; i < layers; i++) {
    const std::string block = text(top, "h.", i, '.');
    shapes.norm(block + "ln_1", n);
    layer(block + "attn.c_attn", n, 3 * n);
    layer(block + "attn.c_proj", n, n);
    shapes.norm(block + "ln_2", n);
    layer(block + "mlp.c_fc", n, inner);
    layer(block + "mlp.c_proj", inner, n);
  }
  shapes.norm(top + "ln_f", n);
  if (has_head(name) && !keys.flag("tie_word_embeddings", true))
    shapes.linear("lm_head", words, n, false);
}

// ---- Llama, and models with its layers.

/// How such a model differs from the others.
struct LlamaLike {
  bool says_bias = false;     // attention_bias says whether all four of a layer have one
  bool qkv_bias = false;      // always has one
  bool says_kv_heads = true;  // otherwise there are as many as query heads
  bool says_head_dim = false;
  bool qk_norm = false, packed = false, experts = false, tied = false;
};

struct Heads {
  int64_t queries, keys;  // elements of all heads
  int64_t size;           // of one head
};

Heads heads_of(ConfigKeys& keys, const LlamaLike& like, int64_t hidden) {
  const int64_t count = keys.number("num_attention_heads");
  const int64_t kv_heads = like.says_kv_heads ? keys.number("num_key_value_heads")
                                              : keys.number("num_key_value_heads", count);
  const int64_t size = like.says_head_dim
                           ? keys.number("head_dim")
                           : keys.number("head_dim", std::max<int64_t>(hidden / count, 1));
  if (!keys.has("head_dim") && hidden % count != 0)
    keys.refuse("num_attention_heads", text("which does not divide hidden_size, ", hidden));
  return {count * size, kv_heads * size, size};
}

void add_attention(ConfigKeys& keys, ModelShapes& shapes, const std::string& at,
                   const LlamaLike& like, int64_t hidden) {
  const Heads heads = heads_of(keys, like, hidden);
  const bool output_bias = like.says_bias && keys.flag("attention_bias", false);
  const bool bias = like.qkv_bias || output_bias;
  if (like.packed) {
    shapes.linear(at + "qkv_proj", heads.queries + 2 * heads.keys, hidden, bias);
  } else {
    shapes.linear(at + "q_proj", heads.queries, hidden, bias);
    shapes.linear(at + "k_proj", heads.keys, hidden, bias);
    shapes.linear(at + "v_proj", heads.keys, hidden, bias);
  }
  shapes.linear(at + "o_proj", hidden, heads.queries, output_bias);
  if (!like.qk_norm) return;
  shapes.norm(at + "q_norm", heads.size, false);
  shapes.norm(at + "k_norm", heads.size, false);
}

void add_experts(ModelShapes& shapes, const std::string& at, int64_t count, int64_t hidden,
                 int64_t inner) {
  shapes.linear(at + "gate", count, hidden, false);
  for (int64_t i = 0; i < count; i++) {
    const std::string expert = text(at, "experts.", i, '.');
    shapes.linear(expert + "w1", inner, hidden, false);
    shapes.linear(expert + "w2", hidden, inner, false);
    shapes.linear(expert + "w3", inner, hidden, false);
  }
}

template <LlamaLike like>
void add_llama(ConfigKeys& keys, ModelShapes& shapes, const std::string& name) {
  const int64_t hidden = keys.number("hidden_size"), words = keys.number("vocab_size");
  const int64_t inner = keys.number("intermediate_size"), layers = keys.few("num_hidden_layers");
  const int64_t experts = like.experts ? keys.few("num_local_experts") : 0;
  const bool mlp_bias = keys.flag("mlp_bias", false);
  const std::string top = has_head(name) ? "model." : "";
  shapes.add(top + "embed_tokens.weight", {words, hidden});
  for (int64_t i = 0; i < layers; i++) {
    const std::string block = text(top, "layers.", i, '.');
    add_attention(keys, shapes, block + "self_attn.", like, hidden);
    const std::string mlp = block + "mlp.";
    if (like.experts) {
      add_experts(shapes, block + "block_sparse_moe.", experts, hidden, inner);
    } else if (like.packed) {
      shapes.linear(mlp + "gate_up_proj", 2 * inner, hidden, mlp_bias);
    } else {
      shapes.linear(mlp + "gate_proj", inner, hidden, mlp_bias);
      shapes.linear(mlp + "up_proj", inner, hidden, mlp_bias);
    }
    if (!like.experts) shapes.linear(mlp + "down_proj", hidden, inner, mlp_bias);
    shapes.norm(block + "input_layernorm", hidden, false);
    shapes.norm(block + "post_attention_layernorm", hidden, false);
  }
  shapes.norm(top + "norm", hidden, false);
  if (has_head(name) && !keys.flag("tie_word_embeddings", like.tied))
    shapes.linear("lm_head", words, hidden, false);
}

// ---- Other models that continue a text.

void add_gpt_neox(ConfigKeys& keys, ModelShapes& shapes, const std::string& name) {
  const int64_t hidden = keys.number("hidden_size"), words = keys.number("vocab_size");
  const int64_t inner = keys.number("intermediate_size"), layers = keys.few("num_hidden_layers");
  const bool bias = keys.flag("attention_bias", true);
  const std::string top = has_head(name) ? "gpt_neox." : "";
  shapes.add(top + "embed_in.weight", {words, hidden});
  for (int64_t i = 0; i < layers; i++) {
    const std::string block = text(top, "layers.", i, '.');
    shapes.norm(block + "input_layernorm", hidden);
    shapes.norm(block + "post_attention_layernorm", hidden);
    shapes.linear(block + "attention.query_key_value", 3 * hidden, hidden, bias);
    shapes.linear(block + "attention.dense", hidden, hidden, bias);
    shapes.linear(block + "mlp.dense_h_to_4h", inner, hidden);
    shapes.linear(block + "mlp.dense_4h_to_h", hidden, inner);
  }
  shapes.norm(top + "final_layer_norm", hidden);
  if (has_head(name) && !keys.flag("tie_word_embeddings", false))
    shapes.linear("embed_out", words, hidden, false);
}

void add_opt(ConfigKeys& keys, ModelShapes& shapes, const std::string& name) {
  constexpr int64_t kBeforeFirstPosition = 2;
  const int64_t hidden = keys.number("hidden_size"), words = keys.number("vocab_size");
  const int64_t inner = keys.number("ffn_dim"), layers = keys.few("num_hidden_layers");
  const int64_t embedded = keys.number("word_embed_proj_dim", hidden);
  const bool bias = keys.flag("enable_bias", true);
  const bool affine = keys.flag("layer_norm_elementwise_affine", true);
  const std::string top = has_head(name) ? "model.decoder." : "decoder.";
  const auto norm = [&](const std::string& of) {
    if (affine) shapes.norm(of, hidden);
  };
  shapes.add(top + "embed_tokens.weight", {words, embedded});
  shapes.add(top + "embed_positions.weight",
             {keys.number("max_position_embeddings") + kBeforeFirstPosition, hidden});
  if (embedded != hidden) {
    shapes.linear(top + "project_out", embedded, hidden, false);
    shapes.linear(top + "project_in", hidden, embedded, false);
  }
  if (keys.flag("do_layer_norm_before", true) && !keys.flag("_remove_final_layer_norm", false))
    norm(top + "final_layer_norm");
  for (int64_t i = 0; i < layers; i++) {
    const std::string block = text(top, "layers.", i, '.');
    for (const char* part : {"k_proj", "v_proj", "q_proj", "out_proj"})
      shapes.linear(block + "self_attn." + part, hidden, hidden, bias);
    norm(block + "self_attn_layer_norm");
    shapes.linear(block + "fc1", inner, hidden, bias);
    shapes.linear(block + "fc2", hidden, inner, bias);
    norm(block + "final_layer_norm");
  }
  if (has_head(name) && !keys.flag("tie_word_embeddings", true))
    shapes.linear("lm_head", words, embedded, false);
}

// ---- BERT, and models with its layers.

void add_bert_encoder(ConfigKeys& keys, ModelShapes& shapes, const std::string& top, bool pooler) {
  refuse_cross_attention(keys);
  if (keys.word("position_embedding_type", "absolute") != "absolute")
    keys.refuse("position_embedding_type", "and only absolute ones are known here");
  const int64_t hidden = keys.number("hidden_size"), inner = keys.number("intermediate_size");
  const int64_t layers = keys.few("num_hidden_layers");
  const std::string at = top + "embeddings.";
  shapes.add(at + "word_embeddings.weight", {keys.number("vocab_size"), hidden});
  shapes.add(at + "position_embeddings.weight", {keys.number("max_position_embeddings"), hidden});
  shapes.add(at + "token_type_embeddings.weight", {keys.number("type_vocab_size"), hidden});
  shapes.norm(at + "LayerNorm", hidden);
  for (int64_t i = 0; i < layers; i++) {
    const std::string block = text(top, "encoder.layer.", i, '.');
    for (const char* part : {"self.query", "self.key", "self.value", "output.dense"})
      shapes.linear(block + "attention." + part, hidden, hidden);
    shapes.norm(block + "attention.output.LayerNorm", hidden);
    shapes.linear(block + "intermediate.dense", inner, hidden);
    shapes.linear(block + "output.dense", hidden, inner);
    shapes.norm(block + "output.LayerNorm", hidden);
  }
  if (pooler) shapes.linear(top + "pooler.dense", hidden, hidden);
}

/// Adds a head that predicts words. Refuses one whose last layer is not tied to the embedding.
void add_masked_head(ConfigKeys& keys, ModelShapes& shapes, const std::string& dense,
                     const std::string& norm, const std::string& bias, const std::string& decoder) {
  const int64_t hidden = keys.number("hidden_size"), words = keys.number("vocab_size");
  shapes.add(bias, {words});
  shapes.linear(dense, hidden, hidden);
  shapes.norm(norm, hidden);
  if (!keys.flag("tie_word_embeddings", true))
    keys.refuse("tie_word_embeddings", "and " + decoder + " is known here only as the embedding");
}

void add_bert(ConfigKeys& keys, ModelShapes& shapes, const std::string& name) {
  const bool pretraining = name == "BertForPreTraining", bare = name == "BertModel";
  add_bert_encoder(keys, shapes, bare ? "" : "bert.", bare || pretraining);
  if (!bare)
    add_masked_head(keys, shapes, "cls.predictions.transform.dense",
                    "cls.predictions.transform.LayerNorm", "cls.predictions.bias",
                    "cls.predictions.decoder");
  if (pretraining) shapes.linear("cls.seq_relationship", 2, keys.number("hidden_size"));
}

void add_roberta(ConfigKeys& keys, ModelShapes& shapes, const std::string& name) {
  const bool bare = name == "RobertaModel";
  add_bert_encoder(keys, shapes, bare ? "" : "roberta.", bare);
  if (!bare)
    add_masked_head(keys, shapes, "lm_head.dense", "lm_head.layer_norm", "lm_head.bias",
                    "lm_head.decoder");
}

}  // namespace

std::span<const Architecture> architectures() {
  static const Architecture kKnown[] = {
      {"gpt2", {"GPT2LMHeadModel", "GPT2Model"}, add_gpt2},
      {"llama",
       {"LlamaForCausalLM", "LlamaModel"},
       add_llama<LlamaLike{.says_bias = true, .says_kv_heads = false}>},
      {"mistral", {"MistralForCausalLM", "MistralModel"}, add_llama<LlamaLike{}>},
      {"mixtral", {"MixtralForCausalLM", "MixtralModel"}, add_llama<LlamaLike{.experts = true}>},
      {"qwen2", {"Qwen2ForCausalLM", "Qwen2Model"}, add_llama<LlamaLike{.qkv_bias = true}>},
      {"qwen3",
       {"Qwen3ForCausalLM", "Qwen3Model"},
       add_llama<LlamaLike{.says_bias = true, .says_head_dim = true, .qk_norm = true}>},
      {"gemma",
       {"GemmaForCausalLM", "GemmaModel"},
       add_llama<LlamaLike{.says_bias = true, .says_head_dim = true, .tied = true}>},
      {"phi3", {"Phi3ForCausalLM", "Phi3Model"}, add_llama<LlamaLike{.packed = true}>},
      {"gpt_neox", {"GPTNeoXForCausalLM", "GPTNeoXModel"}, add_gpt_neox},
      {"opt", {"OPTForCausalLM", "OPTModel"}, add_opt},
      {"bert", {"BertModel", "BertForMaskedLM", "BertForPreTraining"}, add_bert},
      {"roberta", {"RobertaModel", "RobertaForMaskedLM"}, add_roberta},
  };
  return kKnown;
}

}  // namespace zero::tool
