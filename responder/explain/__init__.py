"""What would be decided, without a cluster and without acting."""
