"""Names that people know from other libraries, by the package where they look for them: what to write here.

Read when such a name is missing, by `weft._lazy`. Words of Ray's that Weft has as well are not in it.
"""

from __future__ import annotations

_SCHEDULERS = "ASHAScheduler AsyncHyperBandScheduler HyperBandScheduler MedianStoppingRule PB2 PopulationBasedTraining"
_SEARCHERS = "BayesOptSearch ConcurrencyLimiter NevergradSearch OptunaSearch Repeater"
_VECTORS = 'give the algorithm what makes one environment: PPO("CartPole-v1", n_envs=4), with workers=2 in processes'
_REQUEST = "write from starlette.requests import Request"
_HANDLE = 'write get_app_handle("default"), or get_deployment_handle(deployment, app)'
_TORCH_TRAINER = 'write weft.train.Trainer(loop, workers=2, backend="torch").fit()'
_DATA_LOADER = "iterate train.get_dataset_shard(name), or use a DistributedSampler with the context's rank"

_FRAMES = {
    "compute": "nothing is to be called: frames are computed as they are used",
    "scan_csv": "write read_csv(paths); weft.data.read_csv reads nothing before it is needed",
    "scan_parquet": "write read_parquet(paths); weft.data.read_parquet reads nothing before it is needed",
}
WRITE_INSTEAD: dict[str, dict[str, str]] = {
    "weft": {
        "ActorPool": "write from weft.util import ActorPool",
        "Client": 'write weft.init(), or weft.init(address="host:port")',
        "DataFrame": "write import weft.pandas as pd, then pd.DataFrame",
        "LocalCluster": "write weft.init(num_cpus=4)",
        "Parallel": "write weft.map(f, items), or joblib's own after weft.util.joblib.register_weft()",
        "Pool": "write weft.map(f, items), or from weft.util.multiprocessing import Pool",
        "Process": "write an actor: @weft.remote on a class",
        "ProcessPoolExecutor": "write weft.map(f, items), or from weft.util import Executor",
        "Queue": "write from weft.util.queue import Queue",
        "ThreadPoolExecutor": "write weft.map(f, items), or from weft.util import Executor",
        "air": "write weft.train and weft.tune",
        "compute": "write weft.get(refs)",
        "dataframe": "write weft.pandas for pandas' calls, weft.data for more than memory holds",
        "delayed": "write f = weft.remote(f), then f.remote(x), which starts at once; weft.get(ref) is its value",
        "gather": "write weft.get(refs)",
        "imap": "write weft.map(f, items)",
        "imap_unordered": "write weft.map(f, items, order=False)",
        "placement_group": "write from weft.util import placement_group",
        "read_csv": "write weft.pandas.read_csv, or weft.data.read_csv",
        "read_parquet": "write weft.pandas.read_parquet, or weft.data.read_parquet",
        "rllib": "write weft.rl",
        "scatter": "write weft.put(value)",
        "starmap": "write weft.map(f, firsts, seconds)",
        "submit": "write f = weft.remote(f), then f.remote(x)",
    },
    "weft.data": {
        "ActorPoolStrategy": "write map_batches(Class, concurrency=2)",
        "DataFrame": "write from_pandas(frame); pandas' own calls are in weft.pandas",
        "from_dict": "write from_arrow(pyarrow.table({...})), or from_items(rows)",
        "from_list": "write from_items(rows)",
        "from_sequence": "write from_items(rows)",
        "read_html": "write from_pandas(pandas.read_html(...)[0])",
        "scan_csv": "write read_csv(paths), which reads nothing before it is needed",
        "scan_parquet": "write read_parquet(paths), which reads nothing before it is needed",
    },
    "weft.pandas": {
        **_FRAMES,
        "set_small_rows": "write set_rows(n): frames of so many rows and more are computed in parts",
    },
    "weft.pandas.modin": _FRAMES,
    "weft.rl": {
        "APPO": "write IMPALA, whose workers play while it learns",
        "BaseCallback": "write model.learn(steps, callback), a function of each result",
        "CheckpointCallback": "write model.learn(steps, callback) and save in the callback, which gets each result",
        "DummyVecEnv": _VECTORS,
        "EvalCallback": "write PPO(env, evaluation_interval=10)",
        "Monitor": "nothing is needed: model.train() and callbacks give rewards and lengths of episodes",
        "StopTrainingOnRewardThreshold": "write model.learn(steps, callback); it ends where the callback returns False",
        "SubprocVecEnv": _VECTORS,
        "MaskablePPO": "write PPO(env): a Dict observation's action_mask says what is allowed",
        "VecNormalize": "write PPO(env, normalize_observations=True)",
        "make_vec_env": _VECTORS,
    },
    "weft.serve": {
        "HTTPRequest": _REQUEST,
        "Request": _REQUEST,
        "get_deployment": _HANDLE,
        "get_handle": _HANDLE,
    },
    "weft.train.torch": {
        "TorchCheckpoint": "write train.report(metrics, checkpoint=...)",
        "TorchConfig": 'write Trainer(loop, backend="torch"), or backend="nccl" or "gloo"',
        "TorchTrainer": _TORCH_TRAINER,
        "prepare_data_loader": _DATA_LOADER,
    },
    "weft.train": {
        "CheckpointConfig": "write Trainer(loop, keep_checkpoints=2)",
        "DataParallelTrainer": "write Trainer(loop, workers=2).fit()",
        "FailureConfig": "write Trainer(loop, failures=3)",
        "RunConfig": "write Trainer(loop, name=..., storage_path=...)",
        "ScalingConfig": 'write Trainer(loop, workers=2, resources={"CPU": 1, "GPU": 1})',
        "TorchTrainer": _TORCH_TRAINER,
        "prepare_data_loader": _DATA_LOADER,
    },
    "weft.tune": {
        **{name: f"write from weft.tune.schedulers import {name}" for name in _SCHEDULERS.split()},
        **{name: f"write from weft.tune.search import {name}" for name in _SEARCHERS.split()},
        "GridSearchCV": "write Tuner(function, param_space={'C': tune.grid_search([0.1, 1, 10])})",
        "create_study": "write Tuner(function, param_space={'x': tune.uniform(0, 1)}, tune_config=TuneConfig(...))",
        "fmin": "write Tuner(function, param_space={'x': tune.uniform(0, 1)}, tune_config=TuneConfig(...))",
        "get_checkpoint_dir": "write tune.get_checkpoint()",
    },
    "weft.util": {
        "Pool": "write from weft.util.multiprocessing import Pool",
        "Queue": "write from weft.util.queue import Queue",
    },
}
