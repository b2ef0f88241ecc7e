"""Shared by all tests: hypothesis profiles. HYPOTHESIS_PROFILE=soak runs the long ones by hand."""

import os

from hypothesis import HealthCheck, settings

# Deadlines would time the machine, not the code; what is found is replayed by the printed blob.
settings.register_profile(
    "ci", deadline=None, print_blob=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", settings.get_profile("ci"), max_examples=50_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
