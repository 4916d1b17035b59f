"""Cases of diffusers and of small libraries of attention, quantisation and recurrences."""

import torch
from torch import nn

from libraries.library_cases import Wrapped, case, graded


# -- diffusers
@case("diffusers.UNet2DModel")
def _():
    from diffusers import UNet2DModel

    return UNet2DModel(
        sample_size=8,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        attention_head_dim=4,
    ).eval(), [(graded(1, 3, 8, 8), 3), (graded(1, 3, 8, 8), 3)]


@case("diffusers.UNet2DCondition")
def _():
    from diffusers import UNet2DConditionModel

    m = UNet2DConditionModel(
        sample_size=8,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=8,
        attention_head_dim=2,
    ).eval()
    return m, [
        (graded(1, 4, 8, 8), torch.tensor(5), graded(1, 3, 8)),
        (graded(1, 4, 8, 8), torch.tensor(7), graded(1, 3, 8)),
    ]


@case("diffusers.AutoencoderKL")
def _():
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        block_out_channels=(8,), layers_per_block=1, norm_num_groups=4, sample_size=8
    ).eval(), [(graded(1, 3, 8, 8),), (graded(1, 3, 8, 8),)]


@case("diffusers.VQModel")
def _():
    from diffusers import VQModel

    return VQModel(
        block_out_channels=(8,), layers_per_block=1, norm_num_groups=4, sample_size=8, num_vq_embeddings=16
    ).eval(), [(graded(1, 3, 8, 8),)]


@case("diffusers.DiTTransformer")
def _():
    from diffusers import DiTTransformer2DModel

    return DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=4,
        in_channels=4,
        num_layers=1,
        sample_size=8,
        patch_size=2,
        norm_num_groups=4,
        num_embeds_ada_norm=10,
    ).eval(), [(graded(1, 4, 8, 8), torch.tensor([3]), torch.tensor([1]))]


@case("diffusers.Flux")
def _():
    from diffusers import FluxTransformer2DModel

    m = FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=8,
        pooled_projection_dim=8,
        axes_dims_rope=(4, 4, 8),
    ).eval()
    return (
        m,
        [()],
        dict(
            hidden_states=torch.randn(1, 4, 4),
            encoder_hidden_states=torch.randn(1, 3, 8),
            pooled_projections=torch.randn(1, 8),
            timestep=torch.tensor([0.5]),
            img_ids=torch.zeros(4, 3),
            txt_ids=torch.zeros(3, 3),
        ),
    )


@case("diffusers.DDPMScheduler.add_noise")
def _():
    from diffusers import DDPMScheduler

    s = DDPMScheduler(num_train_timesteps=10)
    return (lambda x, n, t: s.add_noise(x, n, t)), [
        (graded(2, 3), torch.randn(2, 3), torch.tensor([1, 2])),
        (graded(2, 3), torch.randn(2, 3), torch.tensor([3, 4])),
    ]


@case("diffusers.DDIMScheduler.step", grads=False)
def _():
    from diffusers import DDIMScheduler

    s = DDIMScheduler(num_train_timesteps=10)
    s.set_timesteps(5)
    return (lambda e, x: s.step(e, 4, x).prev_sample), [
        (torch.randn(2, 3), torch.randn(2, 3)),
        (torch.randn(2, 3), torch.randn(2, 3)),
    ]


@case("diffusers.EulerScheduler.step", grads=False)
def _():
    from diffusers import EulerDiscreteScheduler

    s = EulerDiscreteScheduler(num_train_timesteps=10)
    s.set_timesteps(5)
    t = s.timesteps[0]

    def f(e, x):
        s._step_index = None
        return s.step(e, t, x).prev_sample

    return f, [(torch.randn(2, 3), torch.randn(2, 3)), (torch.randn(2, 3), torch.randn(2, 3))]


@case("diffusers.SD3Transformer")
def _():
    from diffusers import SD3Transformer2DModel

    m = SD3Transformer2DModel(
        sample_size=8,
        patch_size=2,
        in_channels=4,
        num_layers=1,
        attention_head_dim=4,
        num_attention_heads=2,
        joint_attention_dim=8,
        caption_projection_dim=8,
        pooled_projection_dim=8,
        out_channels=4,
    ).eval()
    return m, [(graded(1, 4, 8, 8), torch.randn(1, 3, 8), torch.randn(1, 8), torch.tensor([3]))]


# -- lucidrains
def lucidrains(name, mod, cls, args, **kw):
    @case(f"{mod}.{name}")
    def _():
        import importlib

        m = getattr(importlib.import_module(mod), cls)(**kw).eval()
        return m, [args(), args()]


def tokens():
    return (torch.randint(0, 32, (1, 16)),)


def of_shape(*shape):
    return lambda: (graded(*shape),)


