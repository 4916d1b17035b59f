"""Small models of many families, as an ordinary author writes them: nothing here knows of a compiler.

Each module has `make(seed)`, which returns the model and one set of arguments. Equal seeds give equal
parameters and equal arguments, so that two copies can be run side by side.
"""

from collections.abc import Callable
from typing import Any

from torch import nn

from . import (
    audio_convnet,
    bert,
    diffusion_transformer,
    dlrm,
    graph_convolution,
    llama_like,
    lstm_cells,
    mlp_mixer,
    mobilenet,
    moe_dense,
    nanogpt,
    recommender,
    recurrent,
    resnet,
    torch_transformers,
    unet,
    unet_block,
    vit,
    wavenet,
)

MAKERS: dict[str, Callable[[int], tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]] = {
    "nanogpt": nanogpt.make,
    "nanogpt_flash": nanogpt.make_flash,
    "bert": bert.make,
    "vit": vit.make,
    "resnet": resnet.make,
    "audio_convnet": audio_convnet.make,
    "unet_block": unet_block.make,
    "unet": unet.make,
    "mobilenet": mobilenet.make,
    "wavenet": wavenet.make,
    "diffusion_transformer": diffusion_transformer.make,
    "graph_convolution": graph_convolution.make,
    "lstm_cells": lstm_cells.make,
    "lstm_language_model": recurrent.make_language_model,
    "gru_tagger": recurrent.make_tagger,
    "lstm_translator": recurrent.make_translator,
    "speech": recurrent.make_speech,
    "nn_transformer": torch_transformers.make_translator,
    "nn_transformer_encoder": torch_transformers.make_classifier,
    "recommender": recommender.make,
    "dlrm": dlrm.make,
    "mlp_mixer": mlp_mixer.make,
    "moe_dense": moe_dense.make,
    "llama_like": llama_like.make,
    "llama_like_cached": llama_like.make_cached,
}
