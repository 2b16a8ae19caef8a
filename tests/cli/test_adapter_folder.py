#!/usr/bin/env python3
"""test_adapter_folder.py: a folder of adapters means to PEFT what the merged model holds.

Usage: test_adapter_folder.py BINARY

Read as PEFT reads it, with nothing of ours: in the order of rows of the Hugging Face model, a
module's weight of the trained and exported model is that of the base + lora_alpha / r * B A, and
no other weight has changed.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")
MODULES = {"q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
           "o": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj",
           "down": "mlp.down_proj"}


def numbers(dtype, data):
    if dtype == "F32":
        return list(struct.unpack("<%df" % (len(data) // 4), data))
    assert dtype == "BF16", dtype
    halves = struct.unpack("<%dH" % (len(data) // 2), data)
    return list(struct.unpack("<%df" % len(halves),
                              struct.pack("<%dI" % len(halves), *(h << 16 for h in halves))))


def tensors(path):
    """name: (shape, flat numbers)"""
    with open(path, "rb") as stream:
        size = struct.unpack("<Q", stream.read(8))[0]
        header = json.loads(stream.read(size))
        data = stream.read()
    header.pop("__metadata__", None)
    return {name: (entry["shape"], numbers(entry["dtype"], data[slice(*entry["data_offsets"])]))
            for name, entry in header.items()}


def product(b, a, rank):
    rows, columns = b[0][0], a[0][1]
    return [sum(b[1][i * rank + r] * a[1][r * columns + j] for r in range(rank))
            for i in range(rows) for j in range(columns)]


def check(before, after, adapters, config, targets):
    scale, rank = config["lora_alpha"] / config["r"], config["r"]
    moved = 0
    for name, (shape, values) in before.items():
        want = values
        module = name[:-len(".weight")]
        parts = ["base_model.model.%s.lora_%s.weight" % (module, half) for half in "AB"]
        if parts[0] in adapters:
            a, b = (adapters.pop(part) for part in parts)
            assert a[0] == [rank, shape[1]] and b[0] == [shape[0], rank], name
            want = [x + scale * y for x, y in zip(values, product(b, a, rank))]
            moved += max(abs(x - y) for x, y in zip(want, values)) > 1e-4
        off = max(abs(x - y) for x, y in zip(want, after[name][1]))
        assert after[name][0] == shape and off < 1e-6, "%s is off by %g" % (name, off)
    assert not adapters, "of no module: %s" % sorted(adapters)
    layers = 1 + max(int(n.split(".")[2]) for n in before if n.startswith("model.layers."))
    assert moved == layers * len(targets), (moved, layers)


def run_case(zerope, model, targets):
    base = os.path.join(DATA, "arch", model)
    with open(os.path.join(DATA, "prose.txt"), encoding="utf-8") as stream:
        lines = stream.readlines()
    os.mkdir("texts")
    for i in range(4):
        with open("texts/%d.txt" % i, "w", encoding="utf-8") as stream:
            stream.writelines(lines[20 * i:20 * i + 20])

    def call(*words):
        subprocess.run([zerope, *words, "-q"], check=True, stdout=subprocess.DEVNULL)

    call("corpus", "-f", "texts", "--tokenizer", base, "--held", "0.3", "-o", "c.tokens")
    call("train", base, "--corpus", "c.tokens", "--tokens", "256", "-c", "32", "--batch-rows", "4",
         "--learning-rate", "0.02", "--lora-rank", "2", "--lora-alpha", "5", "--lora-targets",
         ",".join(targets), "--adapter-out", "peft", "-o", "out.gguf")
    call("export", "out.gguf", "--to", "hf", "-o", "hf")
    with open("peft/adapter_config.json", encoding="utf-8") as stream:
        config = json.load(stream)
    assert config["peft_type"] == "LORA" and config["r"] == 2 and config["lora_alpha"] == 5
    assert config["target_modules"] == [MODULES[t].split(".")[1] for t in targets], config
    assert config["base_model_name_or_path"] == base
    check(tensors(os.path.join(base, "model.safetensors")), tensors("hf/model.safetensors"),
          tensors("peft/adapter_model.safetensors"), config, targets)
    print("%s: %s" % (model, ",".join(targets)))


def main():
    zerope = os.path.abspath(sys.argv[1])
    for model, targets in (("llama", ["q", "k", "v", "o", "gate", "up", "down"]),
                           ("qwen2", ["q", "v"])):
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            run_case(zerope, model, targets)
            os.chdir("/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
