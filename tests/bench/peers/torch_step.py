#!/usr/bin/python3
"""Training steps of our presets in plain PyTorch: forward, backward, AdamW; float32, or autocast to bfloat16. One JSON line.

    torch_step.py --preset vit-base --batch 4 --precision bf16

PyTorch's own settings come from the environment (compare.py sets them): MALLOC_MMAP_THRESHOLD_=8G MALLOC_TRIM_THRESHOLD_=16G
OMP_NUM_THREADS=2 OMP_PROC_BIND=true, OPENBLAS_CORETYPE unset, LD_LIBRARY_PATH with OpenBLAS's OpenMP build."""
import argparse
import contextlib
import json

import torch

import torch_models


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="vit-base", choices=torch_models.PRESETS)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=0, help="tokens of a text; 0: the model's context")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = torch_models.build(options.preset, options.length)  # as ours, positions of the texts alone
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
    if isinstance(model, torch_models.Vit):
        length = model.image
        batch = torch.randn(options.batch, 3, model.image, model.image), torch.randint(torch_models.CLASSES, (options.batch,))
        units = options.batch
    else:
        length = model.context
        ids = torch.randint(model.vocabulary, (options.batch, length + 1))
        batch = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        units = options.batch * length

    def step():
        optimizer.zero_grad(set_to_none=True)
        narrow = options.precision == "bf16"
        with torch.autocast("cpu", dtype=torch.bfloat16) if narrow else contextlib.nullcontext():
            loss = model.loss(*batch)
        loss.backward()
        optimizer.step()

    median, least = torch_models.median_of(step, options.warm_up, options.steps)
    print(json.dumps({"program": "PyTorch " + torch.__version__, "preset": options.preset, "batch": options.batch, "length": length,
                      "precision": options.precision, "threads": torch.get_num_threads(), "milliseconds": 1e3 * median,
                      "milliseconds_min": 1e3 * least, "units_per_second": units / median,
                      "parameters": torch_models.parameters(model), "resident_mib": torch_models.resident_mib()}))


if __name__ == "__main__":
    main()
