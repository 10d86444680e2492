"""The hub's port, and what strangers say to it."""

from __future__ import annotations

import socket

import hlokit as hk
from hlokit.devices.processes.guard import job_size
from hlokit.devices.processes.hub import Hub
from hlokit.devices.processes.line import Incoming, encoded


def joined(hub: Hub, rank: int, version: str = hk.__version__) -> socket.socket:
    end = socket.create_connection(("127.0.0.1", hub.port), timeout=60)
    end.sendall(encoded({"rank": rank, "secret": "s", "version": version}))
    return end


def test_another_version_is_told_to_all() -> None:
    hub = Hub(2, "s", "127.0.0.1")
    for rank in [joined(hub, 0), joined(hub, 1, "0.0.1")]:
        (message,) = Incoming().add(rank.recv(1000))
        assert message["is"] == "lost"
        assert message["error"]["text"] == f"rank 1 has hlokit 0.0.1, rank 0 has {hk.__version__}"


def test_strangers_are_turned_away() -> None:
    hub = Hub(2, "s", "127.0.0.1")
    ranks = [joined(hub, 0)]
    bad = (
        [1],
        {"rank": 5, "secret": "s"},
        {"rank": 0, "secret": "s"},
        {"rank": 1, "secret": "x"},
        {"rank": [], "secret": "s"},
    )
    texts = [encoded(message) for message in bad] + [b"\xff" * 8, b"\0\0\0\2[]", b"\0\1\0\0" + b"[" * 65536]
    for text in texts:
        with socket.create_connection(("127.0.0.1", hub.port), timeout=60) as stranger:
            stranger.sendall(text)
            assert stranger.recv(1) == b"", text
    ranks.append(joined(hub, 1))
    for rank in ranks:
        assert Incoming().add(rank.recv(1000)) == [{"is": "welcome"}]
    ranks[0].close()  # with rank 0 the hub goes, and says so
    data = b""
    while more := ranks[1].recv(1000):
        data += more
    assert [message["is"] for message in Incoming().add(data)] == ["lost"]
    hub.join(60)


def test_messages_come_in_pieces() -> None:
    incoming, message = Incoming(), {"do": "meet", "value": ["array", "f32", [2]]}
    stream = encoded(message) * 2
    found = [m for k in range(len(stream)) for m in incoming.add(stream[k : k + 1])]
    assert found == [message] * 2


def test_the_launcher_says_how_many_there_are() -> None:
    assert [job_size(e) for e in ({}, {"PMI_SIZE": "4"}, {"OMPI_COMM_WORLD_SIZE": "2"}, {"PMI_SIZE": "x"})] == [
        1,
        4,
        2,
        1,
    ]
