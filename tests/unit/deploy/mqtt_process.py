"""A receiver as a process of its own, to be killed: `python mqtt_process.py SITE.toml STATE`."""

import logging
import sys
import threading
from pathlib import Path

from fedkoopman.config.site_file import SiteFile
from fedkoopman.deploy.site.mqtt import Receiver
from fedkoopman.deploy.site.store import Store

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    with Store(Path(sys.argv[2])) as store:
        Receiver(SiteFile.load(sys.argv[1]), store, dt=0.05).run(threading.Event())
