"""Keys and certificates for one test run, made with `cryptography`: an authority, and whom it vouches for."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

STORE_PASSWORD: Final = "store-secret"
KEY_PASSWORD: Final = "key-secret"
LIFE: Final = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A private key and its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    issuer: x509.Certificate

    @property
    def key_pem(self) -> str:
        return self._key_pem(NoEncryption())

    @property
    def encrypted_key_pem(self) -> str:
        return self._key_pem(BestAvailableEncryption(KEY_PASSWORD.encode()))

    def _key_pem(self, encryption: KeySerializationEncryption) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write_pem(self, path: Path) -> Path:
        """Key and certificate in one file."""
        path.write_text(self.key_pem + self.certificate_pem)
        return path

    def write_pkcs12(self, path: Path) -> Path:
        """Key, certificate and its issuer in one store, as keytool makes them."""
        encryption = BestAvailableEncryption(STORE_PASSWORD.encode())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(b"broker", self.key, self.certificate, [self.issuer], encryption)
        )
        return path


class Authority:
    """A new certificate authority.

    `identifiers`: whether its certificates carry the key identifiers and the key usage that RFC 5280 asks for. keytool
    and many companies' authorities leave them out, and Python from 3.13 on refuses such certificates by default.
    """

    def __init__(self, name: str = "test authority", *, identifiers: bool = True) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._identifiers = identifiers
        self.certificate = self._signed(
            self._name, self._key.public_key(), x509.BasicConstraints(ca=True, path_length=None)
        )

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write(self, path: Path) -> Path:
        path.write_text(self.pem)
        return path

    def identity(self, name: str, *, hosts: tuple[str, ...] = ("127.0.0.1", "localhost")) -> Identity:
        """A key with a certificate for a name and hosts."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        certificate = self._signed(_name(name), key.public_key(), alternatives)
        return Identity(key, certificate, self.certificate)

    def _signed(
        self, name: x509.Name, key: ec.EllipticCurvePublicKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        authority = isinstance(extension, x509.BasicConstraints)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - LIFE)
            .not_valid_after(now + LIFE)
            .add_extension(extension, critical=authority)
        )
        if self._identifiers:
            issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            builder = builder.add_extension(issuer, critical=False)
            builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            builder = builder.add_extension(_key_usage(authority), critical=True)
        return builder.sign(self._key, hashes.SHA256())


def _key_usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
