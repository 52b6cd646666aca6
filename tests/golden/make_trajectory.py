#!/usr/bin/env python3
"""Writes the golden training trajectories: 20 steps of training by an independent implementation, in double.

    python3 make_trajectory.py --reference PATH/reference.py --out tests/golden

The reference (PyTorch) has the models and mixed-precision attention; what a training adds is here: noise-augmented quantisation with
lambda = 1, moving averages of the codewords with revival of dead ones, AdamW, clipping and the learning-rate schedule, from their
equations (docs/MATH.md). Both sides get the same draws: token-to-device maps stand in the file; the standard normal numbers of the
noise and the rows that revive dead codewords come from published generators (Philox4x32-10 with Box and Muller; xoshiro256**),
written out once more below. Only this script needs Python: the product and its tests do not.
"""
import argparse, importlib.util, json, math, os, struct
import numpy as np
import torch
import torch.nn.functional as F

STEPS, BATCHES = 20, 4
TRAINING = dict(rate=3e-3, beta1=0.9, beta2=0.999, eps=1e-8, decay=0.05, clip=1.5, warmup=4, floor=0.1, noise=1.0, commitment=0.01,
                codebook_decay=0.9, smoothing=1e-5, dead_below=0.5, noise_seed=42, revive_seed=43)
NOISE_DECAY, NOISE_REFRESH, RIDGE = 0.99, 16, 1e-6
MASK = (1 << 64) - 1

CASES = [  # name, kind, D, heads, layers, mlp, extra, batch, tokens, G, K, tokens of each device
    ("vit", "vit", 16, 2, 2, 32, dict(image=16, patch=4, classes=5), 2, 16, 2, 16, [5, 7, 4]),
    ("gpt2", "gpt2", 16, 2, 2, 64, dict(ctx=16, vocab=29), 3, 12, 4, 8, [4, 4, 4]),
    ("llama", "llama", 16, 4, 2, 32, dict(ctx=16, vocab=29, kv=2), 3, 12, 2, 8, [7, 5]),
]


def save(path, tensors):
    names = {"float32": "F32", "float64": "F64", "int32": "I32"}
    head, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name])
        head[name] = {"dtype": names[str(array.dtype)], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        blobs.append(array.tobytes())
        at += array.nbytes
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


# ---------------------------------------------------------------- random numbers
class Xoshiro:
    """xoshiro256** (Blackman and Vigna), seeded through splitmix64."""

    def __init__(self, seed):
        self.s, x = [], seed
        for _ in range(4):
            x = (x + 0x9E3779B97F4A7C15) & MASK
            z = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
            self.s.append(z ^ (z >> 31))

    def next(self):
        turn = lambda x, k: ((x << k) | (x >> (64 - k))) & MASK
        s = self.s
        result, t = (turn(s[1] * 5 & MASK, 7) * 9) & MASK, (s[1] << 17) & MASK
        s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3]; s[2] ^= t
        s[3] = turn(s[3], 45)
        return result

    def below(self, bound):
        while (draw := self.next()) < (1 << 64) % bound: pass
        return draw % bound


