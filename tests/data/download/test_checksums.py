import hashlib

import pytest

from privet.data import ChecksumError
from privet.data.download.checksums import require_md5, require_sha256


@pytest.mark.parametrize(("require", "kind"), [(require_md5, "md5"), (require_sha256, "sha256")])
def test_only_the_bytes_with_the_checksum_pass(require, kind):
    digest = hashlib.new(kind, b"bytes").hexdigest()
    require("the file", b"bytes", digest)
    with pytest.raises(ChecksumError, match=f"the file has .* instead of {digest}"):
        require("the file", b"Bytes", digest)
