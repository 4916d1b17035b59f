"""Cases of libraries of tables, graphs, time series, reinforcement learning, and helpers of training."""

import importlib

import torch
from torch import nn

from libraries.library_cases import Wrapped, case, graded
from libraries.probability_libraries import numbers, twice


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


# -- tables
@case("rtdl_revisiting_models.FTTransformer")
def _():
    from rtdl_revisiting_models import FTTransformer

    options = FTTransformer.get_default_kwargs(n_blocks=1) | {"d_block": 16, "attention_n_heads": 2}
    model = FTTransformer(n_cont_features=3, cat_cardinalities=[2, 4], d_out=1, **options)
    return model.eval(), twice(numbers(4, 3), lambda: torch.randint(0, 2, (4, 2)))


@case("rtdl_num_embeddings.embeddings")
def _():
    from rtdl_num_embeddings import PeriodicEmbeddings, PiecewiseLinearEmbeddings, compute_bins

    bins = compute_bins(torch.rand(20, 3), n_bins=4)
    pieces = PiecewiseLinearEmbeddings(bins, 4, activation=True, version="B")
    periods = PeriodicEmbeddings(3, 4, lite=False)
    return Wrapped(lambda a, b, x: (a(x), b(x)), pieces, periods), twice(numbers(4, 3))


@case("torchkge.TransE")
def _():
    from torchkge.models import TransEModel

    def triples():
        return torch.randint(0, 3, (4,))

    return TransEModel(4, 5, 3), twice(triples, triples, triples, triples, triples)


# -- graphs
def graph_layer(name, *args, **kwargs):
    @case(f"pyg.{name}")
    def _():
        import torch_geometric.nn as layers

        edges = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
        return getattr(layers, name)(*args, **kwargs), twice(numbers(3, 4), lambda: edges)


graph_layer("GINConv", nn.Linear(4, 4))
graph_layer("ChebConv", 4, 4, K=2)
graph_layer("GATv2Conv", 4, 4)
graph_layer("TransformerConv", 4, 4, heads=2)
graph_layer("APPNP", 2, 0.1)


# -- time series
@case("ncps.CfC")
def _():
    from ncps.torch import CfC

    return CfC(3, 4), twice(numbers(2, 3, 3))


@case("ncps.LTC")
def _():
    from ncps.torch import LTC
    from ncps.wirings import AutoNCP

    return LTC(3, AutoNCP(6, 2)), twice(numbers(2, 3, 3))


@case("pytorch_forecasting.NBEATS")
def _():
    from pytorch_forecasting.metrics import QuantileLoss
    from pytorch_forecasting.models.nbeats import sub_modules

    block = sub_modules.NBEATSGenericBlock(
        units=8, thetas_dim=4, num_block_layers=2, backcast_length=6, forecast_length=3
    )
    loss = QuantileLoss(quantiles=[0.2, 0.5, 0.8])

    def quantiles(block, x, target):
        backcast, forecast = block(x)
        return backcast, loss.loss(forecast.unsqueeze(1), target)

    return Wrapped(quantiles, block), twice(numbers(2, 6), lambda: torch.rand(2, 1))


# -- reinforcement learning
@case("stable_baselines3.ActorCriticPolicy")
def _():
    import gymnasium
    from stable_baselines3.common.policies import ActorCriticPolicy

    space, actions = gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Discrete(2)
    policy = ActorCriticPolicy(space, actions, lambda progress: 1e-3, net_arch=[8])
    return Wrapped(lambda p, x, a: p.evaluate_actions(x, a), policy), twice(
        lambda: torch.rand(4, 3), lambda: torch.randint(0, 2, (4,))
    )


@case("stable_baselines3.SACPolicy")
def _():
    import gymnasium
    from stable_baselines3.sac.policies import SACPolicy

    space, actions = gymnasium.spaces.Box(-1, 1, (3,)), gymnasium.spaces.Box(-1, 1, (2,))
    actor = SACPolicy(space, actions, lambda progress: 1e-3, net_arch=[8]).actor
    return Wrapped(lambda a, x: a.action_log_prob(x), actor), twice(lambda: torch.rand(4, 3))


