#!/usr/bin/python3
"""One iteration of K-means (Lloyd's) of scikit-learn or faiss, beside `astra-bench kmeans`. One JSON line.

    kmeans.py --samples 50000 --width 24 --entries 1024
    kmeans.py --library faiss --width 768

Samples are drawn as astra-bench draws them: around as many normal centres as there are codewords; the start is random samples. scikit-learn says
nothing between iterations: what one takes is the difference of fits with more and with one, the median of --turns such pairs; its start, checks and
last labels are in both. faiss keeps the time of each iteration. See compare.py for the environment."""
import argparse
import json
import resource
import statistics
import time
import warnings

import numpy as np


def draw(options):
    random = np.random.default_rng(options.seed)
    centres = random.standard_normal((options.entries, options.width), dtype=np.float32)
    which = random.integers(0, options.entries, options.samples)
    samples = centres[which] + random.standard_normal((options.samples, options.width), dtype=np.float32)
    return samples, samples[random.choice(options.samples, options.entries, replace=False)].copy()


def sklearn(samples, start, options):
    from sklearn.cluster import KMeans
    warnings.filterwarnings("ignore")  # that it has not converged
    distortion = 0.0

    def seconds(iterations):
        nonlocal distortion
        begun = time.perf_counter()
        fit = KMeans(options.entries, init=start, n_init=1, max_iter=iterations, tol=0, algorithm="lloyd", copy_x=False).fit(samples)
        taken, distortion = time.perf_counter() - begun, float(fit.inertia_)
        if fit.n_iter_ != iterations:
            raise SystemExit("kmeans.py: converged after %d iterations; take more samples" % fit.n_iter_)
        return taken

    seconds(1)  # touches memory
    pairs = [(seconds(1), seconds(1 + options.iterations)) for _ in range(options.turns)]
    return [(more - one) / options.iterations for one, more in pairs], distortion


def faiss(samples, start, options):
    import faiss as library
    library.omp_set_num_threads(options.threads)
    fit = library.Kmeans(options.width, options.entries, niter=1 + options.iterations, max_points_per_centroid=options.samples)
    fit.train(samples, init_centroids=start)
    ends = [stats["time"] for stats in fit.iteration_stats]
    return [after - before for before, after in zip(ends, ends[1:])], float(fit.obj[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", dest="peer", default="sklearn", choices=["sklearn", "faiss"])
    parser.add_argument("--samples", type=int, default=50000)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--entries", type=int, default=1024)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="the environment's OMP_NUM_THREADS says the same to scikit-learn")
    parser.add_argument("--seed", type=int, default=42)
    options = parser.parse_args()
    samples, start = draw(options)
    seconds, distortion = (sklearn if options.peer == "sklearn" else faiss)(samples, start, options)
    print(json.dumps({"milliseconds": 1e3 * statistics.median(seconds), "milliseconds_min": 1e3 * min(seconds),
                      "units_per_second": options.samples / statistics.median(seconds), "distortion": distortion,
                      "resident_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


if __name__ == "__main__":
    main()
