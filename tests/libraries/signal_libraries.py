"""Cases of libraries of sound, of sequences in pure Python, and of adapters."""

import torch
from torch import nn

from libraries.library_cases import Wrapped, case, graded, of_shape


# -- sound
@case("asteroid_filterbanks.STFT")
def _():
    from asteroid_filterbanks import STFTFB, Decoder, Encoder

    banks = [STFTFB(n_filters=32, kernel_size=32, stride=16) for _ in range(2)]
    return Wrapped(lambda e, d, x: d(e(x)), Encoder(banks[0]), Decoder(banks[1])), of_shape((2, 1, 160))


@case("asteroid_filterbanks.ParamSinc")
def _():
    from asteroid_filterbanks import Encoder, ParamSincFB

    return Encoder(ParamSincFB(n_filters=8, kernel_size=17, stride=8)), of_shape((2, 1, 80))


for _name, _arguments in (("ResampleFrac", (4, 5)), ("LowPassFilter", (0.2,)), ("FFTConv1d", (2, 3, 16))):

    @case(f"julius.{_name}")
    def _(name=_name, arguments=_arguments):
        import julius

        return getattr(julius, name)(*arguments), of_shape((1, 2, 64))


@case("torchlibrosa.LogmelFilterBank")
def _():
    from torchlibrosa.stft import LogmelFilterBank, Spectrogram

    bank = LogmelFilterBank(sr=1000, n_fft=64, n_mels=8, fmin=10, fmax=400)
    return nn.Sequential(Spectrogram(n_fft=64, hop_length=32), bank), of_shape((2, 640))


@case("auraloss.MultiResolutionSTFTLoss")
def _():
    from auraloss.freq import MultiResolutionSTFTLoss

    loss = MultiResolutionSTFTLoss(fft_sizes=[64, 32], hop_sizes=[16, 8], win_lengths=[64, 32])
    return loss, [(graded(2, 1, 512), torch.randn(2, 1, 512)) for _ in range(2)]


# -- a whole step of an optimiser
@case("schedulefree.AdamW", grads=False)
def _():
    from schedulefree import AdamWScheduleFree

    model = nn.Linear(4, 3)
    optimizer = AdamWScheduleFree(model.parameters(), lr=1e-2)
    optimizer.train()

    def program(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach(), model.weight.detach().clone()

    return program, [(torch.randn(2, 4),) for _ in range(3)]


# -- sequences
@case("mambapy.Mamba")
def _():
    from mambapy.mamba import Mamba, MambaConfig

    return Mamba(MambaConfig(d_model=8, n_layers=2, d_state=4)), of_shape((2, 6, 8))


@case("nystrom_attention.NystromAttention")
def _():
    from nystrom_attention import NystromAttention

    return NystromAttention(dim=8, dim_head=4, heads=2, num_landmarks=4), of_shape((1, 16, 8))


@case("soft_moe_pytorch.SoftMoE")
def _():
    from soft_moe_pytorch import SoftMoE

    return SoftMoE(dim=8, seq_len=8, num_experts=4), of_shape((1, 8, 8))


@case("st_moe_pytorch.MoE")
def _():
    from st_moe_pytorch import MoE

    return MoE(dim=8, num_experts=4), of_shape((2, 6, 8))


@case("egnn_pytorch.EGNN")
def _():
    from egnn_pytorch import EGNN

    return EGNN(dim=8), of_shape((1, 5, 8), (1, 5, 3))


@case("titans_pytorch.NeuralMemory")
def _():
    from titans_pytorch import NeuralMemory

    return NeuralMemory(dim=8, chunk_size=2), of_shape((1, 8, 8))


# -- adapters
@case("loralib.Linear")
def _():
    import loralib

    merged = loralib.MergedLinear(8, 9, r=2, enable_lora=[True, False, True])
    return nn.Sequential(loralib.Linear(6, 8, r=2), nn.ReLU(), merged), of_shape((3, 6))


@case("torch_ema.averaged")
def _():
    from torch_ema import ExponentialMovingAverage

    model = nn.Linear(4, 3)
    average = ExponentialMovingAverage(model.parameters(), decay=0.9)

    def program(model, x):
        with average.average_parameters():
            y = model(x).detach()
        return y + model(x)

    return Wrapped(program, model), of_shape((2, 4))
