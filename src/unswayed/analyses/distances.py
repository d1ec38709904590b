"""Distances between two sets of pictures by their features: FID and KID. Only numpy and torch-fidelity are needed."""

from __future__ import annotations

import numpy as np

KID_SUBSETS, KID_LARGEST = 100, 1000


def frechet_distance(features: np.ndarray, reference: np.ndarray) -> float:
    """FID (Heusel et al. 2017) of (N, D) and (M, D) features; biased upwards where N or M is below some thousands."""
    import torch
    from torch_fidelity.metric_fid import KEY_METRIC_FID, fid_features_to_statistics, fid_statistics_to_metric

    statistics = (fid_features_to_statistics(torch.from_numpy(np.asarray(each))) for each in (features, reference))
    return float(fid_statistics_to_metric(*statistics, False)[KEY_METRIC_FID])


def kernel_distance(features: np.ndarray, reference: np.ndarray, seed: int = 2020) -> tuple[float, float]:
    """KID (Bińkowski et al. 2018) and its standard deviation over subsets; unbiased, so fit for few pictures."""
    import torch
    from torch_fidelity.metric_kid import KEY_METRIC_KID_MEAN, KEY_METRIC_KID_STD, kid_features_to_metric

    size = min(len(features), len(reference), KID_LARGEST)
    # A subset as large as the set itself would always be the same one.
    size = max(2, size if size == KID_LARGEST else size * 3 // 4)
    sets = [torch.from_numpy(np.asarray(vectors)) for vectors in (features, reference)]
    how = {"kid_subsets": KID_SUBSETS, "kid_subset_size": size, "rng_seed": seed, "verbose": False}
    distance = kid_features_to_metric(*sets, **how)
    return float(distance[KEY_METRIC_KID_MEAN]), float(distance[KEY_METRIC_KID_STD])
