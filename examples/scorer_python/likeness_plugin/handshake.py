"""go-plugin's handshake: a cookie, the versions, a socket, a certificate each, one line on stdout."""

import base64
import datetime
import os
import ssl
import sys
import tempfile

COOKIE_KEY, COOKIE_VALUE = "LIKENESS_PLUGIN", "b7f4c1a2-scorer"
CORE_VERSION = 1  # of go-plugin's line
VERSIONS = (1,)  # of likeness.plugin.v1 that this package speaks


def started_by_host() -> bool:
    return os.environ.get(COOKIE_KEY) == COOKIE_VALUE


def version() -> int:
    """The newest version that host and plugin speak; without one the plugin's, which the host refuses by name."""
    said = os.environ.get("PLUGIN_PROTOCOL_VERSIONS", "")
    host = {int(v) for v in said.split(",") if v.strip().isdigit()}
    common = host.intersection(VERSIONS)
    if host and not common:
        print(
            f"the host speaks version {said} of the plugin protocol, this plugin {', '.join(map(str, VERSIONS))}: "
            "update the older of the two",
            file=sys.stderr,
            flush=True,
        )
    return max(common or VERSIONS)


def socket_folder() -> tempfile.TemporaryDirectory:
    """A folder that only this user can enter; the host may say where."""
    return tempfile.TemporaryDirectory(prefix="likeness-plugin-", dir=os.environ.get("PLUGIN_UNIX_SOCKET_DIR") or None)


def mutual_tls(folder: str) -> tuple[ssl.SSLContext, str]:
    """The server's side of AutoMTLS, and the certificate as the line has it."""
    host = os.environ.get("PLUGIN_CLIENT_CERT", "")
    if not host:
        raise SystemExit("the host offers no mutual TLS; set AutoMTLS in its go-plugin ClientConfig")
    der, pem = certificate()
    path = os.path.join(folder, "certificate.pem")
    try:  # ssl reads keys from files only; this one lives for the moment, in a folder of our own
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as f:
            f.write(pem)
        context = server_context(path, path)
    finally:
        os.unlink(path)
    context.load_verify_locations(cadata=host)
    return context, base64.b64encode(der).decode().rstrip("=")


def server_context(certificate_file: str, key_file: str) -> ssl.SSLContext:
    """TLS of a server whose clients must have a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificate_file, key_file)
    return context


def certificate() -> tuple[bytes, bytes]:
    """A certificate of our own for localhost, as DER, and with its key as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.DER), pem


def say(app_version: int, path: str, der: str) -> None:
    """Prints the line. From then on what is printed goes to stderr: the host reads no more of stdout."""
    line = f"{CORE_VERSION}|{app_version}|unix|{path}|grpc|{der}"
    if os.environ.get("PLUGIN_MULTIPLEX_GRPC"):
        line += "|false"
    print(line, flush=True)
    os.dup2(2, 1)
