#!/usr/bin/env python3
"""same_bits: many mixed requests at a time give the same tokens as each alone.

Usage: same_bits.py ZEROPE [--model FILE] [--requests 64] [--longest 8192] [--rounds 1] [--seed N]
                    [--kv-tokens N] [--json]
FILE has a plan for mode half (half_file.py); without one a small model is made. Prompts have 1 to
LONGEST tokens, all APIs and position modes, draws, penalties and schemas come up; some clients
leave a stream somewhere, some leave before an answer. Then each request is asked for alone, of a
server that reuses nothing. Tokens are compared by their bytes
and by the log-probabilities of themselves and the likeliest others, in 9 digits: the bits of a
float. Exit code 1 if any differs.
"""
import argparse
import collections
import http.client
import json
import pathlib
import random
import sys
import tempfile
import threading

import half_file
import running

MODES = ("full", "zero", "half", "auto")
SCHEMA = {"type": "json_schema", "json_schema": {"name": "s", "schema": {
    "type": "object", "required": ["a", "b"], "properties": {
        "a": {"enum": ["red", "green", "blue"]}, "b": {"type": "integer", "maximum": 99}}}}}
CHAT, TEXT, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"

Request = collections.namedtuple("Request", "path body fate patience")


# ---- what is asked ---------------------------------------------------------------------------

def drawing(rng):
    body = {"max_tokens": rng.randint(1, 40), "seed": rng.randrange(1 << 32),
            "temperature": rng.choice((0, 0.7, 1, 1.5)), "position_mode": rng.choice(MODES),
            "ignore_eos": rng.random() < 0.7, "cache_prompt": rng.random() < 0.7}
    for field, value in (("top_p", 0.9), ("top_k", 40), ("min_p", 0.02),
                         ("repetition_penalty", 1.1), ("context_length_hint", 1 << 14)):
        if rng.random() < 0.3:
            body[field] = value
    return body


def prompt_of(rng, ids, longest):
    """Of any order of length; every third one begins like others."""
    n = round(longest ** rng.random())
    begin = 0 if rng.random() < 0.33 else rng.randrange(max(1, len(ids) - n))
    return ids[begin:begin + n]


def request(rng, server, ids, longest):
    prompt, body, path = prompt_of(rng, ids, longest), drawing(rng), rng.choice(
        (TEXT, TEXT, CHAT, MESSAGES))
    body["stream"] = rng.random() < 0.7
    if path == TEXT:
        body.update(prompt=prompt, logprobs=3, n=rng.choice((1, 1, 1, 2)))
    else:  # as a text; a template comes around it
        text = server.post("/detokenize", {"tokens": prompt})["content"].replace("\ufffd", "?")
        body["messages"] = [{"role": "user", "content": text or "?"}]
    if path == CHAT:
        body.update(logprobs=True, top_logprobs=3, n=rng.choice((1, 1, 3)))
        if rng.random() < 0.2:
            body.update(response_format=SCHEMA, ignore_eos=False, max_tokens=60)
    fate = "leaves" if rng.random() < 0.12 else \
        "cut" if body["stream"] and rng.random() < 0.35 else "whole"
    patience = rng.random() * 0.5 if fate == "leaves" else rng.randint(1, 30)
    return Request(path, body, fate, patience)


# ---- what comes back -------------------------------------------------------------------------

def take(path, document, found):
    """Steps of each choice, from an answer or an event: what is compared."""
    if path == MESSAGES:
        text = "".join(b["text"] for b in document.get("content", ()) if b["type"] == "text") + \
            document.get("delta", {}).get("text", "")
        found[0] += text
        return
    for choice in document["choices"]:
        probs = choice.get("logprobs")
        if not probs:
            continue
        if path == TEXT:
            steps = zip(probs["tokens"], probs["token_logprobs"],
                        (sorted(t.items()) for t in probs["top_logprobs"]))
        else:
            steps = ((t["bytes"], t["logprob"], [(o["bytes"], o["logprob"])
                                                 for o in t["top_logprobs"]])
                     for t in probs["content"])
        found[choice["index"]] += steps


def ask(server, asked):
    """{choice: steps}, and whether the answer came to its end."""
    found, n = collections.defaultdict(list), 0
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=3600)
    try:
        connection.request("POST", asked.path, json.dumps(asked.body))
        if asked.fate == "leaves":
            connection.sock.settimeout(asked.patience)
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {answer.read()[:500]}")
        if not asked.body["stream"]:
            take(asked.path, json.loads(answer.read()), found)
            return found, True
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(str(event))
            take(asked.path, event, found)
            n += 1
            if asked.fate == "cut" and n > asked.patience:
                return found, False
        return found, True
    except TimeoutError:
        if asked.fate != "leaves":
            raise
        return found, False
    finally:
        connection.close()


