"""What the user gives: model, accelerator, cluster, workload, plan, profile."""
