"""The whole loop on one machine: simulated GPUs, the real Prometheus and Alertmanager, the service itself."""
