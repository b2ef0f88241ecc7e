"""A vLLM server's page: the gauges and counters that rules read, labelled and formatted as vLLM does."""

from dataclasses import dataclass

PORT = 8000


@dataclass(frozen=True, slots=True)
class Reading:
    """One engine's figures."""

    running: int
    waiting: int
    kv_cache_ratio: float
    finished: int
    prompt_tokens: int
    generation_tokens: int


def render(reading: Reading, model_name: str, *, old_cache_name: bool = False) -> str:
    """The page of one pod; `old_cache_name` as before vLLM renamed the cache gauge."""
    cache = "vllm:gpu_cache_usage_perc" if old_cache_name else "vllm:kv_cache_usage_perc"
    labels = f'engine="0",model_name="{model_name}"'
    stopped = f'engine="0",finished_reason="stop",model_name="{model_name}"'
    families = (
        (
            "vllm:num_requests_running",
            "gauge",
            "Number of requests in model execution batches.",
            reading.running,
            "",
        ),
        (
            "vllm:num_requests_waiting",
            "gauge",
            "Number of requests waiting to be processed.",
            reading.waiting,
            "",
        ),
        (cache, "gauge", "KV-cache usage. 1 means 100 percent usage.", round(reading.kv_cache_ratio, 6), ""),
        ("vllm:num_preemptions", "counter", "Cumulative number of preemption from the engine.", 0, "_total"),
        (
            "vllm:prompt_tokens",
            "counter",
            "Number of prefill tokens processed.",
            reading.prompt_tokens,
            "_total",
        ),
        (
            "vllm:generation_tokens",
            "counter",
            "Number of generation tokens processed.",
            reading.generation_tokens,
            "_total",
        ),
    )
    lines = []
    for name, kind, text, value, suffix in families:
        lines += [
            f"# HELP {name}{suffix} {text}",
            f"# TYPE {name}{suffix} {kind}",
            f"{name}{suffix}{{{labels}}} {float(value)}",
        ]
    lines += [
        "# HELP vllm:request_success_total Count of successfully processed requests.",
        "# TYPE vllm:request_success_total counter",
        f"vllm:request_success_total{{{stopped}}} {float(reading.finished)}",
    ]
    return "\n".join(lines) + "\n"
