"""Parts of the pages about the whole cluster: alerts and causes, health, totals, brokers, quorum, activity. Pure."""
