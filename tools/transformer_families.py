"""Compiles small models of transformers' families, and compares them with eager, at the installed version.

    hatch run +transformers=4.57.6 families:run            all families
    hatch run +transformers=5.3.0 families:run llama t5    some

Each model has a tiny configuration and random weights; nothing is downloaded. Three calls: in evaluation,
with a padding mask, and a training step, of which all gradients are compared. Causal models return their
caches, as by default. docs/versions.md has the results.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import transformers

import thunder

SMALL = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
}
GROUPED = {**SMALL, "num_key_value_heads": 1}
IMAGES = {
    **{k: SMALL[k] for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")},
    "image_size": 8,
    "patch_size": 4,
}
CODERS = {
    **{"vocab_size": 64, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1},
    **{"encoder_attention_heads": 2, "decoder_attention_heads": 2},
    **{"encoder_ffn_dim": 32, "decoder_ffn_dim": 32},
}
WHISPER = {
    **{"num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 16},
    **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
}
CLIP = {
    "text_config": {**SMALL, "eos_token_id": 2},
    "vision_config": IMAGES,
    "projection_dim": 8,
}

#: family → class of the model, class of its configuration, arguments of that
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"vocab_size": 64, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32},
    ),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**GROUPED, "sliding_window": 4}),
    "mixtral": (
        "MixtralForCausalLM",
        "MixtralConfig",
        {**GROUPED, "num_local_experts": 2, "num_experts_per_tok": 1},
    ),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**GROUPED, "head_dim": 8}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**GROUPED, "head_dim": 8}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {**GROUPED, "head_dim": 8}),
    "phi": ("PhiForCausalLM", "PhiConfig", GROUPED),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", SMALL),
    "opt": (
        "OPTForCausalLM",
        "OPTConfig",
        {
            **{k: v for k, v in SMALL.items() if k != "intermediate_size"},
            "ffn_dim": 32,
            "word_embed_proj_dim": 16,
        },
    ),
    "bloom": (
        "BloomForCausalLM",
        "BloomConfig",
        {"vocab_size": 64, "hidden_size": 16, "n_layer": 2, "n_head": 2},
    ),
    "falcon": (
        "FalconForCausalLM",
        "FalconConfig",
        {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
    ),
    "bert": ("BertForMaskedLM", "BertConfig", SMALL),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", SMALL),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", {**SMALL, "embedding_size": 16}),
    "albert": ("AlbertForMaskedLM", "AlbertConfig", {**SMALL, "embedding_size": 16}),
    "distilbert": (
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        {
            **{"vocab_size": 64, "dim": 16, "hidden_dim": 32, "n_layers": 2, "n_heads": 2},
            "max_position_embeddings": 32,
        },
    ),
    "deberta_v2": (
        "DebertaV2ForMaskedLM",
        "DebertaV2Config",
        {**SMALL, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    ),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        {
            **{"vocab_size": 64, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2},
            "decoder_start_token_id": 0,
        },
    ),
    "bart": ("BartForConditionalGeneration", "BartConfig", {**CODERS, "max_position_embeddings": 32}),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", {**CODERS, **WHISPER}),
    "vit": ("ViTForImageClassification", "ViTConfig", IMAGES),
    "clip": ("CLIPModel", "CLIPConfig", CLIP),
}
CALLS = ("evaluation", "padding", "training")


def model_of(family: str) -> torch.nn.Module:
    """Return a small model of a family, without dropout."""
    model, config, settings = FAMILIES[family]
    torch.manual_seed(0)
    made: torch.nn.Module = getattr(transformers, model)(getattr(transformers, config)(**settings))
    for module in made.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return made


def inputs_of(family: str, call: str) -> dict[str, Any]:
    """Return the arguments of a call of a model."""
    tokens, labels = torch.randint(3, 60, (2, 7)), torch.randint(3, 60, (2, 5))
    images, decodes = family in ("vit", "clip"), family in ("t5", "whisper")
    inputs: dict[str, Any] = {}
    if family == "whisper":
        inputs["input_features"] = torch.randn(2, 8, 20)
    elif family != "vit":
        inputs["input_ids"] = tokens
    if images:
        inputs["pixel_values"] = torch.randn(2, 3, 8, 8)
    if decodes and call != "training":
        inputs["decoder_input_ids"] = labels
    if call == "padding" and "input_ids" in inputs:
        inputs["attention_mask"] = (torch.arange(7) >= torch.tensor([[2], [0]])).long()
    if call == "training":
        of_family = {"vit": torch.tensor([0, 1]), "t5": labels, "whisper": labels}
        inputs |= {"return_loss": True} if family == "clip" else {"labels": of_family.get(family, tokens)}
    return inputs


def tensors_in(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """Yield the tensors of a result, those of caches included."""
    if isinstance(value, torch.Tensor):
        yield value
    elif id(value) not in seen and not isinstance(value, torch.nn.Module | type):
        seen.add(id(value))
        attributes = getattr(value, "__dict__", {})
        owned = list((value if isinstance(value, dict) else attributes).values())
        for part in value if isinstance(value, list | tuple) else owned:
            yield from tensors_in(part, seen)


def outcome(fn: Any, model: torch.nn.Module, inputs: dict[str, Any], call: str) -> list[torch.Tensor]:
    """Return the tensors of the result, and the gradients of a training step."""
    torch.manual_seed(1)
    model.zero_grad()
    result = fn(**inputs)
    gradients: list[torch.Tensor] = []
    if call == "training":
        result.loss.backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return [*(t.detach().clone() for t in tensors_in(result, set())), *gradients]


def answer_of(family: str, call: str) -> str:
    """Return ``right``, or what is not."""
    model = model_of(family).train(call == "training")
    compiled, inputs = thunder.jit(model), inputs_of(family, call)
    expected = outcome(model, model, inputs, call)
    try:
        found = outcome(compiled, model, inputs, call)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    except thunder.ThunderError as error:
        return "refused: " + str(error).partition("\n")[0]
    except AssertionError as error:
        return "wrong: " + str(error).partition("\n")[0]
    return f"right ({len(found)} tensors)"


def answers(names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Print and yield what became of each call of the families, all if there are no names."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    for family in names or FAMILIES:
        for call in CALLS:
            answer = answer_of(family, call)
            print(f"{family:12} {call:11} {answer}", flush=True)
            yield family, call, answer


def main(names: list[str]) -> int:
    """Print what became of each call; the exit code is the number of those that are not right."""
    right = [answer.startswith("right") for _, _, answer in answers(names)]
    print(f"transformers {transformers.__version__}: {sum(right)} of {len(right)} calls are right")
    return len(right) - sum(right)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
