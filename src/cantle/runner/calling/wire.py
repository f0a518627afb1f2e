"""What do a runner and its function workers say to each other? Datagrams, each a marshalled tuple.

Both run the same interpreter, so that its own format is safe, and the quickest there is. Calls wait in the kernel's queue, from
which the runner takes back those that have not begun: what a worker has read, it begins.
"""

from __future__ import annotations

import marshal
from typing import Any

MOST_BYTES = 64 << 10
"""No datagram is longer; what is, lies in a file, and the datagram tells which."""

CALL = 0
"""(CALL, task, attempt, after, poke, shown, function, arguments, given).

`after`: (task, attempt) of the call before it that must be done, or None. `poke`: the runner wants to hear at once when it is
over, even if that is soon. `shown`: the number that the task knows itself by. `arguments`: pickled, or the path of a file that
holds them. `given`: for each task that it takes (number, bytes, a path, or None for what was made by this worker).
"""
DEFINE = 1
"""(DEFINE, digest, body)."""
IN_FILE = 2
"""(IN_FILE, path): the message lies there."""

READY = 10
"""(READY,): up, the worker listens from now on."""
OVER = 11
"""(OVER, task, attempt, status, result, size, began, ended, cpu_s, peak_mib, out_at, err_at, detail).

`result` is bytes, or the path of a file of that `size`; of a failed one its exception. `out_at` and `err_at` are where its
output ends. `began` and `ended` count from when the machine began.
"""

DONE, FAILED, NEVER_BEGAN = 0, 1, 2

encode = marshal.dumps


def decode(data: bytes) -> tuple[Any, ...]:
    """The message in a datagram, or in the file that it names. Raises OSError when that is gone."""
    message: tuple[Any, ...] = marshal.loads(data)
    if message[0] == IN_FILE:
        with open(message[1], "rb") as file:
            message = marshal.loads(file.read())
    return message
