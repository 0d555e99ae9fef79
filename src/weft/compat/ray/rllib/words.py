"""What RLlib's settings are called in `weft.rl`. A word is mapped, taken without effect, or refused.

Where a default of RLlib's and one of `weft.rl`'s differ, that of `weft.rl` holds: it is what its curves were made with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from weft.library.checks import did_you_mean

SAME: Mapping[str, str] = {
    "env": "env",
    "env_config": "env_config",
    "seed": "seed",
    "gamma": "gamma",
    "lr": "learning_rate",
    "grad_clip": "gradient_norm",
    "num_env_runners": "workers",
    "num_envs_per_env_runner": "envs_per_worker",
    "num_cpus_per_env_runner": "cpus_per_worker",
    "sample_timeout_s": "sample_timeout_s",
    "metrics_num_episodes_for_smoothing": "metrics_window",
    "evaluation_interval": "evaluation_interval",
    "evaluation_num_env_runners": "evaluation_workers",
    "evaluation_duration": "evaluation_episodes",
    "num_epochs": "epochs",
    "num_sgd_iter": "epochs",
    "minibatch_size": "minibatch",
    "sgd_minibatch_size": "minibatch",
    "lambda_": "gae_lambda",
    "clip_param": "clip",
    "entropy_coeff": "entropy_weight",
    "vf_loss_coeff": "value_weight",
    "double_q": "double",
    "dueling": "dueling",
    "noisy": "noisy",
    "num_atoms": "atoms",
    "v_min": "value_low",
    "v_max": "value_high",
    "n_step": "n_steps",
    "tau": "tau",
    "initial_alpha": "initial_temperature",
    "num_steps_sampled_before_learning_starts": "learning_starts",
    "vtrace_clip_rho_threshold": "rho_limit",
    "vtrace_clip_pg_rho_threshold": "c_limit",
}
"""RLlib's word, and the field of the algorithm's configuration in `weft.rl`."""

WITHOUT_EFFECT = frozenset(
    """
    framework framework_str torch_compile_learner log_level logger_config log_sys_usage enable_rl_module_and_learner
    enable_env_runner_and_connector_v2 num_gpus num_gpus_per_learner num_cpus_per_learner num_gpus_per_env_runner
    num_cpus_for_main_process local_gpu_idx placement_strategy custom_resources_per_env_runner
    num_aggregator_actors_per_learner max_requests_in_flight_per_env_runner max_requests_in_flight_per_aggregator_actor
    gym_env_vectorize_mode remote_worker_envs create_env_on_local_worker create_local_env_runner batch_mode
    validate_env_runners_after_construction compress_observations disable_env_checking is_atari
    min_time_s_per_iteration min_train_timesteps_per_iteration min_sample_timesteps_per_iteration
    keep_per_episode_custom_metrics log_gradients export_native_model_files evaluation_config
    evaluation_parallel_to_training evaluation_duration_unit evaluation_sample_timeout_s
    evaluation_force_reset_envs_before_iteration restart_failed_env_runners ignore_env_runner_failures
    max_num_env_runner_restarts delay_between_env_runner_restarts_s env_runner_health_probe_timeout_s
    num_consecutive_env_runner_failures_tolerance normalize_actions clip_actions broadcast_interval
    learner_queue_size learner_queue_timeout adam_epsilon
    """.split()
)
"""They say how RLlib does its work, or what is so here in any case."""

ONLY: Mapping[str, tuple[Any, ...]] = {
    "num_learners": (0, 1),
    "explore": (True,),
    "use_gae": (True,),
    "use_critic": (True,),
    "twin_q": (True,),
    "vtrace": (True,),
    "grad_clip_by": ("global_norm",),
    "observation_filter": ("NoFilter", "MeanStdFilter"),
    "use_kl_loss": (False,),
    "kl_coeff": (0.0,),
    "off_policy_estimation_methods": ({},),
    "training_intensity": (None,),
    "td_error_loss_fn": ("huber",),
    "count_steps_by": ("env_steps",),
}
"""Taken with these values alone, which are what is done here."""

_ACTIVATIONS = {"swish": "silu"}


class Unmapped(NotImplementedError):
    """A word of RLlib's that has no counterpart."""


