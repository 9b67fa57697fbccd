"""Many runs: side by side in processes, and what comes out of them together."""
