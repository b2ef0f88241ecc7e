"""The chain from rules to targets, verified: without a cluster by `check`, in life by `doctor`."""
