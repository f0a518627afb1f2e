"""Does a plug-in keep what its seam promises? Conformance checks, for ours and for other people's.

Each check raises AssertionError with a sentence that says which promise was broken. `docs/extending/` has a page, with an
example, for each sort of plug-in.

    def test_my_reader_keeps_its_promises(tmp_path):
        check_reader(MyReader, good=["study.mine"], bad=["broken.mine"])
"""

from cantle.testing.engines import Rig, check_allocation, check_engine
from cantle.testing.hosted import check_hosted
from cantle.testing.launchers import check_launcher
from cantle.testing.packers import check_packer
from cantle.testing.providers import check_provider
from cantle.testing.readers import check_reader
from cantle.testing.scalers import check_scaler
from cantle.testing.submission import check_batch_system

__all__ = [
    "Rig",
    "check_allocation",
    "check_batch_system",
    "check_engine",
    "check_hosted",
    "check_launcher",
    "check_packer",
    "check_provider",
    "check_reader",
    "check_scaler",
]
