"""`python -m weft.cli`."""

from __future__ import annotations

import sys

from weft.cli.main import main

sys.exit(main())
