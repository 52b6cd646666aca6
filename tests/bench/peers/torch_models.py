"""The models of our presets in plain PyTorch, with as many parameters, for torch_step.py and torch_forward.py. Weights are random: speed does
not depend on them. Queries, keys and values are one product and nothing is written that PyTorch 1.13 would not run as fast as it can."""
import math
import resource
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

PRESETS = {
    # image, patch, width, blocks, heads
    "vit-base": dict(kind="vit", image=224, patch=16, width=768, blocks=12, heads=12),
    "vit-small": dict(kind="vit", image=224, patch=16, width=384, blocks=12, heads=6),
    "vit-tiny": dict(kind="vit", image=224, patch=16, width=192, blocks=12, heads=3),
    "vit-cifar": dict(kind="vit", image=32, patch=4, width=192, blocks=6, heads=3),
    "gpt2": dict(kind="gpt2", width=768, blocks=12, heads=12, vocabulary=50257, context=1024),
    "gpt2-medium": dict(kind="gpt2", width=1024, blocks=24, heads=16, vocabulary=50257, context=1024),
    "gpt2-mini": dict(kind="gpt2", width=256, blocks=6, heads=4, vocabulary=4096, context=512),
}
CLASSES = 100


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def split(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        return q, k, v

    def mix(self, q, k, v, mask):
        b, h, t, d = q.shape
        scores = torch.matmul(q, k.transpose(-2, -1)) * (1 / math.sqrt(d))
        if mask is not None:
            scores = scores + mask
        mixed = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.out(mixed.transpose(1, 2).reshape(b, t, h * d))

    def forward(self, x, mask=None, cache=None, position=0):
        q, k, v = self.split(x)
        if cache is not None:  # keys, values [b, heads, context, d], of which `position` tokens are filled
            end = position + x.shape[1]
            cache[0][:, :, position:end] = k
            cache[1][:, :, position:end] = v
            k, v = cache[0][:, :, :end], cache[1][:, :, :end]
        return self.mix(q, k, v, mask)


class Block(nn.Module):
    def __init__(self, width, heads, causal, eps):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=eps), nn.LayerNorm(width, eps=eps)
        self.attention = Attention(width, heads, causal)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.approximate = "tanh" if causal else "none"

    def forward(self, x, mask=None, cache=None, position=0):
        x = x + self.attention(self.norm1(x), mask, cache, position)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=self.approximate))


class Vit(nn.Module):
    def __init__(self, image, patch, width, blocks, heads):
        super().__init__()
        self.image, self.width = image, width
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(0.02 * torch.randn(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, 1 + (image // patch) ** 2, width))
        self.blocks = nn.ModuleList(Block(width, heads, False, 1e-12) for _ in range(blocks))
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.head = nn.Linear(width, CLASSES)

    def encode(self, rows):
        for block in self.blocks:
            rows = block(rows)
        return self.norm(rows)

    def forward(self, pixels):
        x = self.patches(pixels).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1) + self.position
        return self.head(self.encode(x)[:, 0])

    def loss(self, pixels, labels):
        return F.cross_entropy(self(pixels).float(), labels)


class Gpt2(nn.Module):
    def __init__(self, width, blocks, heads, vocabulary, context):
        super().__init__()
        self.width, self.context, self.heads, self.vocabulary = width, context, heads, vocabulary
        self.table, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, True, 1e-5) for _ in range(blocks))
        self.norm = nn.LayerNorm(width, eps=1e-5)
        nn.init.normal_(self.table.weight, std=0.02)
        mask = torch.full((context, context), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def encode(self, ids, caches=None, position=0):
        tokens = ids.shape[1]
        x = self.table(ids) + self.position.weight[position:position + tokens]
        mask = self.mask[:tokens, :tokens].to(x.dtype) if tokens > 1 else None
        for i, block in enumerate(self.blocks):
            x = block(x, mask, caches[i] if caches else None, position)
        return self.norm(x)

    def logits(self, encoded):
        return F.linear(encoded, self.table.weight)

    def loss(self, ids, labels):
        return F.cross_entropy(self.logits(self.encode(ids)).float().view(-1, self.vocabulary), labels.view(-1))


def build(preset, context=0):
    """context: tokens that a text model has positions for; 0: the preset's."""
    values = dict(PRESETS[preset])
    kind = values.pop("kind")
    if kind == "gpt2" and context:
        values["context"] = context
    torch.manual_seed(1)
    return Vit(**values) if kind == "vit" else Gpt2(**values)


def parameters(model):
    return sum(p.numel() for p in model.parameters())


def median_of(work, warm_up, repeats):
    """Seconds: the median and the least of `repeats` calls behind `warm_up` of them."""
    for _ in range(warm_up):
        work()
    taken = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken), min(taken)


def resident_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
