"""Parts of the pages about the whole cluster: alerts, health, totals, brokers, quorum, activity. Pure."""
