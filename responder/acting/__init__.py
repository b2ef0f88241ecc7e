"""The parts of `actor`: the inbox, the lease, what is due when, the action budget, healing, nodes."""
