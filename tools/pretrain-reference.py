#!/usr/bin/env python3
"""Pretrains the plain models that ASTRA continues from, in PyTorch, where a GPU is at hand.

    tools/pretrain-reference.py images --data DIR/cifar100/train.bin --like checkpoints/vit-cifar --out OUT [OPTION...]
    tools/pretrain-reference.py texts --data TRAIN.ids --like checkpoints/gpt2-mini --out OUT [OPTION...]

The models are those of the programs, with the same tensor names: OUT/model.safetensors, in float16, is a checkpoint beside the config.json
and the other small files of a model of the same shape, which --like takes along. images: a vision transformer on CIFAR-100 without the
5,000 training images that `--validation-part 5000` holds out. texts: a GPT-2 or a Llama on ids as `astra-data encode --lines` prints them,
the last 5% held out. Muon for the matrices of blocks, AdamW for the rest, a cosine schedule, averaged weights; stored are the weights of
the last step or their average, whichever is better on what is held out. Prints a line of JSON an evaluation; OUT/metrics.csv has the same.
Needs torch (2.4 or later) and numpy. checkpoints/README.md says which commands made which checkpoint.
"""
import argparse, json, math, os, shutil, struct, time
import numpy as np
import torch
import torch.nn.functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


# ---------------------------------------------------------------- checkpoints
def save(path, tensors):
    head, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, t in tensors.items():
        blob = t.detach().to("cpu", torch.float16).contiguous().numpy().tobytes()
        head[name] = {"dtype": "F16", "shape": list(t.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob); at += len(blob)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".part", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for blob in blobs: f.write(blob)
    os.replace(path + ".part", path)


def load(path):
    with open(path, "rb") as f:
        head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        body = f.read()
    head.pop("__metadata__", None)
    return {n: torch.from_numpy(np.frombuffer(body[slice(*h["data_offsets"])], dtype={"F16": np.float16, "F32": np.float32}[h["dtype"]])
                                .astype(np.float32).reshape(h["shape"])).to(DEVICE) for n, h in head.items()}


# ---------------------------------------------------------------- models (P: dict of parameters)
def norm(P, n, x, eps): return F.layer_norm(x, (x.shape[-1],), P[n + ".weight"], P[n + ".bias"], eps)
def rms(P, n, x): return F.rms_norm(x, (x.shape[-1],), P[n + ".weight"], 1e-5)
def linear(P, n, x): return F.linear(x, P[n + ".weight"], P.get(n + ".bias"))
def split(x, heads): return x.unflatten(-1, (heads, -1)).transpose(1, 2)
def join(x): return x.transpose(1, 2).flatten(2)


def drop(x, rate, per_row):
    """Dropout; per_row: whole branches of a sample (stochastic depth)."""
    if rate == 0: return x
    keep = torch.rand((x.shape[0], 1, 1) if per_row else x.shape, device=x.device) >= rate
    return x * keep.to(x.dtype) / (1 - rate)


def vit(P, a, pixels, training):
    p = "vit.embeddings."
    x = F.conv2d(pixels, P[p + "patch_embeddings.projection.weight"], P[p + "patch_embeddings.projection.bias"], stride=4)
    x = x.flatten(2).transpose(1, 2) + P[p + "position_embeddings"][:, 1:]
    x = torch.cat([(P[p + "cls_token"] + P[p + "position_embeddings"][:, :1]).expand(x.shape[0], 1, -1), x], 1)
    for l in range(a.blocks):
        b, rate = f"vit.encoder.layer.{l}.", a.drop_path * (l + 1) / a.blocks if training else 0
        s = b + "attention.attention."
        h = norm(P, b + "layernorm_before", x, 1e-12)
        W = torch.cat([P[s + n + ".weight"] for n in ("query", "key", "value")])
        bias = torch.cat([P[s + n + ".bias"] for n in ("query", "key", "value")])
        q, k, v = (split(t, a.heads) for t in F.linear(h, W, bias).chunk(3, -1))
        x = x + drop(linear(P, b + "attention.output.dense", join(F.scaled_dot_product_attention(q, k, v))), rate, True)
        h = norm(P, b + "layernorm_after", x, 1e-12)
        x = x + drop(linear(P, b + "output.dense", F.gelu(linear(P, b + "intermediate.dense", h))), rate, True)
    return linear(P, "classifier", norm(P, "vit.layernorm", x[:, 0], 1e-12))


def gpt2(P, a, ids, training):
    rate = a.dropout if training else 0
    x = drop(P["transformer.wte.weight"][ids] + P["transformer.wpe.weight"][:ids.shape[1]], rate, False)
    for l in range(a.blocks):
        b = f"transformer.h.{l}."
        mul = lambda n, y: y @ P[b + n + ".weight"] + P[b + n + ".bias"]
        q, k, v = (split(t, a.heads) for t in mul("attn.c_attn", norm(P, b + "ln_1", x, 1e-5)).chunk(3, -1))
        x = x + drop(mul("attn.c_proj", join(F.scaled_dot_product_attention(q, k, v, is_causal=True))), rate, False)
        x = x + drop(mul("mlp.c_proj", F.gelu(mul("mlp.c_fc", norm(P, b + "ln_2", x, 1e-5)), approximate="tanh")), rate, False)
    return norm(P, "transformer.ln_f", x, 1e-5) @ P["transformer.wte.weight"].T


def rotate(x):
    half, T = x.shape[-1] // 2, x.shape[-2]
    angle = torch.outer(torch.arange(T, device=x.device), 10000.0 ** (-torch.arange(half, device=x.device) / half))
    c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    x1, x2 = x[..., :half], x[..., half:]
    return torch.cat([x1 * c - x2 * s, x2 * c + x1 * s], -1)


def llama(P, a, ids, training):
    rate = a.dropout if training else 0
    x = drop(P["model.embed_tokens.weight"][ids], rate, False)
    for l in range(a.blocks):
        b = f"model.layers.{l}."
        h = rms(P, b + "input_layernorm", x)
        q, k, v = (split(linear(P, b + f"self_attn.{n}_proj", h), n_heads) for n, n_heads in (("q", a.heads), ("k", a.kv_heads), ("v", a.kv_heads)))
        k, v = (t.repeat_interleave(a.heads // a.kv_heads, 1) for t in (rotate(k), v))
        y = F.scaled_dot_product_attention(rotate(q), k, v, is_causal=True)
        x = x + drop(linear(P, b + "self_attn.o_proj", join(y)), rate, False)
        h = rms(P, b + "post_attention_layernorm", x)
        x = x + drop(linear(P, b + "mlp.down_proj", F.silu(linear(P, b + "mlp.gate_proj", h)) * linear(P, b + "mlp.up_proj", h)), rate, False)
    return rms(P, "model.norm", x) @ P["model.embed_tokens.weight"].T


def shapes(a):
    D, S = a.width, {}
    def L(n, o, i, bias=True, turned=False):
        S[n + ".weight"] = (i, o) if turned else (o, i)
        if bias: S[n + ".bias"] = (o,)
    def N(n, bias=True):
        S[n + ".weight"] = (D,)
        if bias: S[n + ".bias"] = (D,)
    if a.model == "vit":
        S["vit.embeddings.cls_token"] = (1, 1, D); S["vit.embeddings.position_embeddings"] = (1, 65, D)
        S["vit.embeddings.patch_embeddings.projection.weight"] = (D, 3, 4, 4); S["vit.embeddings.patch_embeddings.projection.bias"] = (D,)
        for l in range(a.blocks):
            b = f"vit.encoder.layer.{l}."
            N(b + "layernorm_before")
            for n in ("query", "key", "value"): L(b + "attention.attention." + n, D, D)
            L(b + "attention.output.dense", D, D); N(b + "layernorm_after"); L(b + "intermediate.dense", 4 * D, D); L(b + "output.dense", D, 4 * D)
        N("vit.layernorm"); L("classifier", 100, D)
    elif a.model == "gpt2":
        S["transformer.wte.weight"] = (4096, D); S["transformer.wpe.weight"] = (512, D)
        for l in range(a.blocks):
            b = f"transformer.h.{l}."
            N(b + "ln_1"); N(b + "ln_2")
            for n, i, o in (("attn.c_attn", D, 3 * D), ("attn.c_proj", D, D), ("mlp.c_fc", D, 4 * D), ("mlp.c_proj", 4 * D, D)): L(b + n, o, i, True, True)
        N("transformer.ln_f")
    else:
        S["model.embed_tokens.weight"] = (4096, D); N("model.norm", False)
        for l in range(a.blocks):
            b = f"model.layers.{l}."
            N(b + "input_layernorm", False); N(b + "post_attention_layernorm", False)
            for n, o, i in (("self_attn.q_proj", D, D), ("self_attn.k_proj", 64 * a.kv_heads, D), ("self_attn.v_proj", 64 * a.kv_heads, D),
                            ("self_attn.o_proj", D, D), ("mlp.gate_proj", a.inner, D), ("mlp.up_proj", a.inner, D), ("mlp.down_proj", D, a.inner)):
                L(b + n, o, i, False)
    return S


def initial(a):
    P = {}
    for n, s in shapes(a).items():
        one = n.endswith(".weight") and len(s) == 1
        P[n] = torch.ones(s) if one else torch.zeros(s) if n.endswith(".bias") else 0.02 * torch.randn(s)
        if n.endswith(("c_proj.weight", "o_proj.weight", "down_proj.weight")): P[n] /= math.sqrt(2 * a.blocks)
    if a.model == "vit": mimetic(P, a)
    return {n: t.to(DEVICE).requires_grad_(True) for n, t in P.items()}


def mimetic(P, a):
    """As `astra-train --init mimetic`: attention layers that look at like tokens and take a little of themselves away, positions of sines."""
    D = a.width
    for l in range(a.blocks):
        s = f"vit.encoder.layer.{l}.attention."
        k, v = torch.randn(D, D) * math.sqrt(0.25 * a.heads / D), torch.randn(D, D) * math.sqrt(0.4 / D)
        P[s + "attention.key.weight"], P[s + "attention.query.weight"] = k.clone(), k.clone()
        P[s + "attention.value.weight"], P[s + "output.dense.weight"] = v.clone(), -v.T.clone()
    P["vit.embeddings.patch_embeddings.projection.weight"] = torch.randn(D, 3, 4, 4) * 0.5 / math.sqrt(48)
    place, wave = torch.arange(64), 100.0 ** (-torch.arange(D // 4) / (D // 4))
    angles = [torch.outer(part.float(), wave) for part in (place % 8, place // 8)]
    P["vit.embeddings.position_embeddings"][0, 1:] = 0.35 * math.sqrt(2) * torch.cat([f(t) for t in angles for f in (torch.sin, torch.cos)], 1)


# ---------------------------------------------------------------- optimizer
def orthogonal(X):
    """Newton-Schulz rounds of Muon, of a stack [N, rows, columns]."""
    X = X.bfloat16()
    X = X / (X.norm(dim=(1, 2), keepdim=True) + 1e-12)
    turned = X.shape[1] > X.shape[2]
    if turned: X = X.mT
    for _ in range(5):
        A = X @ X.mT
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
    return (X.mT if turned else X).float()


class Optimizer:
    def __init__(self, P, a):
        hidden = [n for n, t in P.items() if t.dim() == 2 and (".layer" in n or ".h." in n)]
        rest = [n for n in P if n not in hidden]
        by_shape = {}
        for n in hidden: by_shape.setdefault(tuple(P[n].shape), []).append(P[n])
        self.stacks = [(ts, [torch.zeros_like(t) for t in ts], 0.2 * math.sqrt(max(shape))) for shape, ts in by_shape.items()]
        decayed = [n for n in rest if P[n].dim() >= 2 and "embeddings." not in n]
        self.adamw = torch.optim.AdamW([dict(params=[P[n] for n in decayed], weight_decay=a.weight_decay),
                                        dict(params=[P[n] for n in rest if n not in decayed], weight_decay=0)], lr=a.rate, betas=(0.9, a.beta2), fused=DEVICE == "cuda")
        self.decay = a.weight_decay
        self.direction = torch.compile(orthogonal) if a.compile else orthogonal

    def step(self, rate):
        for group in self.adamw.param_groups: group["lr"] = rate
        self.adamw.step()
        with torch.no_grad():
            for ts, ms, size in self.stacks:
                grads = [t.grad for t in ts]
                torch._foreach_lerp_(ms, grads, 0.05)
                u = torch._foreach_lerp(grads, ms, 0.95)   # Nesterov: 0.95 m + 0.05 g
                steps = self.direction(torch.stack(u))
                torch._foreach_mul_(ts, 1 - rate * self.decay)
                torch._foreach_add_(ts, list(steps.unbind()), alpha=-rate * size)
        self.adamw.zero_grad(set_to_none=True)
        for ts, _, _ in self.stacks:
            for t in ts: t.grad = None


class Average:
    def __init__(self, P, decay):
        self.names, self.live, self.decay, self.steps = list(P), list(P.values()), decay, 0
        self.mean = [t.detach().clone() for t in self.live]

    def update(self):
        self.steps += 1
        torch._foreach_lerp_(self.mean, [t.detach() for t in self.live], 1 - min(self.decay, self.steps / (self.steps + 10)))
    def params(self): return dict(zip(self.names, self.mean))


def schedule(a, step, steps):
    if step < a.warmup: return a.rate * (step + 1) / a.warmup
    return a.rate * (a.floor + (1 - a.floor) * 0.5 * (1 + math.cos(math.pi * (step - a.warmup) / (steps - a.warmup))))


def need(a, count, what, options):
    """Ends the run where the data makes not one of them."""
    if count < 1: raise SystemExit(f"pretrain-reference.py: error: {a.data}: too little data for {what}; give more of it, or a smaller {options}")


# ---------------------------------------------------------------- images
MEAN, STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)


def held_out(labels, wanted):
    """The images that `--validation-part` holds out: of each class those with the smallest splitmix64 of their index."""
    i = np.arange(1, len(labels) + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        z = i * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    held = np.zeros(len(labels), bool)
    for c in range(100):
        of_class = np.flatnonzero(labels == c)
        held[of_class[np.argsort(z[of_class])][:wanted // 100]] = True
    return held


def sign(n): return torch.randint(0, 2, (n, 1, 1, 1), device=DEVICE) * 2.0 - 1


def grey(x): return (x * torch.tensor([0.299, 0.587, 0.114], device=x.device)[:, None, None]).sum(1, keepdim=True)
def blend(x, other, factor): return (other + (x - other) * factor).clamp(0, 1)


def sharpened(x, factor):
    kernel = torch.tensor([[1., 1, 1], [1, 5, 1], [1, 1, 1]], device=x.device)[None, None].expand(3, 1, 3, 3) / 13
    smooth = x.clone(); smooth[:, :, 1:-1, 1:-1] = F.conv2d(x, kernel, groups=3)
    return blend(x, smooth, factor)


def equalised(x):
    level = (x * 255).long().flatten(2)
    counts = torch.zeros(*level.shape[:2], 256, device=x.device).scatter_add_(2, level, torch.ones_like(level, dtype=torch.float))
    below = counts.cumsum(2)
    first = below.gather(2, level.amin(2, keepdim=True))
    table = ((below - first) / (level.shape[2] - first).clamp_min(1)).clamp(0, 1)
    return table.gather(2, level).view_as(x)


def contrasted(x):
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high > low, (x - low) / (high - low).clamp_min(1e-6), x)


def augment(x, a):
    """TrivialAugment (one operation of random strength an image), crops of the padded image, mirrors. x [B, 3, 32, 32] from 0 to 1."""
    B = x.shape[0]
    order, x = torch.randperm(B, device=DEVICE), x.clone()
    M = torch.zeros(B, 2, 3, device=DEVICE); M[:, 0, 0] = M[:, 1, 1] = 1
    if a.augment:
        for op, part in enumerate(order.chunk(14)):
            n, strength = len(part), torch.rand(len(part), 1, 1, 1, device=DEVICE)
            signed = strength * sign(n)
            flat = signed.view(-1)
            if op == 1: M[part, 0, 1] = 0.99 * flat
            if op == 2: M[part, 1, 0] = 0.99 * flat
            if op == 3: M[part, 0, 2] = a.translate / 16 * flat
            if op == 4: M[part, 1, 2] = a.translate / 16 * flat
            if op == 5:
                angle = flat * math.radians(135)
                M[part, 0, 0] = M[part, 1, 1] = angle.cos(); M[part, 0, 1] = -angle.sin(); M[part, 1, 0] = angle.sin()
            if op < 6: continue
            y = x[part]
            if op == 6: y = (y * (1 + 0.99 * signed)).clamp(0, 1)
            if op == 7: y = blend(y, grey(y), 1 + 0.99 * signed)
            if op == 8: y = blend(y, grey(y).mean((2, 3), keepdim=True), 1 + 0.99 * signed)
            if op == 9: y = sharpened(y, 1 + 0.99 * signed)
            if op == 10:
                step = 2.0 ** (strength * 7).floor()   # of 8 to 2 bits
                y = (y * 255 / step).floor() * step / 255
            if op == 11: y = torch.where(y >= 1 - strength, 1 - y, y)
            if op == 12: y = contrasted(y)
            if op == 13: y = equalised(y)
            x[part] = y
    M[:, 0] *= sign(B).view(-1, 1)
    M[:, :, 2] += torch.randint(-4, 5, (B, 2), device=DEVICE) / 16.0
    return F.grid_sample(x, F.affine_grid(M, x.shape, align_corners=False), mode="bilinear", padding_mode="zeros", align_corners=False)


def mixed(x, a):
    """A share --cutmix of the images get a patch of another one, a share --mixup of the rest are blended with it; and what is left of each image's own label."""
    B = x.shape[0]
    other = x.roll(1, 0)
    cut = torch.rand(B, device=DEVICE) < a.cutmix
    blur = ~cut & (torch.rand(B, device=DEVICE) < a.mixup)
    lam = torch.rand(B, device=DEVICE)
    if a.mixup_alpha != 1:
        beta = torch.distributions.Beta(torch.tensor(a.mixup_alpha, device=DEVICE), torch.tensor(a.mixup_alpha, device=DEVICE)).sample((B,))
        lam = torch.where(blur, beta, lam)
    side = (1 - lam).sqrt() * 32
    at = torch.rand(2, B, device=DEVICE) * 32
    low, high = (at - side / 2).clamp(0, 32).round(), (at + side / 2).clamp(0, 32).round()
    line = torch.arange(32, device=DEVICE)
    inside = [(line >= low[i][:, None]) & (line < high[i][:, None]) for i in range(2)]
    box = (inside[0][:, :, None] & inside[1][:, None, :])[:, None]
    x = torch.where(cut[:, None, None, None] & box, other, x)
    share = torch.where(blur, lam, torch.ones_like(lam))
    x = x * share[:, None, None, None] + other * (1 - share[:, None, None, None])
    return x, torch.where(cut, 1 - box.float().mean((1, 2, 3)), share)


def images(a):
    raw = np.fromfile(a.data, dtype=np.uint8).reshape(-1, 3074)
    labels, pixels = torch.from_numpy(raw[:, 1].astype(np.int64)), torch.from_numpy(raw[:, 2:].reshape(-1, 3, 32, 32).copy())
    held = torch.from_numpy(held_out(raw[:, 1], 5000))
    mean, std = (torch.tensor(t, device=DEVICE)[:, None, None] for t in (MEAN, STD))
    X, Y, XV, YV = (t.to(DEVICE) for t in (pixels[~held], labels[~held], pixels[held], labels[held]))
    XV = (XV.float() / 255 - mean) / std
    batches = min(len(X) // a.batch, a.batches or 1 << 30)
    need(a, batches, f"a batch of {a.batch} images besides the 5000 that are held out", "--batch")
    P = initial(a)
    opt, ema = Optimizer(P, a), Average(P, a.average)

    def loss_of(P, x, y, other, share):
        with torch.autocast(DEVICE, torch.bfloat16): logits = vit(P, a, x, True)
        logp = logits.float().log_softmax(-1)
        pick = lambda labels: -logp.gather(1, labels[:, None])[:, 0]
        task = share * pick(y) + (1 - share) * pick(other)
        return ((1 - a.smoothing) * task - a.smoothing * logp.mean(-1)).mean()

    run, look = (torch.compile(f) if a.compile else f for f in (loss_of, lambda P, x: vit(P, a, x, False)))

    def accuracy(P):
        with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
            return sum((look(P, XV[i:i + 1000]).argmax(-1) == YV[i:i + 1000]).sum().item() for i in range(0, 5000, 1000)) / 50

    steps, step, start, total = a.epochs * batches, 0, time.time(), torch.zeros((), device=DEVICE)
    for epoch in range(a.epochs):
        order = torch.randperm(len(X), device=DEVICE)[:batches * a.batch]
        for big in order.split(a.batch * 22):
            x = (augment(X[big].float() / 255, a) - mean) / std
            for i in range(0, len(big), a.batch):
                y = Y[big[i:i + a.batch]]
                xb, share = mixed(x[i:i + a.batch], a)
                loss = run(P, xb, y, y.roll(1, 0), share)
                loss.backward()
                opt.step(schedule(a, step, steps)); ema.update(); step += 1
                total += loss.detach()
        if (epoch + 1) % a.every == 0 or epoch + 1 == a.epochs:
            report(a, epoch=epoch + 1, step=step, rate=schedule(a, step - 1, steps), loss=total.item() / batches / (epoch % a.every + 1),
                   top1=accuracy(P), top1_averaged=accuracy(ema.params()), seconds=time.time() - start)
            total.zero_()
    finish(a, P, ema, accuracy)


# ---------------------------------------------------------------- texts
def texts(a):
    with open(a.data) as f: ids = torch.tensor([int(line) for line in f], device=DEVICE)
    cut = int(len(ids) * 0.95)
    train, valid = ids[:cut], ids[cut:]
    T = a.context
    batches = min(len(train) // T // a.batch - 1, a.batches or 1 << 30)   # each epoch begins at another one of the first T ids
    need(a, batches, f"a batch of {a.batch} times {T} ids and as many to spare", "--batch or --context")
    need(a, (len(valid) - 1) // T, f"{T} ids in the 5% that are held out", "--context")
    nets = dict(gpt2=gpt2, llama=llama)
    P, net, teacher = initial(a), nets[a.model], []
    for folder in a.teacher:
        with open(os.path.join(folder, "model.json")) as f: spec = argparse.Namespace(**json.load(f))
        teacher.append((nets[spec.model], spec, load(os.path.join(folder, "model.safetensors"))))
    opt, ema = Optimizer(P, a), Average(P, a.average)

    def loss_of(P, x, y, soft):
        with torch.autocast(DEVICE, torch.bfloat16): logits = net(P, a, x, True)
        logits = logits.float().flatten(0, 1)
        task = F.cross_entropy(logits, y.flatten())
        if soft is None: return task
        return (1 - a.distill) * task - a.distill * (soft.flatten(0, 1).exp() * logits.log_softmax(-1)).sum(-1).mean()

    def soft_of(x):
        if not teacher: return None
        with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
            logs = torch.stack([f(Q, spec, x, False).float().log_softmax(-1) for f, spec, Q in teacher])
        return logs.logsumexp(0) - math.log(len(teacher))

    run, look, soften = (torch.compile(f) if a.compile else f for f in (loss_of, lambda P, x: net(P, a, x, False), soft_of))

    def nats(P, of):
        n = (len(of) - 1) // T
        x, y = of[:n * T].view(n, T), of[1:n * T + 1].view(n, T)
        with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
            return sum(F.cross_entropy(look(P, x[i:i + 64]).float().flatten(0, 1), y[i:i + 64].flatten(), reduction="sum").item() for i in range(0, n, 64)) / (n * T)

    steps, step, start, total = a.epochs * batches, 0, time.time(), torch.zeros((), device=DEVICE)
    for epoch in range(a.epochs):
        first = torch.randint(T, (1,)).item()
        order = torch.randperm((len(train) - 1 - first) // T, device=DEVICE)[:batches * a.batch] * T + first
        for b in order.split(a.batch):
            at = b[:, None] + torch.arange(T, device=DEVICE)
            x = train[at]
            loss = run(P, x, train[at + 1], soften(x))
            loss.backward()
            opt.step(schedule(a, step, steps)); ema.update(); step += 1
            total += loss.detach()
        if (epoch + 1) % a.every == 0 or epoch + 1 == a.epochs:
            report(a, epoch=epoch + 1, step=step, rate=schedule(a, step - 1, steps), loss=total.item() / batches / (epoch % a.every + 1), nats=nats(P, valid), nats_averaged=nats(ema.params(), valid),
                   seconds=time.time() - start)
            total.zero_()
    finish(a, P, ema, lambda P: -nats(P, valid))


# ---------------------------------------------------------------- both
def report(a, **line):
    line = {k: round(v, 6) if isinstance(v, float) else v for k, v in line.items()}
    print(json.dumps(line), flush=True)
    path = os.path.join(a.out, "metrics.csv")
    first = line["epoch"] <= a.every
    with open(path, "w" if first else "a") as f:
        if first: f.write(",".join(line) + "\n")
        f.write(",".join(map(str, line.values())) + "\n")


def finish(a, P, ema, score):
    P = {n: t.detach() for n, t in P.items()}
    best = max(({n: t.half().float() for n, t in Q.items()} for Q in (P, ema.params())), key=score)
    save(os.path.join(a.out, "model.safetensors"), best)
    with open(os.path.join(a.out, "model.json"), "w") as f: json.dump(vars(a), f, indent=1)
    for name in os.listdir(a.like) if a.like else []:
        if name.endswith((".json", ".txt")): shutil.copy(os.path.join(a.like, name), a.out)
    print(json.dumps(dict(stored=score(best), parameters=sum(t.numel() for t in best.values()))))


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", choices=["images", "texts"])
    ap.add_argument("--data", required=True); ap.add_argument("--out", required=True)
    ap.add_argument("--model", default=None, choices=["vit", "gpt2", "llama"])
    for name, kind, value in (("--width", int, 0), ("--blocks", int, 0), ("--heads", int, 0), ("--kv-heads", int, 2), ("--inner", int, 1024), ("--context", int, 512), ("--epochs", int, 1),
                              ("--batches", int, 0), ("--batch", int, 0), ("--rate", float, 2e-3), ("--floor", float, 0), ("--warmup", int, 500), ("--weight-decay", float, 0.1),
                              ("--beta2", float, 0.99), ("--average", float, 0.999), ("--smoothing", float, 0.1), ("--drop-path", float, 0.05), ("--dropout", float, 0),
                              ("--augment", int, 1), ("--translate", float, 32), ("--mixup", float, 0.5), ("--mixup-alpha", float, 1), ("--cutmix", float, 0.5),
                              ("--distill", float, 0.5), ("--every", int, 10), ("--seed", int, 1), ("--compile", int, 1)):
        ap.add_argument(name, type=kind, default=value)
    ap.add_argument("--teacher", nargs="*", default=[], help="folders of finished texts runs, whose mean distribution is learnt besides")
    ap.add_argument("--like", help="folder with the config.json, tokenizer and other small files of a model of this shape")
    a = ap.parse_args()
    small = {"images": dict(model="vit", width=192, blocks=6, heads=3, batch=512), "texts": dict(model="gpt2", width=384, blocks=7, heads=6, batch=32)}[a.what]
    for name, value in small.items():
        if not getattr(a, name): setattr(a, name, value)
    for path in [a.data, *([a.like] if a.like else []), *(os.path.join(d, "model.json") for d in a.teacher)]:
        if not os.path.exists(path): ap.error(f"{path} is not there")
    os.makedirs(a.out, exist_ok=True)
    torch.manual_seed(a.seed)
    torch.set_float32_matmul_precision("high")
    (images if a.what == "images" else texts)(a)
