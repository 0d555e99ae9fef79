# needs: emcee
"""Monte Carlo sampling over Ray's multiprocessing pool."""

import emcee
import numpy as np
from ray.util.multiprocessing import Pool


def log_probability(theta):
    return -0.5 * float(np.sum(theta**2))


with Pool(processes=2) as pool:
    start = np.random.default_rng(0).normal(size=(16, 3))
    sampler = emcee.EnsembleSampler(16, 3, log_probability, pool=pool)
    sampler.run_mcmc(start, 100)
chain = sampler.get_chain(discard=20, flat=True)
assert chain.shape == (16 * 80, 3) and abs(float(chain.mean())) < 0.5
