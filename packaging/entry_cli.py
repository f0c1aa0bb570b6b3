"""Entry of the frozen `kvstudio-cli`."""

import sys

from kvstudio.cli import main

sys.exit(main())
