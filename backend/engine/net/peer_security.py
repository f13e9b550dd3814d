"""The protection of connections to other nodes: the settings of a listener made ready for use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from backend.engine.config import ConfigError
from backend.engine.config.listener_security import ClientSecurity, SaslClientSettings
from backend.engine.ports.network import Transport
from backend.engine.ports.tls import ClientTls, TlsSettingsError


@dataclass(frozen=True, slots=True)
class PeerSecurity:
    """Shared by every connection to listeners of one name."""

    tls: ClientTls | None = None
    sasl: SaslClientSettings | None = None

    @classmethod
    def of(cls, security: ClientSecurity) -> PeerSecurity:
        """Loads keys and certificates. ConfigError when they cannot be used."""
        try:
            return cls(None if security.tls is None else ClientTls(security.tls), security.sasl)
        except TlsSettingsError as error:
            raise ConfigError(str(error)) from error

    def transport(self, host: str) -> Transport | None:
        """The layer between TCP and the frames towards a host."""
        return None if self.tls is None else self.tls.transport(host)


OPEN: Final = PeerSecurity()