lucidrains(
    "PerformerLM",
    "performer_pytorch",
    "PerformerLM",
    tokens,
    num_tokens=32,
    max_seq_len=16,
    dim=16,
    depth=1,
    heads=2,
    dim_head=8,
    causal=False,
)
lucidrains(
    "FastAttention",
    "performer_pytorch",
    "FastAttention",
    lambda: (graded(1, 2, 16, 8), graded(1, 2, 16, 8), graded(1, 2, 16, 8)),
    dim_heads=8,
    nb_features=8,
    causal=False,
)
lucidrains(
    "LSHSelfAttention",
    "reformer_pytorch",
    "LSHSelfAttention",
    of_shape(1, 16, 16),
    dim=16,
    heads=2,
    bucket_size=4,
    n_hashes=2,
)
lucidrains(
    "LocalAttention",
    "local_attention",
    "LocalAttention",
    lambda: (graded(1, 16, 8), graded(1, 16, 8), graded(1, 16, 8)),
    dim=8,
    window_size=4,
    causal=True,
)
lucidrains(
    "VectorQuantize", "vector_quantize_pytorch", "VectorQuantize", of_shape(1, 8, 4), dim=4, codebook_size=16
)
lucidrains("FSQ", "vector_quantize_pytorch", "FSQ", of_shape(1, 8, 4), levels=[8, 5, 5, 5])
lucidrains("LFQ", "vector_quantize_pytorch", "LFQ", of_shape(1, 8, 4), codebook_size=16, dim=4)
lucidrains(
    "ResidualVQ",
    "vector_quantize_pytorch",
    "ResidualVQ",
    of_shape(1, 8, 4),
    dim=4,
    codebook_size=16,
    num_quantizers=2,
)
lucidrains(
    "Perceiver",
    "perceiver_pytorch",
    "Perceiver",
    of_shape(1, 8, 8, 3),
    input_channels=3,
    input_axis=2,
    num_freq_bands=2,
    max_freq=4.0,
    depth=1,
    num_latents=4,
    latent_dim=8,
    latent_heads=2,
    cross_dim_head=4,
    latent_dim_head=4,
    num_classes=5,
)
lucidrains(
    "PerceiverIO",
    "perceiver_pytorch",
    "PerceiverIO",
    of_shape(1, 8, 8),
    dim=8,
    queries_dim=8,
    depth=1,
    num_latents=4,
    latent_dim=8,
    latent_heads=2,
    cross_dim_head=4,
    latent_dim_head=4,
)
lucidrains(
    "ConformerBlock",
    "conformer",
    "ConformerBlock",
    of_shape(1, 8, 16),
    dim=16,
    dim_head=8,
    heads=2,
    conv_kernel_size=3,
)
lucidrains(
    "Linformer", "linformer", "Linformer", of_shape(1, 16, 16), dim=16, seq_len=16, depth=1, heads=2, k=4
)
lucidrains(
    "LinearAttentionTransformerLM",
    "linear_attention_transformer",
    "LinearAttentionTransformerLM",
    tokens,
    num_tokens=32,
    dim=16,
    heads=2,
    depth=1,
    max_seq_len=16,
)
lucidrains(
    "SirenNet", "siren_pytorch", "SirenNet", of_shape(5, 2), dim_in=2, dim_hidden=8, dim_out=3, num_layers=2
)
lucidrains("gMLP", "g_mlp_pytorch", "gMLP", tokens, num_tokens=32, dim=16, depth=1, seq_len=16)
lucidrains(
    "MLPMixer",
    "mlp_mixer_pytorch",
    "MLPMixer",
    of_shape(1, 3, 16, 16),
    image_size=16,
    channels=3,
    patch_size=4,
    dim=16,
    depth=1,
    num_classes=5,
)
lucidrains(
    "AxialPositionalEmbedding",
    "axial_positional_embedding",
    "AxialPositionalEmbedding",
    of_shape(1, 16, 8),
    dim=8,
    axial_shape=(4, 4),
)
lucidrains(
    "PKM", "product_key_memory", "PKM", of_shape(1, 8, 16), dim=16, heads=2, dim_head=8, num_keys=8, topk=4
)
lucidrains("RotaryEmbedding", "rotary_embedding_torch", "RotaryEmbedding", of_shape(1, 2, 8, 8), dim=8)


@case("rotary_embedding_torch.rotate")
def _():
    from rotary_embedding_torch import RotaryEmbedding

    r = RotaryEmbedding(dim=8)
    return (lambda q: r.rotate_queries_or_keys(q)), [
        (graded(1, 2, 8, 8),),
        (graded(1, 2, 8, 8),),
        (graded(1, 2, 4, 8),),
    ]


lucidrains(
    "TabTransformer",
    "tab_transformer_pytorch",
    "TabTransformer",
    lambda: (torch.randint(0, 3, (2, 2)), graded(2, 3)),
    categories=(3, 3),
    num_continuous=3,
    dim=8,
    dim_out=1,
    depth=1,
    heads=2,
    mlp_act=torch.nn.ReLU(),
)
lucidrains("GateLoop", "gateloop_transformer", "SimpleGateLoopLayer", of_shape(1, 8, 8), dim=8)
lucidrains(
    "DDPM_Unet",
    "denoising_diffusion_pytorch",
    "Unet",
    lambda: (graded(1, 3, 16, 16), torch.tensor([3])),
    dim=8,
    dim_mults=(1, 2),
    flash_attn=False,
)


@case("hyper_connections")
def _():
    from hyper_connections import HyperConnections

    init, expand, reduce = HyperConnections.get_init_and_expand_reduce_stream_functions(2)
    m = init(dim=8, branch=nn.Linear(8, 8))
    return Wrapped(lambda m, x: reduce(m(expand(x))), m), [(graded(1, 4, 8),), (graded(1, 4, 8),)]
