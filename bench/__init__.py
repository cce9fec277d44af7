"""Speed and size as ratios: every number stands beside a baseline of the same run on the same machine."""
