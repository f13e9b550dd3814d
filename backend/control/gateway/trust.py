"""Certificates of servers that the control plane accepts: those that Java's clients and librdkafka take as well."""

from __future__ import annotations

import ssl


def client_context(ca_file: str | None) -> ssl.SSLContext:
    """A client's context that trusts the authorities of a PEM file, or the system's. Raises OSError.

    Signature, dates, purpose and host name of a certificate are checked, but not every rule of RFC 5280. Python 3.13
    made OpenSSL's strict check the default (VERIFY_X509_STRICT), which refuses certificates without an authority key
    identifier. keytool and many companies' authorities make such certificates, and Kafka's other clients take them.
    """
    context = ssl.create_default_context(cafile=ca_file)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def handshake_error(error: ssl.SSLError) -> str:
    """Why a handshake failed, in OpenSSL's words: of a certificate what is wrong with it, else the name of the error.

    As "CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate" or "WRONG_VERSION_NUMBER".
    """
    reason = error.reason or str(error)
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_message:
        return f"{reason}: {error.verify_message.rstrip('.')}"
    return reason
