"""Settings of `ebbline up`: ``settings`` reads and checks them, ``kept_settings`` keeps them in the data folder."""
