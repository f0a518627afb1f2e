"""Who may join? Whoever has a certificate of this run's own authority, which lives as long as its conductor.

The authority's key is thrown away once the two certificates are made: one for the conductor, one for all of its runners. Its
name is in each of them, so that an old one can be told from a stranger's.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, CertificateBuilder

_LIFE = timedelta(days=400)
"""Longer than any allocation. The keys are useless as soon as the conductor has gone."""
_CLOCKS = timedelta(days=2)
"""So far may a machine's clock be behind the conductor's without its taking the certificate for one of the future."""


class Identity(msgspec.Struct, frozen=True):
    """A certificate and its key, as PEM, and the authority by which the other side's is checked."""

    authority: str
    certificate: str
    key: str


def make_identities(run: str) -> tuple[Identity, Identity]:
    """For a run of this name: the conductor's identity, and that of its runners."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509 import (
        BasicConstraints,
        CertificateBuilder,
        ExtendedKeyUsage,
        KeyUsage,
        Name,
        NameAttribute,
        random_serial_number,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    now = datetime.now(UTC)

    def named(role: str) -> Name:
        # X.509 allows 64 characters; the end of a run's name is what differs.
        return Name(
            [
                NameAttribute(NameOID.ORGANIZATION_NAME, "cantle"),
                NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, run[-64:] or "run"),
                NameAttribute(NameOID.COMMON_NAME, role),
            ]
        )

    def builder(role: str, key: EllipticCurvePrivateKey) -> CertificateBuilder:
        return (
            CertificateBuilder()
            .subject_name(named(role))
            .issuer_name(named("authority"))
            .public_key(key.public_key())
            .serial_number(random_serial_number())
            .not_valid_before(now - _CLOCKS)
            .not_valid_after(now + _LIFE)
        )

    def pem(certificate: Certificate) -> str:
        return certificate.public_bytes(Encoding.PEM).decode()

    signing = ec.generate_private_key(ec.SECP256R1())
    authority = pem(
        builder("authority", signing)
        .add_extension(BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            KeyUsage(False, False, False, False, False, key_cert_sign=True, crl_sign=True, encipher_only=False,
                     decipher_only=False),
            critical=True,
        )
        .sign(signing, hashes.SHA256())
    )  # fmt: skip

    def identity(role: str) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            builder(role, key)
            .add_extension(BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
            )
            .sign(signing, hashes.SHA256())
        )
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return Identity(authority, pem(certificate), text)

    return identity("conductor"), identity("runner")
