"""DeepSpeed's reader of `ds_config.json` as an oracle: one JSON object per line as input and as output.

    PYTHON configs.py SCRATCH-DIRECTORY

PYTHON has torch and deepspeed. The question is {"text": TEXT, "world_size": N}. The text is written to a file and
read by DeepSpeedConfig; then the optimizer and the schedule are made as the engine makes them: classes of torch
are called, and the arguments of DeepSpeed's kernels are matched with their signatures. The answer is

    {"values": {KEY: VALUE}}                     the values that count, by the names of their keys
    {"refused": {"type": NAME, "text": TEXT}}
"""

import contextlib
import inspect
import io
import json
import logging
import os
import sys
import warnings


class Ranks:
    """Stub of `deepspeed.comm`: a number of ranks."""

    def __init__(self):
        self.count = 1

    def get_rank(self, group=None):
        return 0

    def get_world_size(self, group=None):
        return self.count


class Oracle:
    def __init__(self, scratch):
        self.path = os.path.join(scratch, "ds_config.json")
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
        warnings.simplefilter("ignore")
        import torch
        from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
        from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion
        from deepspeed.runtime import config, lr_schedules
        from deepspeed.utils import logger

        logger.setLevel(logging.CRITICAL)
        logging.disable(logging.CRITICAL)
        self.ranks = config.dist = Ranks()
        self.torch, self.config, self.schedules = torch, config, lr_schedules
        self.kernels = {
            "adam": (FusedAdam, DeepSpeedCPUAdam),
            "lion": (FusedLion, DeepSpeedCPULion),
        }

    def read(self, question):
        # Bytes: a text can contain line ends of every kind.
        with open(self.path, "wb") as file:
            file.write(question["text"].encode())
        self.ranks.count = question["world_size"]
        try:
            found = self.config.DeepSpeedConfig(self.path)
            values = self.values(found)
            values.update(self.optimizer(found))
            values.update(self.scheduler(found, values.get("optimizer.params.lr")))
            return {"values": values}
        except (Exception, RecursionError) as error:
            text = str(error).strip().replace("\n", " / ")
            return {"refused": {"type": type(error).__name__, "text": text[:300]}}

    def values(self, found):
        values = {
            "train_batch_size": found.train_batch_size,
            "train_micro_batch_size_per_gpu": found.train_micro_batch_size_per_gpu,
            "gradient_accumulation_steps": found.gradient_accumulation_steps,
            "gradient_clipping": found.gradient_clipping,
            "communication_data_type": self.dtype(found.communication_data_type),
            "activation_checkpointing.number_checkpoints": found.activation_checkpointing_config.number_checkpoints,
            "fp16.enabled": found.float16_config.enabled,
            "bf16.enabled": found.bfloat16_config.enabled,
        }
        if found.float16_config.enabled:
            fp16 = found.float16_config
            values["fp16.loss_scale"] = fp16.loss_scale
            if fp16.loss_scale == 0:
                for key in ("initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis", "min_loss_scale"):
                    values[f"fp16.{key}"] = getattr(fp16, key)
        elif found.bfloat16_config.enabled:
            values["bf16.check_grad_overflow"] = found.bfloat16_config.check_grad_overflow
        values.update(self.zero(found.zero_config))
        for name in ("tensorboard", "csv_monitor"):
            monitor = getattr(found.monitor_config, name)
            keys = ("enabled", "output_path", "job_name") if monitor.enabled else ("enabled",)
            values.update({f"{name}.{key}": getattr(monitor, key) for key in keys})
        return values

    def zero(self, zero):
        stage = int(zero.stage)
        values = {"stage": stage, "reduce_bucket_size": zero.reduce_bucket_size, "sub_group_size": zero.sub_group_size}
        if stage == 3:
            values["stage3_prefetch_bucket_size"] = zero.prefetch_bucket_size
            values["stage3_param_persistence_threshold"] = zero.param_persistence_threshold
            values["stage3_gather_16bit_weights_on_model_save"] = zero.gather_16bit_weights_on_model_save
        for name, least in (("offload_optimizer", 1), ("offload_param", 3)):
            of = getattr(zero, name)
            if stage >= least:
                device = of.device if of else "none"
                values[f"{name}.device"] = getattr(device, "value", device)
                if values[f"{name}.device"] == "nvme":
                    values[f"{name}.nvme_path"] = of.nvme_path and str(of.nvme_path)
        return {f"zero_optimization.{key}": value for key, value in values.items()}

    def dtype(self, dtype):
        torch = self.torch
        names = {None: None, torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
        return names[dtype]

    def optimizer(self, found):
        """As `DeepSpeedEngine._configure_basic_optimizer`."""
        name = found.optimizer_name
        if name is None:
            return {}
        known = name in self.config.DEEPSPEED_OPTIMIZERS or getattr(self.torch.optim, name, None) is not None
        assert known, f"{name} is not a supported DeepSpeed Optimizer"
        params = dict(found.optimizer_params or {})
        if "max_grad_norm" in params:
            raise ValueError("'max_grad_norm' is not supported as an optimizer parameter")
        zero = found.zero_config
        on_host = bool(zero.stage) and bool(zero.offload_optimizer) and zero.offload_optimizer.device != "none"
        weights = [self.torch.nn.Parameter(self.torch.zeros(2))]
        keep = {}
        if name in ("adam", "adamw"):
            decoupled = name == "adamw" or params.pop("adam_w_mode", True)
            params.pop("adam_w_mode", None)
            is_torch = params.pop("torch_adam", False)
            params.pop("fp32_optimizer_states", None)
            if is_torch:
                made = (self.torch.optim.AdamW if decoupled else self.torch.optim.Adam)(
                    weights, **params, foreach=params.pop("foreach", None)
                )
                return self.named({"type": name, **self.group(made, ("lr", "betas", "eps", "weight_decay"))})
            kernel, extra = (self.kernels["adam"][1], {"adamw_mode": decoupled, "fp32_optimizer_states": True}) if on_host else (
                self.kernels["adam"][0], {"adam_w_mode": decoupled})
            bound = self.bind(kernel, weights, params, extra)
            if bound["amsgrad"]:
                raise RuntimeError("FusedAdam does not support the AMSGrad variant.")
            keep = {key: bound[key] for key in ("lr", "betas", "eps", "weight_decay", "bias_correction")}
        elif name == "lion":
            bound = self.bind(self.kernels["lion"][on_host], weights, params, {})
            keep = {key: bound[key] for key in ("lr", "betas", "weight_decay")}
        elif name in self.config.DEEPSPEED_OPTIMIZERS:
            return self.named({"type": name})
        else:
            made = getattr(self.torch.optim, name)(weights, **params)
            keys = ("lr", "momentum", "dampening", "weight_decay", "nesterov")
            return self.named({"type": name, **self.group(made, [key for key in keys if key in made.param_groups[0]])})
        return self.named({"type": name, **keep})

    def bind(self, kernel, weights, params, extra):
        signature = inspect.signature(kernel.__init__)
        bound = signature.bind(None, weights, **params, **extra)
        bound.apply_defaults()
        return bound.arguments

    def group(self, made, keys):
        return {key: made.param_groups[0][key] for key in keys}

    def named(self, values):
        values = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        return {"optimizer.type": values.pop("type"), **{f"optimizer.params.{key}": value for key, value in values.items()}}

    def scheduler(self, found, rate):
        """As `DeepSpeedEngine._scheduler_from_config`."""
        name = found.scheduler_name
        if name is None:
            return {}
        of_torch = self.torch.optim.lr_scheduler
        place = self.schedules if hasattr(self.schedules, name) else of_torch
        assert hasattr(place, name), f"DeepSpeed does not recognize LR scheduler {name}"
        made = getattr(place, name)
        rate = rate if isinstance(rate, (int, float)) else 0.001
        optimizer = self.torch.optim.Adam([self.torch.nn.Parameter(self.torch.zeros(2))], lr=rate)
        params = found.scheduler_params
        made(optimizer, **params)
        bound = inspect.signature(made.__init__).bind(None, optimizer, **params)
        bound.apply_defaults()
        skipped = ("self", "optimizer", "last_batch_iteration", "last_epoch")
        values = {key: value for key, value in bound.arguments.items() if key not in skipped}
        if name == "WarmupLR" and values["warmup_max_lr"] is None:
            values["warmup_max_lr"] = rate
        return {"scheduler.type": name, **{f"scheduler.params.{key}": value for key, value in values.items()}}


def main():
    # What DeepSpeed and torch print is not an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        oracle = Oracle(sys.argv[1])
        for line in sys.stdin:
            answers.write(json.dumps(oracle.read(json.loads(line)), default=str) + "\n")
            answers.flush()


if __name__ == "__main__":
    main()