def all_at_once(server, asked):
    answers, errors = [None] * len(asked), []
    begin = threading.Barrier(len(asked))

    def one(i):
        try:
            begin.wait()
            answers[i] = ask(server, asked[i])
        except (RuntimeError, OSError, http.client.HTTPException) as error:
            errors.append(f"request {i}: {error}")
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(asked))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return answers, errors


def check_books(server):
    """Every request that was accepted has ended as one of three, and nothing is held."""
    def counts():
        m = server.metrics()
        ended = [sum(v for k, v in m.items() if k.startswith("zerope_requests_total{") and
                     f'outcome="{o}"' in k) for o in ("completed", "cancelled", "failed")]
        accepted = sum(v for k, v in m.items() if k.startswith("zerope_requests_accepted_total{"))
        used = sum(v for k, v in m.items() if k.startswith("zerope_kv_pages{") and
                   'state="used"' in k)
        return accepted == sum(ended) and used == 0 and [accepted, *ended]
    accepted, completed, cancelled, failed = server.wait_until(counts, "balance of the books")
    return {"accepted": accepted, "completed": completed, "cancelled": cancelled, "failed": failed,
            "sequences_a_step": server.counted("zerope_step_sequences_sum") /
            server.counted("zerope_step_sequences_count")}


def compare(i, asked, together, alone):
    """What differs, in words; the tokens compared."""
    wrong, n = [], 0
    (got, whole), (want, _) = together, alone
    for choice in set(want) | set(got):
        a, b = got[choice], want[choice]
        n += len(a)
        if a != b[:len(a)] or (whole and len(a) != len(b)):
            at = next((k for k, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            wrong.append(f"request {i} {asked.path} mode {asked.body['position_mode']} choice "
                         f"{choice}: differs at step {at} of {len(a)} and {len(b)}")
    return wrong, n


def one_round(args, model, rng):
    context = ("-c", args.longest + 512, "--allow-unverified-mode", "--no-pack-cache")
    pool = ("--kv-tokens", args.kv_tokens) if args.kv_tokens else ()
    template = running.TEMPLATE
    with running.Server(args.zerope, model, *context, *pool, "-np", args.requests,
                        template=template) as server:
        prose = (running.ROOT / "tests/data/prose.txt").read_text(encoding="utf-8")
        ids = server.post("/tokenize", {"content": prose})["tokens"]
        ids *= -(-2 * args.longest // len(ids))
        asked = [request(rng, server, ids, args.longest) for _ in range(args.requests)]
        together, wrong = all_at_once(server, asked)
        books = check_books(server)
        assert server.stop() == 0
    n_compared = 0
    with running.Server(args.zerope, model, *context, "-np", 3, template=template) as server:
        for i, r in enumerate(asked):
            if together[i] is None:
                continue
            alone = ask(server, r._replace(fate="whole", body={**r.body, "cache_prompt": False}))
            differs, n = compare(i, r, together[i], alone)
            wrong += differs
            n_compared += n
    fates = collections.Counter("ended" if t and t[1] else "left" for t in together)
    modes = collections.Counter(r.body["position_mode"] for r in asked)
    if books["failed"]:
        wrong.append(f"{books['failed']:.0f} requests failed")
    return {**books, "compared": n_compared, "modes": modes, **fates, "wrong": wrong}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("zerope")
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--longest", type=int, default=8192)
    parser.add_argument("--kv-tokens", type=int)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        model = args.model or half_file.half_file(
            args.zerope, running.ROOT / "tests/data/arch/gguf/zerope-partial.gguf",
            pathlib.Path(folder) / "half.gguf", args.longest // 2)
        rounds = [one_round(args, model, rng) for _ in range(args.rounds)]
    wrong = [w for r in rounds for w in r["wrong"]]
    if args.json:
        print(json.dumps({"seed": args.seed, "requests": args.requests, "longest": args.longest,
                          "rounds": rounds}))
    else:
        for r in rounds:
            print(json.dumps(r))
        print(f"seed {args.seed}: {sum(r['compared'] for r in rounds)} tokens compared, "
              f"{len(wrong)} differences")
    return 1 if wrong or not all(r["compared"] for r in rounds) else 0


if __name__ == "__main__":
    sys.exit(main())
