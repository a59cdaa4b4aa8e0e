"""Names of the allowed differences from DeepSpeed's reader: those in backticks in COMPAT.md."""

import re

# The difference has no effect.
SAME = "same"

# Sections whose values DeepSpeed checks when it reads them.
MODELS = re.compile(
    r"^(zero_optimization|fp16|bf16|tensorboard|csv_monitor|wandb|comet|comms_logger|timers\.throughput|tensor_parallel"
    r"|compile|hybrid_engine|weight_quantization)\."
)


def of_our_refusal(case, error):
    """The rule of a file that remuda refuses and DeepSpeed reads."""
    code, text = error["code"], error["text"]
    key = re.search("`([^`]*)`", text)
    key = key[1] if key else ""
    if code == "G010":
        return "refused-settings"
    if key == "fp16.initial_scale_power" and code == "G008":
        return "scale-range"
    if code in ("G007", "G008", "G017") and not MODELS.match(key):
        return "checked-types"
    if code == "G004" and key in ("tensorboard", "csv_monitor", "wandb", "comet"):
        return "auto-keys"
    if code == "G004" and key in ("optimizer.params", "scheduler.params", "timers"):
        return "checked-types"
    if code == "G016" and "auto" in case["text"]:
        return "auto-keys"
    if code == "G017" or code == "G005" and is_auto(case, key):
        return "auto-keys"
    if code == "G018" and "nvme_path" in text:
        return "nvme-path"
    if code == "G002" and "too large" in text:
        return "number-range"
    if code == "G002" and "is not a number" in text:
        return "number-words"
    return None


def is_auto(case, key):
    """Whether a key has the value `auto`, with which DeepSpeed drops it."""
    return re.search(f"['\"]?{re.escape(key)}['\"]?\\s*:\\s*['\"]?auto", case["text"]) is not None


def of_their_refusal(case, refused):
    """The rule of a file that DeepSpeed refuses and remuda reads."""
    kind, text = refused["type"], refused["text"]
    if kind == "TypeError" and "auto" in case["text"] and is_batch(text):
        return "auto-batch"
    if kind == "TypeError" and "argument after ** must be a mapping, not NoneType" in text and "scheduler" in case["text"]:
        return "no-params"
    if kind == "AttributeError" and "'NoneType' object has no attribute 'keys'" in text and "scheduler" in case["text"]:
        return "no-params"
    if "keep_in_fp32_modules must be" in text:
        return "unused-values"
    if kind == "IndexError" and "'''" in case["text"]:
        return "first-line-text"
    return None


def is_batch(text):
    """Whether an error is that of arithmetic with the batch sizes."""
    return bool(re.search("unsupported operand type|not supported between instances|can't multiply", text))


def of_value(case, key, one, other):
    """The rule of a value that differs."""
    if key == "optimizer.type" and str(one).lower() == str(other).lower():
        return SAME
    if key == "gradient_clipping" and other == "auto":
        return "auto-keys"
    if one == "absent" and re.fullmatch(r"scheduler\.params\.(cycle_min_mom|cycle_max_mom|decay_mom_rate)", key):
        # Without `cycle_momentum` they have no effect.
        return SAME
    if isinstance(one, (int, float)) and isinstance(other, (int, float)) and one == other:
        return SAME
    return None