def philox(key, counter):
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    w = [counter & 0xFFFFFFFF, counter >> 32, 0, 0]
    for _ in range(10):
        p0, p2 = 0xD2511F53 * w[0], 0xCD9E8D57 * w[2]
        w = [(p2 >> 32) ^ w[1] ^ k0, p2 & 0xFFFFFFFF, (p0 >> 32) ^ w[3] ^ k1, p0 & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return w


def normals(key, rows, width):
    """[rows, width]; row r begins at counter r ceil(width / 4)."""
    out = np.zeros((rows, width))
    for r in range(rows):
        row = []
        for block in range((width + 3) // 4):
            w = philox(key, r * ((width + 3) // 4) + block)
            for u, v in ((w[0], w[1]), (w[2], w[3])):
                radius = math.sqrt(-2 * math.log(((u >> 1) + 0.5) * 2.0**-31))
                angle = 2 * math.pi * 2.0**-32 * v
                row += [radius * math.cos(angle), radius * math.sin(angle)]
        out[r] = row[:width]
    return torch.from_numpy(out)


# ---------------------------------------------------------------- a quantisation site in training
class Site:
    def __init__(self, codebook, rows):
        self.e = codebook.clone()                                               # [G, K, d]
        self.G, self.K, self.d = self.e.shape
        self.sizes = torch.full((self.G, self.K), rows / self.K, dtype=torch.float64)
        self.sums = self.e * self.sizes[..., None]
        self.mean, self.cov = torch.zeros(self.G, self.d, dtype=torch.float64), torch.zeros(self.G, self.d, self.d, dtype=torch.float64)
        self.factor, self.updates = self.cov.clone(), 0

    def noise(self, key, rows):                                                 # lambda (mu + L z)
        if self.updates == 0: return torch.zeros(rows, self.G * self.d, dtype=torch.float64)
        z = normals(key, rows, self.G * self.d).view(rows, self.G, self.d)
        return TRAINING["noise"] * (self.mean + torch.einsum("rgj,gij->rgi", z, self.factor)).reshape(rows, -1)

    def move_moments(self, x, q):                                               # of the residual, [rows, G, d]
        gain = 1.0 if self.updates == 0 else 1 - NOISE_DECAY
        r = x - q
        c = r - r.mean(0)
        self.mean = (1 - gain) * self.mean + gain * r.mean(0)
        self.cov = (1 - gain) * self.cov + gain * torch.einsum("rgi,rgj->gij", c, c) / len(r)
        if self.updates % NOISE_REFRESH == 0:
            ridge = RIDGE * self.cov.diagonal(dim1=1, dim2=2).sum(-1) / self.d
            self.factor = torch.linalg.cholesky(self.cov + ridge[:, None, None] * torch.eye(self.d, dtype=torch.float64))
        self.updates += 1

    def move_codewords(self, x, codes, rng):                                    # van den Oord et al. 2017, appendix A.1, and revival
        g, s = TRAINING["codebook_decay"], TRAINING["smoothing"]
        hot = F.one_hot(codes, self.K).double()                                 # [rows, G, K]
        self.sums = g * self.sums + (1 - g) * torch.einsum("rgk,rgd->gkd", hot, x)
        self.sizes = g * self.sizes + (1 - g) * hot.sum(0)
        total = self.sizes.sum(1, keepdim=True)
        self.e = self.sums / ((self.sizes + s) / (total + self.K * s) * total)[..., None]
        size, revived = len(x) / self.K, 0
        for group in range(self.G):
            for k in range(self.K):
                if self.sizes[group, k] >= TRAINING["dead_below"] * size: continue
                row = rng.below(len(x))
                self.e[group, k] = x[row, group]
                self.sizes[group, k], self.sums[group, k] = size, x[row, group] * size
                revived += 1
        return revived


def training_exchange(reference):
    class Training(reference.Astra):
        """The reference's exchange with noise on what attention sees; keeps what the updates want."""

        def quantise(self, name, h):
            B, T, D = h.shape
            order = self.order                                                  # the noise's rows: devices in turn, each one's tokens in order
            key = (TRAINING["noise_seed"] ^ (((self.step * len(self.e) + len(self.codes)) * 0x9E3779B97F4A7C15) & MASK)) & MASK
            xi = torch.zeros(B, T, D, dtype=torch.float64)
            xi[:, order] = self.sites[name].noise(key, B * T).view(B, T, D)
            super().quantise(name, h)                                           # commitment and codes
            q = torch.stack([self.e[name][g][self.codes[name][..., g]] for g in range(self.G)], 2).reshape(B, T, D)
            self.seen[name] = (h.detach()[:, order].reshape(B * T, self.G, -1), self.codes[name][:, order].reshape(B * T, self.G))
            return h + (q + xi - h).detach()

    return Training


# ---------------------------------------------------------------- optimizer
def schedule(step):
    warmup, floor = TRAINING["warmup"], TRAINING["floor"]
    if step < warmup: return step / warmup
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (STEPS - warmup)))


def decays(name, p):  # matrices: neither biases, norms nor embeddings
    return p.dim() >= 2 and not any(part in name for part in ("wte", "wpe", "embed_tokens", "cls_token", "position_embeddings"))


def adamw(P, moments, step):
    t, norm = TRAINING, math.sqrt(sum((p.grad ** 2).sum().item() for p in P.values()))
    scale, rate, count = min(1.0, t["clip"] / norm), t["rate"] * schedule(step), step + 1
    with torch.no_grad():
        for n, p in P.items():
            m, v = moments[n]
            g = scale * p.grad
            m.mul_(t["beta1"]).add_((1 - t["beta1"]) * g)
            v.mul_(t["beta2"]).add_((1 - t["beta2"]) * g * g)
            step_ = m / (1 - t["beta1"] ** count) / ((v / (1 - t["beta2"] ** count)).sqrt() + t["eps"])
            p -= rate * (step_ + (t["decay"] * p if decays(n, p) else 0))
            p.grad = None
    return norm


# ---------------------------------------------------------------- a case
def codebook_names(kind, layers): return [f"astra.layers.{l}.{s}" for l in range(layers) for s in (("k", "v") if kind == "llama" else ("x",))]


def run(reference, case, out, seed):
    name, kind, D, nh, layers, mlp, extra, B, T, G, K, counts = case
    gen = torch.Generator().manual_seed(seed * 1000003 + sum(map(ord, name)))
    rnd = lambda *s: torch.randn(*s, generator=gen, dtype=torch.float64)
    c, single = reference.config(kind, D, nh, layers, mlp, extra), lambda t: t.float().double()
    P = {}
    for n, s in reference.shapes(kind, c).items():
        norm = "norm" in n or ".ln_" in n
        P[n] = single(1 + 0.1 * rnd(*s) if norm and n.endswith("weight") else 0.1 * rnd(*s) if len(s) == 1
                      else rnd(*s) * (0.6 / math.sqrt(s[0] if kind == "gpt2" and ".h." in n else s[-1]))).requires_grad_(True)
    start = {n: p.detach().float().numpy() for n, p in P.items()}
    W = D // nh * extra["kv"] if kind == "llama" else D
    books = {n: single(rnd(G, K, W // G) * 0.9) for n in codebook_names(kind, layers)}
    ex = {"training." + k: np.array([v], dtype=np.float64) for k, v in TRAINING.items()}
    if kind == "vit":
        inputs = single(rnd(BATCHES, B, 3, extra["image"], extra["image"]))
        labels = torch.randint(0, extra["classes"], (BATCHES, B), generator=gen)
        ex["pixel_values"] = inputs.float().numpy()
    else:
        ids = torch.randint(0, extra["vocab"], (BATCHES, B, T + 1), generator=gen)
        inputs, labels = ids[:, :, :-1], ids[:, :, 1:]
        ex["input_ids"] = inputs.int().numpy()
    ex["labels"] = labels.int().numpy()
    spans = torch.cat([torch.full((n,), d) for d, n in enumerate(counts)])
    maps = [spans[torch.randperm(T, generator=gen)] if kind == "vit" else spans for _ in range(STEPS)]
    ex["device_of"] = torch.stack(maps).int().numpy()

    sites = {n + ".codebook": Site(e, B * T) for n, e in books.items()}
    moments = {n: (torch.zeros_like(p), torch.zeros_like(p)) for n, p in P.items()}
    exchange, rng = training_exchange(reference), Xoshiro(TRAINING["revive_seed"])
    model, told = {"vit": reference.vit, "gpt2": reference.gpt2, "llama": reference.llama}[kind], {}
    for step in range(STEPS):
        A = exchange(G, {n: s.e for n, s in sites.items()}, None, maps[step], len(counts) if kind == "vit" else 0, TRAINING["commitment"])
        A.sites, A.step, A.seen, A.order = sites, step, {}, torch.argsort(maps[step], stable=True)
        logits, gold = model(P, c, inputs[step % BATCHES], A), labels[step % BATCHES]
        task = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), gold.reshape(-1).long())
        loss = task + A.beta * A.commit
        loss.backward()
        revived = 0
        for n, s in sites.items():
            x, codes = A.seen[n]
            q = torch.stack([s.e[g][codes[:, g]] for g in range(G)], 1)
            s.move_moments(x, q)
            revived += s.move_codewords(x, codes, rng)
        for k, v in dict(task=task.item(), commitment=A.commit.item(), loss=loss.item(), norm=adamw(P, moments, step), revived=revived).items():
            told.setdefault(k, []).append(float(v))
    ex.update({"step." + k: np.array(v) for k, v in told.items()})
    ex.update({"final." + n: p.detach().numpy() for n, p in P.items()})
    for n, s in sites.items():
        ex["final." + n], ex["sizes." + n] = s.e.numpy(), s.sizes.numpy()

    folder = os.path.join(out, "trajectory-" + name)
    os.makedirs(folder, exist_ok=True)
    c["astra"] = dict(site="kv" if kind == "llama" else "x", groups=G, codebook_size=K, devices=len(counts), commitment_weight=TRAINING["commitment"])
    with open(os.path.join(folder, "config.json"), "w") as file: json.dump(c, file, indent=1)
    save(os.path.join(folder, "model.safetensors"), start)
    save(os.path.join(folder, "codebooks.safetensors"), {n + ".codebook": e.float().numpy() for n, e in books.items()})
    save(os.path.join(folder, "trajectory.safetensors"), ex)
    print(f"{name:6s} loss {told['loss'][0]:.6f} to {told['loss'][-1]:.6f}, norm {min(told['norm']):.3f} to {max(told['norm']):.3f}, "
          f"revived {sum(told['revived']):.0f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=42)
    a = parser.parse_args()
    spec = importlib.util.spec_from_file_location("reference", a.reference)
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    for case in CASES: run(reference, case, a.out, a.seed)
