"""serve: the life of a plugin's process."""

import contextlib
import gc
import logging
import os
import select
import signal
import socket
import stat
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Optional, Sequence

from . import handshake
from .scorer import Items, Query
from .server import Methods, Server
from .service import Description, Services

log = logging.getLogger("likeness_plugin")


@dataclass(frozen=True)
class TLS:
    """PEM files of a server that is reached by host and port: its certificate and key, and who may call."""

    certificate: str
    key: str
    clients: str


def serve(
    score: Callable[[Query, Items], Any],
    *,
    name: str,
    version: str,
    max_items: int = 0,
    max_bytes: int = 0,
    parallel: int = 1,
    cost: float = 0.0,
    text: bool = False,
    payload: bool = False,
    payload_fields: Sequence[str] = (),
    vectors: bool = False,
    listen: Optional[str] = None,
    tls: Optional[TLS] = None,
    grace: float = 10.0,
) -> None:
    """Serves score until the host is done with it, or SIGTERM.

    score(query, items) returns a score for each item, in order: a list or an array,
    higher is more relevant, NaN (or None) for an item that it cannot score. It runs in
    `parallel` threads. It raises QueryError for a query that it cannot read, TooLarge
    for more than it takes at once, Unavailable for what may pass; any other exception
    fails the call, and its traceback goes to the log.

    name is for people. version changes with every change of a score: scores that were
    kept of another version are not used. max_items and max_bytes bound one call, 0 is
    no limit but the connection's. cost is what scoring one item costs, in a unit of yours. text: score reads
    query.text, and a query without is refused. payload_fields names what it reads of
    the items' payload, payload=True asks for all of it. vectors=True asks for the
    items' stored vectors.

    listen serves at an address instead, for a host that did not start this process:
    "unix:///folder/socket" or "host:port". The latter takes tls. SIGTERM then waits
    `grace` seconds for the calls that run.
    """
    d = Description(name, version, max_items, max_bytes, parallel, cost, text, payload, tuple(payload_fields), vectors)
    d.check()
    if not logging.getLogger().handlers:
        logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    if listen is None and not handshake.started_by_host():
        raise SystemExit(
            f"{name} is a plugin of likeness, which starts it: give its path in the configuration (plugins.NAME.path), "
            "or run `likeness plugin check` on it"
        )
    gc.collect()
    gc.freeze()  # what was loaded so far stays
    with contextlib.ExitStack() as folders:
        done = _run(score, d, listen, tls, grace, folders)
    if not done:
        sys.stderr.flush()
        os._exit(0)  # a call still runs in its thread, which Python would wait for


def _run(score, d: Description, listen, tls, grace: float, folders: contextlib.ExitStack) -> bool:
    """Serves until told to stop; whether no call is left."""
    stop, methods = threading.Event(), Methods()
    server = Server(methods, d.parallel)
    Services(score, d, stop.set, lambda: server.draining).methods(methods)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if listen is None:
        # Ctrl-C in a terminal reaches every process of its group; it is the host that decides.
        signal.signal(signal.SIGINT, lambda *_: None)
        _plugin(server, folders)
        grace = 1.0  # go-plugin kills after two seconds
    else:
        signal.signal(signal.SIGINT, lambda *_: stop.set())
        try:
            _listen(server, listen, tls, folders)
        except (OSError, ValueError) as e:
            raise SystemExit(f"{d.name}: {e}") from None
        log.info("%s %s listens at %s", d.name, d.version, listen)
    stop.wait()
    done = server.drain(grace)
    if not done:
        log.warning("calls still ran after %g s", grace)
    server.close()
    return done


def _plugin(server: Server, folders: contextlib.ExitStack) -> None:
    """Listens for the host that started this process and tells it where."""
    app_version = handshake.version()
    folder = folders.enter_context(handshake.socket_folder())
    context, der = handshake.mutual_tls(folder)
    path = os.path.join(folder, "plugin.sock")
    server.listen(_unix(path), context)
    threading.Thread(target=_watch_parent, args=(os.getppid(), folders), daemon=True).start()
    handshake.say(app_version, path, der)


def _watch_parent(parent: int, folders: contextlib.ExitStack) -> None:
    """Ends the process when its parent does, at once: nobody waits for an answer any more.

    Linux tells by a file. (PR_SET_PDEATHSIG would tell of the thread that started this
    process, which a host may end while it lives.) Elsewhere one looks every second.
    """
    try:
        ended = select.poll()
        ended.register(os.pidfd_open(parent), select.POLLIN)
    except (AttributeError, OSError):
        while os.getppid() == parent:
            time.sleep(1.0)
    else:
        if os.getppid() == parent:
            ended.poll()
    folders.close()
    os._exit(1)


def _unix(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen(128)
    return listener


def _listen(server: Server, address: str, tls: Optional[TLS], folders: contextlib.ExitStack) -> None:
    if address.startswith("unix://"):
        path = address[len("unix://") :]
        if not os.path.isabs(path):
            raise ValueError(f"listen is {address!r}; give unix:///folder/socket")
        _own_folder(os.path.dirname(path))
        server.listen(_unix(path))
        folders.callback(_unlink, path)
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f'listen is {address!r}; give "unix:///folder/socket" or "host:port"')
    if tls is None:
        raise ValueError(f"listen is {address!r} without tls; give TLS(certificate, key, clients), or listen at a unix socket")
    context = handshake.server_context(tls.certificate, tls.key)
    context.load_verify_locations(cafile=tls.clients)
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    server.listen(socket.create_server((host, int(port)), family=family, backlog=128), context)


def _own_folder(folder: str) -> None:
    """A socket has no other lock than its folder, so others must not enter it."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    info = os.stat(folder)
    if info.st_uid != os.getuid() or stat.S_IMODE(info.st_mode) & 0o077:
        raise PermissionError(f"{folder} is open to others (mode {stat.S_IMODE(info.st_mode):03o}); chmod 700 it")


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
