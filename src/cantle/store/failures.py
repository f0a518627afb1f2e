"""What does an error of the operating system mean to the person who meets it?"""

from __future__ import annotations

import errno

_WORDS = {
    errno.ENOSPC: "no space is left on its disk",
    errno.EDQUOT: "your disk quota is used up",
    errno.EROFS: "its file system is read-only",
    errno.EIO: "its disk, or the network on the way there, reports an error",
    errno.EFBIG: "it would pass the largest allowed file size (see `ulimit -f`)",
    errno.EACCES: "permission denied",
    errno.EPERM: "the operation is not permitted",
    errno.ESTALE: "the file server no longer knows the file",
    errno.ENOENT: "it does not exist",
    errno.ENOTDIR: "a part of its path is not a directory",
    errno.EEXIST: "something with that name is in the way",
    errno.EMFILE: "this process has too many open files (see `ulimit -n`)",
    errno.ENAMETOOLONG: "its path is too long",
}

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors that go away when somebody makes room."""


def in_words(error: OSError) -> str:
    """The cause as the middle of a sentence, without the file's name."""
    return _WORDS.get(error.errno or 0) or error.strerror or str(error)


def mend(error: OSError) -> str:
    """What the user can do about it, as the start of a sentence."""
    if error.errno in FULL:
        return "Make room"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "Make it writable"
    return "Mend that"
