#!/usr/bin/env python3
"""test_document_numbers: figures in the documents are those of the records in docs/evidence."""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def record(name):
    return json.loads((ROOT / f"docs/evidence/{name}.json").read_text(encoding="utf-8"))


def expected():
    """(document, text that must stand in it)"""
    short, long = record("foundation-share")["rows"]
    share = 100 * short["closed"] / short["total"]
    rows = [(page, text) for page in ("README.md", "docs/EVAPORATION.md") for text in (
        f"{short['closed']} of {short['total']}", f"{short['kl_mean']:.4f}",
        f"{short['kl_hi']:.4f}", f"{100 * short['top1_agree']:.1f} %",
        f"{short['ppl_before']:.2f}", f"{short['ppl_after']:.2f}")]
    rows += [("README.md", f"({share:.1f} %)"),
             ("README.md", f"{100 * long['closed'] / long['total']:.1f} % close\nat 1024")]
    ratio = record("foundation-speed")["ratio"]
    rows += [("docs/SPEED.md", f"| {ratio[kind]:.1f}x |") for kind in ("prefill", "decode")]
    rows += [("docs/EVAPORATION.md", f"| {r['run']} | {r['counted']['total'] / 1e6:.0f} MB |")
             for r in record("training-memory")["rows"]]
    return rows


def main():
    wrong = [f"{page}: {text!r} is not there" for page, text in expected()
             if text not in (ROOT / page).read_text(encoding="utf-8")]
    print("\n".join(wrong) or f"{len(expected())} figures agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