# -- containers of tensors
@case("tensordict.TensorDictModule")
def _():
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule

    module = TensorDictModule(nn.Linear(3, 4), in_keys=["a"], out_keys=["b"])

    def applied(module, x):
        return module(TensorDict({"a": x}, batch_size=[2]))["b"]

    return Wrapped(applied, module), twice(numbers(2, 3))


@case("tensordict.arithmetic")
def _():
    from tensordict import TensorDict

    def computed(x, y):
        table = TensorDict({"a": x, "n": {"b": y}}, batch_size=[2]) * 2 + 1
        return torch.stack([table, table.apply(torch.sin)], 0).view(-1)["n", "b"]

    return computed, twice(numbers(2, 3), numbers(2))


# -- training and explaining
@case("opacus.GradSampleModule")
def _():
    from opacus import GradSampleModule

    return GradSampleModule(network()), twice(numbers(4, 3))


@case("opacus.DPLSTM")
def _():
    from opacus.layers import DPLSTM

    return DPLSTM(3, 4, batch_first=True), twice(numbers(2, 3, 3))


@case("captum.Saliency", grads=False)
def _():
    from captum.attr import Saliency

    return Wrapped(lambda m, x: Saliency(m).attribute(x, target=0), network()), twice(numbers(4, 3))


@case("captum.FeatureAblation", grads=False)
def _():
    from captum.attr import FeatureAblation

    return Wrapped(lambda m, x: FeatureAblation(m).attribute(x, target=0), network()), twice(
        lambda: torch.rand(4, 3)
    )


@case("torch_pruning.DependencyGraph")
def _():
    import torch_pruning

    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))
    graph = torch_pruning.DependencyGraph().build_dependency(model, torch.rand(1, 1, 8, 8))
    graph.get_pruning_group(model[0], torch_pruning.prune_conv_out_channels, idxs=[1, 3]).prune()
    return model, twice(numbers(1, 1, 8, 8))


@case("ignite.MeanSquaredError", grads=False)
def _():
    from ignite.metrics import MeanSquaredError

    def error(p, t):
        metric = MeanSquaredError()
        metric.update((p, t))
        return metric.compute()

    return error, twice(lambda: torch.rand(6), lambda: torch.rand(6))


@case("higher.innerloop_ctx")
def _():
    import higher

    def adapted(net, x):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with higher.innerloop_ctx(net, optimizer, copy_initial_weights=False) as (copied, steps):
            steps.step(copied(x).pow(2).mean())
            return copied(x).sum()

    return Wrapped(adapted, nn.Linear(3, 1)), twice(numbers(4, 3))


@case("momentumnet.MomentumNet")
def _():
    from momentumnet import MomentumNet

    layers = [nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(2)]
    return MomentumNet(layers, gamma=0.9), twice(numbers(2, 3))


# -- losses
def metric_loss(name, *args):
    @case(f"pytorch_metric_learning.{name}")
    def _():
        from pytorch_metric_learning import losses

        labels = torch.tensor([0, 0, 1, 1, 2, 2])
        return getattr(losses, name)(*args), twice(lambda: graded(6, 4), lambda: labels)


metric_loss("TripletMarginLoss")
metric_loss("NTXentLoss")
metric_loss("ArcFaceLoss", 3, 4)


# -- optimizers, whose steps are in the program
def optimizer_step(library, name):
    @case(f"{library}.{name}", grads=False)
    def _():
        class Step(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(3, 1)
                optimizer = getattr(importlib.import_module(library), name)
                self.optimizer = optimizer(self.linear.parameters(), lr=0.1)

            def forward(self, x):
                self.optimizer.zero_grad()
                loss = self.linear(x).pow(2).mean()
                loss.backward()
                self.optimizer.step()
                return loss, self.linear.weight + 0

        return Step(), twice(lambda: torch.rand(4, 3))


optimizer_step("pytorch_optimizer", "Lion")
optimizer_step("pytorch_optimizer", "AdaBelief")
optimizer_step("lion_pytorch", "Lion")
optimizer_step("torch_optimizer", "RAdam")
