"""What does a connection to somebody of the same run need, so that it is to him and to nobody else?"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING

from cantle.errors import RequestError

if TYPE_CHECKING:
    from cantle.allocations.fleet.certificates import Identity


def context_of(identity: Identity, purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH) -> ssl.SSLContext:
    """What a connection to somebody of the same run needs; with the purpose CLIENT_AUTH, one from somebody.

    Raises RequestError when the identity is none.
    """
    try:
        context = ssl.create_default_context(purpose, cadata=identity.authority)
        context.check_hostname = False  # the authority is the run's own and signs for nobody else
        context.verify_mode = ssl.CERT_REQUIRED
        with open(os.memfd_create("identity", os.MFD_CLOEXEC), "wb") as file:  # the library takes keys from files alone
            file.write((identity.key + identity.certificate).encode("ascii"))
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    except ssl.SSLError as error:
        raise RequestError(
            f"the letter is damaged: its certificates cannot be used ({error.reason or error})"
        ) from None
    return context