def translated(fields: frozenset[str], given: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
    """Settings of `weft.rl` from RLlib's. `fields` are those of the algorithm's configuration there."""
    settings: dict[str, Any] = {}
    for word, value in given.items():
        if word in ONLY and word not in _SPECIAL:
            _check_only(word, value)
        elif word in _SPECIAL:
            settings.update(_SPECIAL[word](value))
        elif word in SAME and value is not None:
            settings[SAME[word]] = value
    _check_fields(settings, fields, algorithm)
    _fit_batch(settings, given, fields)
    return settings


def check_word(word: str) -> None:
    """Unmapped where `word` is none that is taken."""
    known = {*SAME, *WITHOUT_EFFECT, *ONLY, *_SPECIAL, *_BATCH}
    if word not in known:
        near = did_you_mean(word, known) or "."
        raise Unmapped(f"weft.rl has nothing for RLlib's {word!r}{near} Take it out, or see weft.rl's own settings.")


def _check_only(word: str, value: Any) -> None:
    if value is not None and value not in ONLY[word]:
        allowed = " or ".join(map(repr, ONLY[word]))
        raise Unmapped(f"weft.rl does not do RLlib's {word}={value!r}: only {allowed}.")


def _check_fields(settings: Mapping[str, Any], fields: frozenset[str], algorithm: str) -> None:
    words = {field: word for word, field in SAME.items()}
    for name in settings:
        if name not in fields:
            raise Unmapped(f"{algorithm} of weft.rl has nothing for RLlib's {words.get(name, name)!r}. Take it out.")


# ---- words that say several things, or say them in another form ----


def _model(value: Any) -> dict[str, Any]:
    given = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    settings: dict[str, Any] = {}
    for name, each in (given or {}).items():
        if name in ("fcnet_hiddens", "head_fcnet_hiddens") and each:
            settings["hidden"] = tuple(each)
        elif name in ("fcnet_activation", "head_fcnet_activation") and each:
            settings["activation"] = _ACTIVATIONS.get(each, each)
        elif name == "conv_filters" and each:
            settings["convolutions"] = tuple(tuple(_filter(layer)) for layer in each)
        elif name in ("use_lstm", "use_attention") and each:
            raise Unmapped(f"{name}: for a memory use weft.rl.RecurrentPPO (memory='lstm')")
        elif name not in _MODEL_WITHOUT_EFFECT and each:
            raise Unmapped(
                f"weft.rl has nothing for {name!r} of RLlib's model; give its algorithm a network of your own"
            )
    return settings


_MODEL_WITHOUT_EFFECT = frozenset(
    """
    vf_share_layers use_lstm use_attention conv_activation max_seq_len lstm_cell_size free_log_std log_std_clip_param
    fcnet_kernel_initializer fcnet_bias_initializer head_fcnet_kernel_initializer head_fcnet_bias_initializer
    conv_kernel_initializer conv_bias_initializer
    """.split()
)


def _filter(layer: Any) -> tuple[int, int, int]:
    filters, size, stride = layer
    both = size if isinstance(size, int) else size[0]
    if not isinstance(size, int) and len(set(size)) != 1:
        raise Unmapped(f"weft.rl has square convolutions only, but conv_filters has {size!r}")
    return filters, both, stride if isinstance(stride, int) else stride[0]


def _replay(value: Mapping[str, Any]) -> dict[str, Any]:
    names = {"capacity": "replay_capacity", "alpha": "priority_alpha", "beta": "priority_beta"}
    settings: dict[str, Any] = {names[name]: each for name, each in value.items() if name in names}
    kind = value.get("type")
    if kind is not None:
        name = kind if isinstance(kind, str) else kind.__name__
        settings["prioritized"] = "Prioritized" in name
    return settings


def _epsilon(value: Any) -> dict[str, Any]:
    if isinstance(value, int | float):
        return {"initial_exploration": value, "final_exploration": value}
    (_, first), (until, last) = value[0], value[-1]
    return {"initial_exploration": first, "final_exploration": last, "exploration_timesteps": max(1, int(until))}


def _rate(value: Any) -> dict[str, Any]:
    if isinstance(value, int | float):
        return {"learning_rate": value}
    if len(value) == 2 and value[0][0] == 0 and value[1][1] == 0:
        return {"learning_rate": value[0][1], "anneal_timesteps": int(value[1][0])}
    raise Unmapped(f"weft.rl lets a learning rate fall linearly to 0, but lr={value!r}: write [[0, rate], [steps, 0]]")


def _clipped_rewards(value: Any) -> dict[str, Any]:
    return {"reward_clip": 1.0 if value is True else value} if value else {}


def _fragment(value: Any) -> dict[str, Any]:
    return {} if value in (None, "auto") else {"fragment_steps": value}


def _entropy(value: Any) -> dict[str, Any]:
    if isinstance(value, int | float):
        return {"entropy_weight": value}
    raise Unmapped(f"weft.rl has no schedule of the entropy bonus, but entropy_coeff={value!r}")


def _target_entropy(value: Any) -> dict[str, Any]:
    return {"target_entropy": None if value == "auto" else value}


def _filtered(value: Any) -> dict[str, Any]:
    _check_only("observation_filter", value)
    return {"normalize_observations": True} if value == "MeanStdFilter" else {}


def _restarts(value: Any) -> dict[str, Any]:
    return {"on_environment_error": "restart"} if value else {}


def _target_updates(value: Any) -> dict[str, Any]:
    return {"target_interval": max(1, int(value))}


_SPECIAL: Mapping[str, Any] = {
    "model": _model,
    "model_config": _model,
    "replay_buffer_config": _replay,
    "epsilon": _epsilon,
    "lr": _rate,
    "clip_rewards": _clipped_rewards,
    "rollout_fragment_length": _fragment,
    "entropy_coeff": _entropy,
    "target_entropy": _target_entropy,
    "observation_filter": _filtered,
    "restart_failed_sub_environments": _restarts,
    "target_network_update_freq": _target_updates,
}

_BATCH = ("train_batch_size", "train_batch_size_per_learner")


def _fit_batch(settings: dict[str, Any], given: Mapping[str, Any], fields: frozenset[str]) -> None:
    """A batch is drawn from a memory where there is one; else it is what all environments play in one fragment."""
    size = next((given[word] for word in _BATCH if given.get(word) is not None), None)
    if size is None:
        return
    if "replay_capacity" in fields:
        settings["batch"] = size
    elif "fragments_per_update" not in fields and "fragment_steps" not in settings:
        environments = settings.get("envs_per_worker", 8) * max(1, settings.get("workers", 0))
        settings["fragment_steps"] = max(1, -(-size // environments))
