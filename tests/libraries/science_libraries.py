"""Cases of libraries of images, metrics, physics, graphs and pretrained models."""

from collections import OrderedDict

import torch
from torch import nn

from libraries.library_cases import Wrapped, case, graded


# -- kornia
def kornia_function(name, f, *shapes, **opts):
    @case(f"kornia.{name}", **opts)
    def _():
        import kornia

        fn = f(kornia)
        return fn, [tuple(torch.rand(*s).requires_grad_(opts.get("grads", True)) for s in shapes)] * 2


kornia_function(
    "gaussian_blur", lambda K: lambda x: K.filters.gaussian_blur2d(x, (3, 3), (1.5, 1.5)), (1, 3, 8, 8)
)
kornia_function("sobel", lambda K: K.filters.Sobel(), (1, 3, 8, 8))
kornia_function("rgb_to_hsv", lambda K: K.color.rgb_to_hsv, (1, 3, 8, 8))
kornia_function("rgb_to_lab", lambda K: K.color.rgb_to_lab, (1, 3, 8, 8))
kornia_function("ssim", lambda K: lambda a, b: K.metrics.ssim(a, b, 5), (1, 3, 8, 8), (1, 3, 8, 8))
kornia_function(
    "warp_affine", lambda K: lambda x: K.geometry.transform.rotate(x, torch.tensor([30.0])), (1, 3, 8, 8)
)
kornia_function(
    "dice", lambda K: lambda x: K.losses.dice_loss(x, torch.ones(1, 8, 8, dtype=torch.long)), (1, 3, 8, 8)
)
kornia_function("canny", lambda K: lambda x: K.filters.canny(x)[0], (1, 3, 8, 8), grads=False)
kornia_function("homography", lambda K: K.geometry.conversions.axis_angle_to_rotation_matrix, (2, 3))
kornia_function("median", lambda K: lambda x: K.filters.median_blur(x, (3, 3)), (1, 3, 8, 8))


# -- torchmetrics functional
def metric(name, f, *args):
    @case(f"torchmetrics.{name}", grads=False)
    def _():
        import torchmetrics.functional as F

        return f(F), [args, args]


metric(
    "accuracy",
    lambda F: lambda p, t: F.accuracy(p, t, task="multiclass", num_classes=3),
    torch.randn(8, 3),
    torch.randint(0, 3, (8,)),
)
metric("mse", lambda F: F.mean_squared_error, torch.randn(8), torch.randn(8))
metric("r2", lambda F: F.r2_score, torch.randn(8), torch.randn(8))
metric("auroc", lambda F: lambda p, t: F.auroc(p, t, task="binary"), torch.rand(8), torch.tensor([0, 1] * 4))
metric(
    "psnr",
    lambda F: lambda p, t: F.peak_signal_noise_ratio(p, t, data_range=1.0),
    torch.rand(8),
    torch.rand(8),
)
metric(
    "ssim",
    lambda F: lambda p, t: F.structural_similarity_index_measure(p, t),
    torch.rand(1, 3, 16, 16),
    torch.rand(1, 3, 16, 16),
)
metric("cosine", lambda F: F.cosine_similarity, torch.randn(4, 8), torch.randn(4, 8))
metric(
    "f1",
    lambda F: lambda p, t: F.f1_score(p, t, task="multiclass", num_classes=3),
    torch.randn(8, 3),
    torch.randint(0, 3, (8,)),
)
metric(
    "confusion",
    lambda F: lambda p, t: F.confusion_matrix(p, t, task="multiclass", num_classes=3),
    torch.randn(8, 3),
    torch.randint(0, 3, (8,)),
)


# -- flows
@case("nflows.maf")
def _():
    from nflows import distributions, flows, transforms

    t = transforms.CompositeTransform(
        [
            transforms.MaskedAffineAutoregressiveTransform(features=2, hidden_features=4),
            transforms.RandomPermutation(features=2),
        ]
    )
    f = flows.Flow(t, distributions.StandardNormal([2]))
    return Wrapped(lambda f, x: f.log_prob(x), f), [(graded(4, 2),), (graded(4, 2),)]


@case("normflows.realnvp")
def _():
    import normflows as nf

    base = nf.distributions.base.DiagGaussian(2)
    m = nf.NormalizingFlow(
        base,
        [
            nf.flows.AffineCouplingBlock(nf.nets.MLP([1, 8, 2], init_zeros=True)),
            nf.flows.Permute(2, mode="swap"),
        ],
    )
    return m, [(graded(4, 2),), (graded(4, 2),)]


