"""Columns that may differ between runs that are otherwise the same: who made a row, when, and how long it took."""

CIRCUMSTANCES = (
    *("executor", "attempt", "started_at", "finished_at", "peak_mem_bytes", "row_sha256", "curve_sha256"),
    *("wall_s", "queue_s", "train_s", "eval_s", "data_s", "step_ms_median", "tokens_per_s"),
    *("git_sha", "git_dirty"),  # somebody may commit meanwhile
    "n_visible_devices",  # of several GPUs a worker sees its own
)
