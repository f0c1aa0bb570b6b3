"""Entry of the frozen `kvstudio`."""

import sys

from kvstudio.launch import process_guard

# A frozen program has no Python beside it: it guards the processes it starts by starting itself.
if sys.argv[1:2] == [process_guard.GUARD_FLAG]:
    sys.exit(process_guard.main(int(sys.argv[2])))

from kvstudio.__main__ import main

sys.exit(main())