# -- ode/sde
@case("torchdiffeq.euler")
def _():
    from torchdiffeq import odeint

    linear = nn.Linear(2, 2)
    f = Wrapped(lambda linear, t, y: linear(y), linear)
    return Wrapped(lambda f, y: odeint(f, y, torch.linspace(0, 1, 3), method="euler"), f), [
        (graded(3, 2),),
        (graded(3, 2),),
    ]


@case("torchdiffeq.rk4")
def _():
    from torchdiffeq import odeint

    linear = nn.Linear(2, 2)
    return Wrapped(
        lambda linear, y: odeint(lambda t, y: linear(y), y, torch.linspace(0, 1, 3), method="rk4"), linear
    ), [
        (graded(3, 2),),
        (graded(3, 2),),
    ]


# -- tabnet
@case("tabnet")
def _():
    from pytorch_tabnet.tab_network import TabNet

    return TabNet(4, 3, n_d=4, n_a=4, n_steps=2, group_attention_matrix=torch.eye(4)).eval(), [
        (graded(6, 4),),
        (graded(6, 4),),
    ]


# -- timm
def timm_model(name, shape=(1, 3, 32, 32), **kw):
    @case(f"timm.{name}")
    def _():
        import timm

        return timm.create_model(name, num_classes=5, **kw).eval(), [(graded(*shape),), (graded(*shape),)]


timm_model("vit_tiny_patch16_224", img_size=32, depth=1, embed_dim=24, num_heads=2)
timm_model("resnet10t")
timm_model(
    "swin_tiny_patch4_window7_224", img_size=32, window_size=4, embed_dim=8, depths=(1, 1), num_heads=(1, 2)
)
timm_model("convnext_atto", depths=(1, 1, 1, 1), dims=(4, 8, 8, 8))
timm_model("mobilenetv3_small_050")
timm_model("eva02_tiny_patch14_224", img_size=28, depth=1, embed_dim=24, num_heads=2, shape=(1, 3, 28, 28))


# -- segmentation models
@case("smp.Unet")
def _():
    import segmentation_models_pytorch as smp

    return smp.Unet("resnet18", encoder_weights=None, classes=2).eval(), [(graded(1, 3, 32, 32),)]


@case("smp.DiceLoss")
def _():
    import segmentation_models_pytorch as smp

    return smp.losses.DiceLoss("multiclass"), [(graded(1, 3, 8, 8), torch.randint(0, 3, (1, 8, 8)))]


# -- neuralop
@case("neuralop.FNO")
def _():
    from neuralop.models import FNO

    return FNO(n_modes=(4, 4), hidden_channels=8, in_channels=1, out_channels=1, n_layers=1).eval(), [
        (graded(1, 1, 8, 8),),
        (graded(1, 1, 8, 8),),
    ]


@case("neuralop.LpLoss")
def _():
    from neuralop.losses import LpLoss

    loss = LpLoss(d=2)
    return (lambda a, b: loss(a, b)), [
        (graded(1, 1, 8, 8), torch.randn(1, 1, 8, 8)),
        (graded(1, 1, 8, 8), torch.randn(1, 1, 8, 8)),
    ]


# -- e3nn
@case("e3nn.Linear")
def _():
    from e3nn import o3

    return o3.Linear("2x0e+1x1o", "1x0e+1x1o"), [(graded(3, 5),), (graded(3, 5),)]


@case("e3nn.spherical_harmonics")
def _():
    from e3nn import o3

    return (lambda x: o3.spherical_harmonics([0, 1, 2], x, normalize=True)), [
        (graded(3, 3),),
        (graded(3, 3),),
    ]


# -- monai
def monai_network(cls, shape, **kw):
    @case(f"monai.{cls}")
    def _():
        import monai

        return getattr(monai.networks.nets, cls)(**kw).eval(), [(graded(*shape),), (graded(*shape),)]


