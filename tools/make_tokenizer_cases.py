#!/usr/bin/env python3
"""Reference data of the tokenizers, from engines that share no code with ours.

  make_tokenizer_cases.py pre PEER MODEL OUT
      ids for each pre-tokeniser name by llama.cpp: PEER is tools/peer_tokenize.c, MODEL a
      byte-level GGUF (the committed file used SmolLM2-135M-Instruct)
  make_tokenizer_cases.py json OUT
      small tokenizer.json files, trained here (ties may fall otherwise in each run) by the PyPI
      package `tokenizers` (0.23.3), and its ids and texts

The committed files are tests/data/tokenize_pre.json and tests/data/tokenizer_json.json."""

import json
import struct
import subprocess
import sys

TEXTS = [
    "Hello, world! It's 2024; don't YOU'LL we've they're I'm he'd",
    "x1y2 1234567890 12,345.67 1st 3.14 ٣٤٥ ½²",
    "camelCase HTTPServer snake_case ALLCAPS aB Éa",
    "  two   spaces\tand\ttabs \n\n\n  lines\r\n end  ",
    "func(a, b) { return a/b; } // x != y && z <= w\n\t/* c */",
    "https://example.com/a?b=c&d=%20#e user@host.org C:\\dir\\f.txt",
    "中文文本。日本語のテキスト、カタカナー 한국어 텍스트",
    "Привет мир! Ελληνικά עברית العربية हिन्दी ไทย",
    "e\u0301a\u0308 naïve Straße İstanbul ǅ ﬁ Ａｂｃ",
    "🙂👍🏽 👨‍👩‍👧 🇩🇪 \u200b\u00a0\u3000\u2028x",
    "$5.00 50% +1 <b>bold</b> a`b` ^~| [x](y) \"q\" 'q' ''t",
    "........ ----==== !!!??? ((()))",
    "foo bar<s>hi</s> <tool>run</tool>  <s> x",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa AAAAAAAAAAAAAAA",
    " ",
    "  ",
    "\n",
    "a",
    "é",
    "'s",
    " 's",
    "1",
    "12",
    "\t\n",
    ".\n\n",
]
PRES = (
    "gpt-2 smollm llama-bpe smaug-bpe minicpm5 qwen2 qwen35 laguna ufakzeka seed-coder bailingmoe "
    "tekken gpt-4o falcon default deepseek-coder deepseek-llm deepseek-v3 poro-chat viking"
)


def make_pre(peer, model, out):
    stdin = b"".join(struct.pack("<I", len(t.encode())) + t.encode() for t in TEXTS)
    ids = {}
    for pre in PRES.split():
        run = subprocess.run(
            [peer, model, pre, "0"], input=stdin, stdout=subprocess.PIPE, check=True
        )
        ids[pre] = [[int(i) for i in line.split()] for line in run.stdout.decode().split("\n")[:-1]]
        assert len(ids[pre]) == len(TEXTS), pre
    json.dump(
        {
            "source": "llama.cpp of llama-cpp-python 0.3.36, llama_tokenize without special "
            "tokens, SmolLM2-135M-Instruct's vocabulary with tokenizer.ggml.pre overridden",
            "texts": TEXTS,
            "ids": ids,
        },
        open(out, "w"),
        ensure_ascii=False,
        separators=(",", ":"),
    )


LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def tokenizers_of():
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        trainers,
    )

    corpus = [t.replace("<s>", "").replace("</s>", "") for t in TEXTS]
    corpus += open("tests/data/prose.txt", encoding="utf8").read()[:20000].split("\n")
    level = lambda regex: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)
    sequence, split = pre_tokenizers.Sequence, pre_tokenizers.Split

    def add(t):
        t.add_special_tokens(
            [AddedToken(s, normalized=False, special=True) for s in ("<s>", "</s>")]
        )
        t.add_tokens(
            [
                AddedToken("<tool>", normalized=False, special=False),
                AddedToken("foo bar", normalized=True, special=False),
            ]
        )
        return t

    def byte_level(pre, normalizer=None, **options):
        t = Tokenizer(models.BPE(**options))
        t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
        if normalizer is not None:
            t.normalizer = normalizer
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        t.train_from_iterator(
            corpus,
            trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False),
        )
        return add(t)

    def characters(normalizer, pre, decoder):
        t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
        t.decoder = decoder
        if normalizer is not None:
            t.normalizer = normalizer
        if pre is not None:
            t.pre_tokenizer = pre
        specials = ["<unk>"] + ["<0x%02X>" % b for b in range(256)]
        t.train_from_iterator(
            corpus,
            trainers.BpeTrainer(
                vocab_size=420, limit_alphabet=80, special_tokens=specials, show_progress=False
            ),
        )
        plain = json.loads(t.to_str())
        plain["added_tokens"] = [
            a for a in plain["added_tokens"] if not a["content"].startswith("<0x")
        ]
        return add(Tokenizer.from_str(json.dumps(plain)))

    def unigram(normalizer, pre, decoder):
        t = Tokenizer(models.Unigram())
        t.normalizer, t.pre_tokenizer, t.decoder = normalizer, pre, decoder
        t.train_from_iterator(
            corpus,
            trainers.UnigramTrainer(
                vocab_size=250, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
            ),
        )
        return add(t)

    spaces = decoders.Replace("▁", " ")
    stripped = decoders.Sequence(
        [spaces, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    whole = decoders.Sequence([spaces, decoders.ByteFallback(), decoders.Fuse()])
    replace = normalizers.Replace
    yield "digits", byte_level(
        sequence([pre_tokenizers.Digits(individual_digits=True), level(True)])
    )
    yield "llama3", byte_level(
        sequence([split(Regex(LLAMA3), "isolated"), level(False)]), ignore_merges=True
    )
    yield "o200k-nfc", byte_level(
        sequence([split(Regex(O200K), "removed", invert=True), level(False)]), normalizers.NFC()
    )
    yield "prefix", byte_level(
        pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True),
        normalizers.Sequence(
            [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]
        ),
    )
    for behavior in ("merged_with_previous", "merged_with_next", "contiguous"):
        yield behavior, byte_level(sequence([split(Regex(r"[\s.\d]"), behavior), level(False)]))
    yield "llama2", characters(
        normalizers.Sequence([normalizers.Prepend("▁"), replace(" ", "▁")]), None, stripped
    )
    yield "gemma", characters(replace(" ", "▁"), split(" ", "merged_with_previous"), whole)
    yield "mistral", characters(
        None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), stripped
    )
    yield "t5", unigram(
        normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), replace(Regex(" {2,}"), " ")]),
        sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
        decoders.Metaspace(),
    )


def make_json(out):
    cases = []
    for name, t in tokenizers_of():
        case = {"name": name, "tokenizer": json.loads(t.to_str())}
        for key, plain in (("plain", True), ("special", False)):
            t.encode_special_tokens = plain
            case[key] = [t.encode(text, add_special_tokens=False).ids for text in TEXTS]
        # added tokens with normalised text decode to that text there, to their own here: left out
        case["decoded"] = [
            None if "foo bar" in text else t.decode(ids, skip_special_tokens=True)
            for text, ids in zip(TEXTS, case["special"])
        ]
        cases.append(case)
    json.dump(
        {
            "source": "PyPI tokenizers 0.23.3; files trained by tools/make_tokenizer_cases.py",
            "texts": TEXTS,
            "cases": cases,
        },
        open(out, "w"),
        ensure_ascii=False,
        separators=(",", ":"),
    )


if __name__ == "__main__":
    if len(sys.argv) == 5 and sys.argv[1] == "pre":
        make_pre(*sys.argv[2:])
    elif len(sys.argv) == 3 and sys.argv[1] == "json":
        make_json(sys.argv[2])
    else:
        sys.exit(__doc__)
