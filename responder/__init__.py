"""Turns GPU alerts into scaling of Kubernetes workloads: once for each cause, and explained."""
