"""Libraries that train, save and run a module which they are given: each use is made with a compiled one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from libraries.library_cases import Compile, use


class Net(nn.Module):
    """A classifier of vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of the classes."""
        return self.layers(x)


def batches() -> Any:
    """Return a loader of four batches of vectors and classes."""
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long()), batch_size=4)


def llama() -> Any:
    """Return a small language model, the same each time."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    tokens = {"vocab_size": 32, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, **tokens, max_position_embeddings=64))


class Texts(torch.utils.data.Dataset):
    """Eight texts of six tokens."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(3, 32, (6,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": tokens, "labels": tokens}


def _fitted(compile_net: Compile, compile_all: Compile, **settings: Any) -> Any:
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

        def training_step(self, batch: Any, number: int) -> torch.Tensor:
            loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, number: int) -> None:
            self.log("validation", nn.functional.cross_entropy(self(batch[0]), batch[1]))

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), 0.01)

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        best = lightning.pytorch.callbacks.ModelCheckpoint(folder, monitor="validation", filename="best")
        trainer = lightning.Trainer(
            max_epochs=2,
            accelerator="cpu",
            devices=1,
            callbacks=[best],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **settings,
        )
        module = compile_all(Classifier(compile_net(Net())))
        trainer.fit(module, batches(), batches())
        validated = trainer.validate(module, batches(), ckpt_path="best", verbose=False)
        return validated, torch.load(Path(folder, "best.ckpt"), weights_only=False)["state_dict"]


@use("lightning.inner_module")
def lightning_inner_module(compile_module: Compile) -> Any:
    return _fitted(compile_module, lambda module: module)


@use("lightning.whole_module")
def lightning_whole_module(compile_module: Compile) -> Any:
    return _fitted(lambda module: module, compile_module)


@use("lightning.accumulation")
def lightning_accumulation(compile_module: Compile) -> Any:
    return _fitted(lambda module: module, compile_module, accumulate_grad_batches=2, gradient_clip_val=0.1)


@use("lightning.bf16_mixed")
def lightning_bf16_mixed(compile_module: Compile) -> Any:
    return _fitted(lambda module: module, compile_module, precision="bf16-mixed")


@use("lightning.ddp")
def lightning_ddp(compile_module: Compile) -> Any:
    return _fitted(lambda module: module, compile_module, strategy="ddp")


def _accelerated(compile_module: Compile, **settings: Any) -> Any:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, **settings)
    model = compile_module(Net())
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, batches())
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    with tempfile.TemporaryDirectory() as folder:
        accelerator.save_state(folder)
        names = sorted(path.name for path in Path(folder).iterdir())
        accelerator.load_state(folder)
    unwrapped = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    return losses, names, accelerator.get_state_dict(model), unwrapped(torch.ones(1, 4))


@use("accelerate.prepare")
def accelerate_prepare(compile_module: Compile) -> Any:
    return _accelerated(compile_module)


@use("accelerate.mixed_precision")
def accelerate_mixed_precision(compile_module: Compile) -> Any:
    return _accelerated(compile_module, mixed_precision="bf16", gradient_accumulation_steps=2)


def _trained(model: Any, **settings: Any) -> Any:
    from accelerate.state import AcceleratorState
    from transformers import PrinterCallback, Trainer, TrainingArguments, set_seed

    AcceleratorState._reset_state(True)
    set_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=4,
            per_device_train_batch_size=4,
            learning_rate=1e-3,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            logging_steps=1,
            save_steps=2,
            **settings,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=Texts(), eval_dataset=Texts())
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        evaluated = trainer.evaluate()["eval_loss"]
        trainer.train(resume_from_checkpoint=f"{folder}/checkpoint-2")
        losses = [step["loss"] for step in trainer.state.log_history if "loss" in step]
        trainer.save_model(f"{folder}/final")
        saved = model.__class__.from_pretrained(f"{folder}/final").state_dict()
        return losses, evaluated, sorted(trainer._signature_columns), saved


@use("transformers.Trainer")
def transformers_trainer(compile_module: Compile) -> Any:
    return _trained(compile_module(llama()))


@use("transformers.Trainer_checkpointing")
def transformers_trainer_checkpointing(compile_module: Compile) -> Any:
    return _trained(compile_module(llama()), gradient_checkpointing=True, gradient_accumulation_steps=2)


def _generated(compile_module: Compile, **options: Any) -> Any:
    model = compile_module(llama().eval())
    tokens = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])
    torch.manual_seed(0)
    return model.generate(tokens, max_new_tokens=6, min_new_tokens=6, **options)


@use("transformers.generate_greedy")
def transformers_generate_greedy(compile_module: Compile) -> Any:
    return _generated(compile_module)


@use("transformers.generate_static")
def transformers_generate_static(compile_module: Compile) -> Any:
    return _generated(compile_module, cache_implementation="static", do_sample=True, top_k=5)


@use("transformers.generate_beams")
def transformers_generate_beams(compile_module: Compile) -> Any:
    return _generated(compile_module, num_beams=3)


def _adapted(compile_base: Compile, compile_all: Compile) -> Any:
    from peft import LoraConfig, get_peft_model

    base = compile_base(llama())
    config = LoraConfig(
        task_type="CAUSAL_LM", r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False
    )
    model = compile_all(get_peft_model(base, config))
    tokens = torch.tensor([[5, 6, 7, 8]])
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    generated = model.eval().generate(input_ids=tokens, max_new_tokens=3, min_new_tokens=3)
    merged = model.merge_and_unload()
    return loss.detach(), gradients, generated, merged(tokens).logits, merged.state_dict()


@use("peft.around_compiled")
def peft_around_compiled(compile_module: Compile) -> Any:
    return _adapted(compile_module, lambda model: model)


@use("peft.compiled")
def peft_compiled(compile_module: Compile) -> Any:
    return _adapted(lambda model: model, compile_module)


@use("torch.AveragedModel")
def torch_averaged_model(compile_module: Compile) -> Any:
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    torch.manual_seed(0)
    model = compile_module(Net())
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in batches():
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        average.update_parameters(model)
    return average(torch.ones(1, 4)), average.state_dict()


@use("torchinfo.summary")
def torchinfo_summary(compile_module: Compile) -> Any:
    import torchinfo

    return str(torchinfo.summary(compile_module(Net()), input_data=torch.ones(2, 4), verbose=0))
