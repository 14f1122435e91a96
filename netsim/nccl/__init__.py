"""From a topology to what NCCL would run on it: graph search, channels, cost model and choice, by version."""
