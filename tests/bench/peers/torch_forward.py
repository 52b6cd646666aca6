#!/usr/bin/python3
"""Inference of our presets in plain PyTorch: the encoder's blocks at any length, GPT-2's prefill into a cache and its decoding. One JSON line.

    torch_forward.py --preset vit-base --length 1024 --precision bf16
    torch_forward.py --preset gpt2 --length 1024 --output answer
    torch_forward.py --preset gpt2 --length 256 --decode 64

Of a vision transformer --length rows go through all blocks and the last norm; without it images are classified. bf16 is measured as autocast,
with its cast weights kept over all passes, and as a model converted to bfloat16; the faster one counts. See torch_step.py for the environment."""
import argparse
import contextlib
import json

import torch

import torch_models


def encoder(model, options):
    if not options.length:
        pixels = torch.randn(options.batch, 3, model.image, model.image)
        return (lambda: model(pixels)), model.position.shape[1]
    rows = torch.randn(options.batch, options.length, model.width)
    return (lambda: model.encode(rows)), options.length


class Decoder:
    def __init__(self, model, options, dtype):
        self.model, self.options = model, options
        self.length = options.length or model.context - options.decode
        self.ids = torch.randint(model.vocabulary, (options.batch, self.length + options.decode))
        shape = options.batch, model.heads, self.length + options.decode, model.width // model.heads
        self.caches = [(torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)) for _ in model.blocks]

    def prefill(self):
        encoded = self.model.encode(self.ids[:, :self.length], self.caches, 0)
        self.model.logits(encoded if self.options.output == "all" else encoded[:, -1:])

    def decode(self):
        for position in range(self.length, self.length + self.options.decode):
            self.model.logits(self.model.encode(self.ids[:, position:position + 1], self.caches, position))


def measure(model, options, dtype, context):
    decode = None
    if isinstance(model, torch_models.Vit):
        work, tokens = encoder(model, options)
    else:
        decoder = Decoder(model, options, dtype)
        work, tokens = decoder.prefill, decoder.length
        decode = decoder.decode if options.decode else None
    with torch.no_grad(), context:
        median, least = torch_models.median_of(work, options.warm_up, options.repeats)
        result = {"length": tokens, "milliseconds": 1e3 * median, "milliseconds_min": 1e3 * least,
                  "units_per_second": tokens * options.batch / median}
        if decode:
            median, least = torch_models.median_of(decode, options.warm_up, options.repeats)
            result.update(decode_milliseconds=1e3 * median / options.decode, decode_units_per_second=options.decode / median)
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="vit-base", choices=torch_models.PRESETS)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=0)
    parser.add_argument("--decode", type=int, default=0)
    parser.add_argument("--output", default="answer", choices=["answer", "all"])
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = torch_models.build(options.preset).eval()
    result = {"program": "PyTorch " + torch.__version__, "preset": options.preset, "batch": options.batch, "precision": options.precision,
              "threads": torch.get_num_threads(), "parameters": torch_models.parameters(model)}
    if options.precision == "fp32":
        result.update(measure(model, options, torch.float32, contextlib.nullcontext()))
    else:
        cast = measure(model, options, torch.bfloat16, torch.autocast("cpu", dtype=torch.bfloat16))
        torch.set_default_dtype(torch.bfloat16)
        converted = measure(model.to(torch.bfloat16), options, torch.bfloat16, contextlib.nullcontext())
        for key in converted:  # prefill and decoding each by itself
            result[key] = max(cast[key], converted[key]) if "per_second" in key else min(cast[key], converted[key])
    result["resident_mib"] = torch_models.resident_mib()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
