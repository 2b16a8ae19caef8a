"""torch_train: training steps of a Llama-shaped model in PyTorch, timed (bench/compare-training).

Usage: python torch_train.py SIZES.json --rows B --ctx T --parts N --steps N --threads N
                             [--bf16] [--attention sdpa|eager] [--compile]
SIZES.json: what `zerope inspect --json` says of a model. Random weights and tokens: the work does
not depend on them. Loss over every position, tied embeddings, clipping at 1, fused AdamW on f32
weights; --bf16 is autocast. Prints one JSON document: tokens_per_second, the first step left out.
"""
import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, s, attention):
        super().__init__()
        d, head = s["d_model"], s["d_head"]
        self.n_head, self.n_kv, self.attention = s["n_head"], s["n_kv"], attention
        self.norm_1, self.norm_2 = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))
        self.q = nn.Linear(d, self.n_head * head, bias=False)
        self.k = nn.Linear(d, self.n_kv * head, bias=False)
        self.v = nn.Linear(d, self.n_kv * head, bias=False)
        self.o = nn.Linear(self.n_head * head, d, bias=False)
        self.gate = nn.Linear(d, s["d_ff"], bias=False)
        self.up = nn.Linear(d, s["d_ff"], bias=False)
        self.down = nn.Linear(s["d_ff"], d, bias=False)

    def attend(self, q, k, v):
        if self.attention == "sdpa":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        group, n = self.n_head // self.n_kv, q.shape[2]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        later = torch.ones(n, n, dtype=torch.bool).triu(1)
        return s.masked_fill(later, float("-inf")).softmax(-1) @ v

    def forward(self, x, cos, sin):
        def heads(y, n):
            return y.unflatten(-1, (n, -1)).transpose(1, 2)

        def turned(y):
            a, b = y.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        h = F.rms_norm(x, x.shape[-1:], self.norm_1)
        q, k, v = heads(self.q(h), self.n_head), heads(self.k(h), self.n_kv), self.v(h)
        a = self.attend(turned(q).to(v.dtype), turned(k).to(v.dtype), heads(v, self.n_kv))
        x = x + self.o(a.transpose(1, 2).flatten(-2))
        h = F.rms_norm(x, x.shape[-1:], self.norm_2)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, s, attention):
        super().__init__()
        self.embed = nn.Embedding(s["n_vocab"], s["d_model"])
        self.blocks = nn.ModuleList(Block(s, attention) for _ in range(s["n_layer"]))
        self.norm = nn.Parameter(torch.ones(s["d_model"]))
        self.frequency = s["rope"]["base"] ** (-torch.arange(0, s["d_head"], 2) / s["d_head"])
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, ids):
        angle = torch.arange(ids.shape[1])[:, None] * self.frequency
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, angle.cos(), angle.sin())
        x = F.rms_norm(x, x.shape[-1:], self.norm)
        return F.linear(x, self.embed.weight)


def train(args, sizes):
    model = Model(sizes, args.attention)
    loss_of = torch.compile(model) if args.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, fused=True)
    part = args.rows // args.parts
    begin = 0.0
    for step in range(args.steps + 1):
        if step == 1:
            begin = time.monotonic()
        for _ in range(args.parts):
            ids = torch.randint(sizes["n_vocab"], (part, args.ctx + 1))
            with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
                logits = loss_of(ids[:, :-1])
            loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
            (loss / args.parts).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    seconds = time.monotonic() - begin
    return {"tokens_per_second": args.steps * args.rows * args.ctx / seconds,
            "parameters": sum(p.numel() for p in model.parameters()), "torch": torch.__version__}


def main():
    parser = argparse.ArgumentParser(prog="torch_train")
    parser.add_argument("sizes")
    for name in ("rows", "ctx", "parts", "steps", "threads"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa")
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    with open(args.sizes, encoding="utf-8") as file:
        print(json.dumps(train(args, json.load(file))))


if __name__ == "__main__":
    main()