monai_network(
    "UNet",
    (1, 1, 16, 16),
    spatial_dims=2,
    in_channels=1,
    out_channels=2,
    channels=(4, 8),
    strides=(2,),
)
monai_network(
    "ViT",
    (1, 1, 16, 16),
    in_channels=1,
    img_size=(16, 16),
    patch_size=(8, 8),
    hidden_size=12,
    mlp_dim=12,
    num_layers=1,
    num_heads=2,
    spatial_dims=2,
)
monai_network(
    "SegResNet",
    (1, 1, 16, 16),
    spatial_dims=2,
    init_filters=8,
    in_channels=1,
    out_channels=2,
    blocks_down=(1, 1),
    blocks_up=(1,),
)
monai_network(
    "SwinUNETR",
    (1, 1, 64, 64),
    in_channels=1,
    out_channels=2,
    feature_size=12,
    spatial_dims=2,
    depths=(1, 1, 1, 1),
)


@case("monai.DiceLoss")
def _():
    import monai

    return monai.losses.DiceLoss(sigmoid=True), [
        (graded(1, 1, 8, 8), torch.randint(0, 2, (1, 1, 8, 8)).float())
    ]


# -- gpytorch
@case("gpytorch.RBF", grads=True)
def _():
    import gpytorch

    k = gpytorch.kernels.RBFKernel()
    return Wrapped(lambda k, x: k(x).to_dense(), k), [(graded(4, 2),), (graded(4, 2),)]


# -- torch_geometric
@case("pyg.GCNConv")
def _():
    from torch_geometric.nn import GCNConv

    e = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
    return GCNConv(3, 4), [(graded(3, 3), e), (graded(3, 3), e)]


@case("pyg.GATConv")
def _():
    from torch_geometric.nn import GATConv

    e = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
    return GATConv(3, 4), [(graded(3, 3), e), (graded(3, 3), e)]


@case("pyg.SAGE")
def _():
    from torch_geometric.nn import SAGEConv

    e = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
    return SAGEConv(3, 4), [(graded(3, 3), e), (graded(3, 3), e)]


# -- crf/entmax
@case("torchcrf")
def _():
    from torchcrf import CRF

    c = CRF(3, batch_first=True)
    return c, [(graded(2, 4, 3), torch.randint(0, 3, (2, 4))), (graded(2, 4, 3), torch.randint(0, 3, (2, 4)))]


@case("entmax.sparsemax")
def _():
    from entmax import sparsemax

    return (lambda x: sparsemax(x, dim=-1)), [(graded(2, 5),), (graded(2, 5),)]


@case("entmax.entmax15")
def _():
    from entmax import entmax15

    return (lambda x: entmax15(x, dim=-1)), [(graded(2, 5),), (graded(2, 5),)]


# -- peft
@case("peft.lora")
def _():
    from peft import LoraConfig, get_peft_model

    return get_peft_model(
        nn.Sequential(OrderedDict(q=nn.Linear(4, 4), v=nn.Linear(4, 4))),
        LoraConfig(target_modules=["q"], r=2),
    ), [(graded(2, 4),), (graded(2, 4),)]


# -- transformers default use_cache
def causal_model(name, cfg, cls, **kw):
    @case(f"transformers.{name}")
    def _():
        import transformers

        c = getattr(transformers, cfg)(**kw)
        m = getattr(transformers, cls)(c).eval()
        return m, [(torch.randint(0, 32, (1, 6)),), (torch.randint(0, 32, (1, 6)),)]


causal_model(
    "llama_default_cache",
    "LlamaConfig",
    "LlamaForCausalLM",
    vocab_size=32,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
)
causal_model(
    "gpt2_default_cache",
    "GPT2Config",
    "GPT2LMHeadModel",
    vocab_size=32,
    n_embd=16,
    n_layer=1,
    n_head=2,
    n_positions=32,
)
causal_model(
    "t5_encoder",
    "T5Config",
    "T5EncoderModel",
    vocab_size=32,
    d_model=16,
    d_kv=8,
    d_ff=16,
    num_layers=1,
    num_heads=2,
)


# -- typing/ema etc
@case("ema_pytorch")
def _():
    from ema_pytorch import EMA

    net = nn.Linear(3, 3)
    return EMA(net, include_online_model=True), [(graded(2, 3),), (graded(2, 3),)]


@case("jaxtyping.annotated")
def _():
    from jaxtyping import Float

    def f(x):
        y: Float[torch.Tensor, "a b"] = x * 2  # noqa: F722
        assert isinstance(y, Float[torch.Tensor, "a b"])
        return y

    return f, [(graded(2, 3),), (graded(2, 3),)]
