"""What NCCL runs, from a plan (channels, rings, trees, protocol, chunks, costs) to operations; `netsim.nccl` makes plans."""
