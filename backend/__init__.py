"""ebbline: a tiered-log engine that speaks the Kafka protocol, its control plane, and the command that starts both.

``__version__`` is the version of the whole product: the build, `ebbline --version`, the API's description and the
requests of the control plane to brokers read it here.
"""

__version__ = "0.5.0"
