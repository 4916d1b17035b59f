"""Cases of libraries of tables, time series, sound and texts, and of optimizers."""

import torch
from torch import nn

from libraries.library_cases import Wrapped, case, graded, of_shape, plain, tokens, use


def _ctr(name, **kw):
    import deepctr_torch.models as M
    from deepctr_torch.inputs import DenseFeat, SparseFeat

    cols = [SparseFeat("a", 5, embedding_dim=4), SparseFeat("b", 7, embedding_dim=4), DenseFeat("d", 1)]
    m = getattr(M, name)(cols, cols, device="cpu", **kw)
    m.eval()
    calls = [(torch.cat([torch.randint(0, 5, (3, 2)).float(), torch.rand(3, 1)], 1),) for _ in range(2)]
    return m, calls


for _name in ("DeepFM", "DCN", "xDeepFM", "AutoInt", "NFM", "FiBiNET", "IFM"):

    @case(f"deepctr_torch.{_name}")
    def _(name=_name):
        return _ctr(name)


@case("nnAudio.STFT")
def _():
    from nnAudio.features import STFT

    return STFT(n_fft=64, hop_length=16, sr=1000, verbose=False, output_format="Magnitude"), of_shape(
        (1, 256)
    )


@case("nnAudio.MelSpectrogram")
def _():
    from nnAudio.features import MelSpectrogram

    return MelSpectrogram(sr=1000, n_fft=64, n_mels=8, hop_length=16, verbose=False), of_shape((1, 256))


@case("nnAudio.CQT")
def _():
    from nnAudio.features import CQT1992v2

    return CQT1992v2(sr=2000, hop_length=32, fmin=100, n_bins=12, verbose=False), of_shape((1, 1024))


@case("encodec.SEANetDecoder")
def _():
    from encodec.modules import SEANetDecoder

    return SEANetDecoder(dimension=8, n_filters=4, n_residual_layers=1, ratios=[2, 2], lstm=1), of_shape(
        (1, 8, 16)
    )


@case("encodec.ResidualVectorQuantizer")
def _():
    from encodec.quantization import ResidualVectorQuantizer

    q = ResidualVectorQuantizer(dimension=8, n_q=2, bins=16, kmeans_init=False)
    return Wrapped(lambda q, x: (lambda r: (r.quantized, r.codes, r.penalty))(q(x, 50)), q.eval()), plain(
        (1, 8, 10)
    )


@case("whisper.Whisper")
def _():
    from whisper.model import ModelDimensions, Whisper

    m = Whisper(
        ModelDimensions(
            n_mels=8,
            n_audio_ctx=16,
            n_audio_state=16,
            n_audio_head=2,
            n_audio_layer=1,
            n_vocab=32,
            n_text_ctx=8,
            n_text_state=16,
            n_text_head=2,
            n_text_layer=1,
        )
    )
    for p in m.parameters():
        nn.init.normal_(p, std=0.1)
    return m.eval(), [(torch.randn(1, 8, 32), torch.randint(0, 32, (1, 6))) for _ in range(2)]


@case("whisper.log_mel")
def _():
    from whisper.audio import log_mel_spectrogram

    return (lambda x: log_mel_spectrogram(x, 80)), plain((4000,))


@case("pytorch_wavelets.DWT")
def _():
    from pytorch_wavelets import DWTForward, DWTInverse

    return Wrapped(
        lambda f, g, x: g(f(x)), DWTForward(J=2, wave="db2", mode="zero"), DWTInverse(wave="db2", mode="zero")
    ), of_shape((1, 2, 16, 16))


@case("pytorch_wavelets.DTCWT")
def _():
    from pytorch_wavelets import DTCWTForward

    return Wrapped(lambda f, x: (lambda r: (r[0], *r[1]))(f(x)), DTCWTForward(J=2)), of_shape((1, 2, 16, 16))


@case("ptwt.wavedec")
def _():
    import ptwt

    return (lambda x: ptwt.waverec(ptwt.wavedec(x, "db2", level=2), "db2")), of_shape((2, 32))


@case("ptwt.wavedec2")
def _():
    import ptwt

    return (lambda x: ptwt.waverec2(ptwt.wavedec2(x, "haar", level=2), "haar")), of_shape((2, 16, 16))


@case("ptwt.packets")
def _():
    import ptwt

    def f(x):
        p = ptwt.WaveletPacket(x, "haar", mode="reflect", maxlevel=2)
        return torch.stack([p[k] for k in p.get_level(2)])

    return f, plain((2, 32))


