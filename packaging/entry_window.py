"""Entry of the frozen `kvstudio`."""

import sys

from kvstudio.__main__ import main

sys.exit(main())
