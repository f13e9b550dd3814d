"""`ebbline up`: starts backend, pipeline and dashboard, keeps them running, stops them in order."""