@case("fastai.xresnet18")
def _():
    from fastai.vision.models.xresnet import xresnet18

    return xresnet18(n_out=4).eval(), plain((1, 3, 32, 32))


@case("fastai.TabularModel")
def _():
    from fastai.tabular.model import TabularModel

    m = TabularModel([(5, 3), (4, 2)], 3, 2, [8, 8], y_range=(0, 1))
    return m.eval(), [(torch.randint(0, 4, (3, 2)), torch.randn(3, 3)) for _ in range(2)]


@case("fastai.AWD_LSTM")
def _():
    from fastai.text.models.awdlstm import AWD_LSTM

    return AWD_LSTM(20, 8, 10, 2).eval(), tokens(20, (2, 6))


@case("fastai.losses")
def _():
    from fastai.losses import FocalLossFlat, LabelSmoothingCrossEntropy

    def f(x, y):
        return FocalLossFlat()(x, y) + LabelSmoothingCrossEntropy()(x, y)

    return f, [(graded(4, 3), torch.randint(0, 3, (4,))) for _ in range(2)]


def _classifier():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()


@use("zennit.EpsilonGammaBox")
def _(compile):
    from zennit.attribution import Gradient
    from zennit.composites import EpsilonPlus

    torch.manual_seed(0)
    model = _classifier()
    with Gradient(model=compile(model), composite=EpsilonPlus()) as attributor:
        return attributor(torch.rand(1, 3, 8, 8), torch.eye(3)[[0]])


@use("skorch.NeuralNetClassifier")
def _(compile):
    import numpy as np
    from skorch import NeuralNetClassifier

    torch.manual_seed(0)
    net = NeuralNetClassifier(
        compile(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2), nn.Softmax(-1))),
        max_epochs=2,
        lr=0.1,
        verbose=0,
        train_split=None,
        iterator_train__shuffle=False,
    )
    x = np.random.RandomState(0).rand(20, 4).astype("float32")
    net.fit(x, (x.sum(1) > 2).astype("int64"))
    return torch.from_numpy(net.predict_proba(x))


@case("sentence_transformers.Pooling")
def _():
    from sentence_transformers.models import Pooling

    p = Pooling(8, pooling_mode="mean")
    return Wrapped(
        lambda p, t, m: p({"token_embeddings": t, "attention_mask": m})["sentence_embedding"], p
    ), [(graded(2, 5, 8), torch.ones(2, 5)) for _ in range(2)]


@case("sentence_transformers.cos_sim")
def _():
    from sentence_transformers.util import cos_sim, pairwise_cos_sim

    return (lambda a, b: (cos_sim(a, b), pairwise_cos_sim(a, b))), of_shape((3, 4), (3, 4))


@case("pytorch_tcn.TCN")
def _():
    from pytorch_tcn import TCN

    return TCN(num_inputs=4, num_channels=[8, 8], kernel_size=3).eval(), of_shape((2, 4, 12))


for _lib, _name, _options in (
    ("prodigyopt", "Prodigy", {}),
    ("dadaptation", "DAdaptAdam", {}),
    ("came_pytorch", "CAME", {"lr": 1e-3}),
    ("adabelief_pytorch", "AdaBelief", {}),
):

    @use(f"{_lib}.{_name}")
    def _(compile, lib=_lib, name=_name, options=_options):
        import importlib

        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = getattr(importlib.import_module(lib), name)(model.parameters(), **options)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        run = compile(step)
        return [run(torch.ones(3, 4) * i).item() for i in range(1, 5)], list(model.parameters())


@case("pytorch_ood.losses")
def _():
    from pytorch_ood.loss import EnergyRegularizedLoss

    return EnergyRegularizedLoss(), [(graded(4, 3), torch.tensor([0, 1, -1, 2])) for _ in range(2)]


@case("chronos.ChronosBolt")
def _():
    from chronos.chronos_bolt import ChronosBoltModelForForecasting
    from transformers import T5Config

    c = T5Config(
        vocab_size=2,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_decoder_layers=1,
        num_heads=2,
        feed_forward_proj="relu",
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
    )
    c.chronos_config = dict(
        context_length=32,
        prediction_length=8,
        input_patch_size=8,
        input_patch_stride=8,
        quantiles=[0.1, 0.5, 0.9],
        use_reg_token=True,
    )
    m = ChronosBoltModelForForecasting(c)
    return Wrapped(lambda m, x: m(context=x).quantile_preds, m.eval()), plain((2, 32))
