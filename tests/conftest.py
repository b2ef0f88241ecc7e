"""Shared by all tests: surroundings, and hypothesis profiles. HYPOTHESIS_PROFILE=soak runs the long ones by hand."""

import os
import signal

from hypothesis import HealthCheck, settings

# Deadlines would time the machine, not the code. A change is judged by the same examples as the one before it; the
# long runs look for new ones, which the printed blob replays.
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    print_blob=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("soak", settings.get_profile("ci"), derandomize=False, max_examples=50_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# What stands around the tests must not matter to them: a terminal's nature, somebody's cluster, a proxy.
AROUND = (
    "TERM", "COLORTERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE",
    "KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT",
)  # fmt: skip
for name in AROUND:
    os.environ.pop(name, None)
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost,::1"

# A shell's background job and nohup ignore these, and what a test starts and then interrupts would too.
for number, action in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, action)
