"""What machines and tools print: topologies, link and port states, logs of NCCL and of nccl-tests, read as records."""
