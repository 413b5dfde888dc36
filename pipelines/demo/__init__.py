"""The demo and its generated log: `demo`."""
