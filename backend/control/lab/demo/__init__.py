"""The demo workload of `ebbline up`: ``topics`` (written), ``readers`` (consumer groups), ``workload`` (the thread)."""
