"""Audit the fine-tuning of a transformer with LoRA while it runs, once: Trainer, peft and Opacus.

python examples/huggingface_lora.py
"""

from __future__ import annotations

import tempfile
import warnings

import torch
import transformers
from opacus import PrivacyEngine
from peft import LoraConfig, TaskType, get_peft_model
from torch.utils.data import DataLoader, Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

import dpaudit
from dpaudit.live.huggingface import LiveAuditCallback

EXAMPLES, BATCH, STEPS, NOISE = 32, 8, 24, 1.0


# --- The user's own script. ----------------------------------------------------------------------


class Sentences(Dataset):
    """Random sentences of five tokens with two labels."""

    def __init__(self):
        random = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(20, (EXAMPLES, 5), generator=random)
        self.labels = torch.randint(2, (EXAMPLES,), generator=random)

    def __len__(self):
        return EXAMPLES

    def __getitem__(self, index):
        tokens = self.tokens[index]
        return {
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens),
            "labels": self.labels[index],
        }


class ClearGradients(TrainerCallback):
    """The trainer clears the model's gradients; Opacus also keeps those of each example."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    def on_step_begin(self, *_, **__):
        self.optimizer.zero_grad()


class PrivateTrainer(Trainer):
    """A trainer with the loader of Opacus, which samples batches."""

    def __init__(self, *arguments, private_loader, **named):
        super().__init__(*arguments, **named)
        self.private_loader = private_loader

    def get_train_dataloader(self):
        return self.private_loader


def make_private(seed, *, noise_multiplier=NOISE):
    torch.manual_seed(seed)
    model = transformers.DistilBertForSequenceClassification(
        transformers.DistilBertConfig(
            vocab_size=20, dim=32, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=8
        )
    )
    adapters = LoraConfig(r=8, target_modules=["q_lin", "v_lin"], task_type=TaskType.SEQ_CLS)
    model = get_peft_model(model, adapters)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.train()
    _, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.AdamW(trained, lr=1e-2),
        data_loader=DataLoader(Sentences(), batch_size=BATCH),
        noise_multiplier=noise_multiplier,
        max_grad_norm=1.0,
        wrap_model=False,  # the trainer looks at the model's class
    )
    return model, optimizer, loader


def fit(model, optimizer, loader, callbacks=()):
    with tempfile.TemporaryDirectory() as folder:
        PrivateTrainer(
            model=model,
            args=TrainingArguments(
                output_dir=folder,
                max_steps=STEPS,
                max_grad_norm=0.0,  # Opacus clips
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                logging_strategy="no",
                use_cpu=True,
                seed=int(torch.randint(2**31, ())),
            ),
            optimizers=(optimizer, None),
            private_loader=loader,
            callbacks=[ClearGradients(optimizer), *callbacks],
        ).train()


# --- The audit. ----------------------------------------------------------------------------------


def main(canaries: int = 1000, seed: int = 0) -> dpaudit.AuditResult:
    warnings.filterwarnings("ignore", message="Secure RNG turned off")
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    warnings.filterwarnings("ignore", message="Optimal order is the")
    transformers.logging.set_verbosity_error()
    live = LiveAuditCallback(canaries=canaries)
    fit(*make_private(seed), callbacks=[live])
    print(live.result)
    return live.result


if __name__ == "__main__":
    main()
