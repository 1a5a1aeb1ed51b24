"""`python -m fedkoopman.cli`, the same as the script `fedkoopman`."""

import sys

from fedkoopman.cli.app import main

sys.exit(main())
