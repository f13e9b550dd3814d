"""Options and client of commands that ask the brokers themselves, as any client does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from backend.cli.local.local_settings import settings_beside_up
from backend.cli.shared.api_session import Exit
from backend.cli.shared.options import DATA_DEFAULT, DataOption, OutputOptions, fail

if TYPE_CHECKING:
    from backend.control.gateway.kafka_client import Gateway


@dataclass(frozen=True, kw_only=True)
class BrokerOptions:
    """The brokers that a command asks."""

    bootstrap_server: Annotated[
        str | None, typer.Option("--bootstrap-server", help="host:port, ... (default: the brokers of the data folder).")
    ] = None
    data: DataOption = DATA_DEFAULT

    def gateway(self) -> Gateway:
        """A client of the brokers that were named, else of the data folder's cluster, embedded or attached.

        ValueError for an address that is none, GatewayError for client properties that cannot be used.
        """
        # The client is imported where it is used: every command of `ebbline` would wait for it.
        from backend.control.gateway.client_security import read_security
        from backend.control.gateway.connection_pool import ConnectionPool
        from backend.control.gateway.kafka_client import Gateway, parse_bootstrap
        from backend.data_folder.data_folder import DataFolder, DataFolderError

        if self.bootstrap_server is not None:
            return Gateway(parse_bootstrap(self.bootstrap_server))
        try:
            identity = DataFolder(self.data).read_identity()
        except DataFolderError as error:
            fail(str(error), Exit.USAGE)
        if identity is None:
            text = f"The folder {self.data} holds no cluster: name it with --data, or brokers with --bootstrap-server."
            fail(text, Exit.USAGE)
        settings = settings_beside_up(data_dir=self.data)
        if identity.brokers == 0 and settings.attach is None:
            text = f"The folder {self.data} is of an attached cluster: name its brokers with --bootstrap-server."
            fail(text, Exit.USAGE)
        security = None if settings.client_properties is None else read_security(settings.client_properties)
        return Gateway(parse_bootstrap(settings.bootstrap_servers), pool=ConnectionPool(security=security))


@dataclass(frozen=True, kw_only=True)
class BrokerReportOptions(BrokerOptions, OutputOptions):
    """The options of a command that asks brokers and shows their answer."""
