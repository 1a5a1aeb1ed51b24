"""Everything that fedkoopman takes from Flower, by name; no other module imports Flower.

Flower's public API starts a process per message and polls. So the server loop calls Flower's own
state and handlers, and the node at a site its own client. These are not public, and may change with
any minor release: `NAMES` lists them, `tests/unit/deploy/test_flower_contract.py` says what is
relied on, and `check_version` refuses a release for which that has not been tested.

A name is imported when it is first used: a site's node needs few of them.
"""

import importlib
import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fedkoopman.errors import InputError

TESTED = ("1.41", "1.42")
"""Minor releases of Flower that the contract test and `make test-deploy` have passed with."""

NAMES = {
    # what is sent
    "ConfigRecord": "flwr.app",
    "Error": "flwr.app",
    "Message": "flwr.app",
    "MessageType": "flwr.app",
    "RecordDict": "flwr.app",
    "Metadata": "flwr.app.metadata",
    "make_message": "flwr.app.message.message",
    "remove_content_from_message": "flwr.app.message.message",
    "message_to_proto": "flwr.common.serde",
    "get_all_nested_objects": "flwr.supercore.inflatable.inflatable_object",
    "get_object_tree": "flwr.supercore.inflatable.inflatable_object",
    "iterate_object_tree": "flwr.supercore.inflatable.inflatable_object",
    "no_object_id_recompute": "flwr.supercore.inflatable.inflatable_object",
    "inflate_object_from_contents": "flwr.supercore.inflatable.inflatable_utils",
    # how it is asked for
    "ActivateNodeRequest": "flwr.proto.fleet_pb2",
    "DeactivateNodeRequest": "flwr.proto.fleet_pb2",
    "PullMessagesRequest": "flwr.proto.fleet_pb2",
    "PushMessagesRequest": "flwr.proto.fleet_pb2",
    "PushMessagesResponse": "flwr.proto.fleet_pb2",
    "SendNodeHeartbeatRequest": "flwr.proto.heartbeat_pb2",
    "ConfirmMessageReceivedRequest": "flwr.proto.message_pb2",
    "ConfirmMessageReceivedResponse": "flwr.proto.message_pb2",
    "PullObjectRequest": "flwr.proto.message_pb2",
    "PullObjectResponse": "flwr.proto.message_pb2",
    "PushObjectRequest": "flwr.proto.message_pb2",
    "PushObjectResponse": "flwr.proto.message_pb2",
    "Node": "flwr.proto.node_pb2",
    # the node at a site
    "FleetHttpClient": "flwr.supernode.fleet_http_client",
    # the link at the server
    "SUPERLINK_NODE_ID": "flwr.common.constant",
    "Status": "flwr.common.constant",
    "ErrorCode": "flwr.common.constant",
    "NOOP_FLWR_AID": "flwr.common.constant",
    "NOOP_ACCOUNT_NAME": "flwr.common.constant",
    "NOOP_FEDERATION_ID": "flwr.supercore.constant",
    "NodeStatus": "flwr.supercore.constant",
    "TaskType": "flwr.supercore.constant",
    "FlowerError": "flwr.supercore.error",
    "InMemoryLinkState": "flwr.server.superlink.linkstate.in_memory_linkstate",
    "InMemoryObjectStore": "flwr.supercore.object_store.in_memory_object_store",
    "NoOpFederationManager": "flwr.superlink.federation.noop_federation_manager",
    "fleet_handlers": "flwr.superlink.servicer.fleet",
    # secure aggregation
    "create_shares": "flwr.common.secure_aggregation.crypto.shamir",
    "combine_shares": "flwr.common.secure_aggregation.crypto.shamir",
}
"""Each name, and the module of Flower that has it."""

SETTINGS = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
"""Unless told not to, Flower reports to its makers, looks for updates and installs packages."""


def __getattr__(name: str) -> Any:
    """A name of Flower's."""
    if name not in NAMES:
        raise AttributeError(f"fedkoopman takes nothing called {name} from Flower")
    os.environ.update(SETTINGS)  # read when Flower is imported
    found = getattr(importlib.import_module(NAMES[name]), name, None)
    if found is None:
        found = importlib.import_module(f"{NAMES[name]}.{name}")
    globals()[name] = found
    return found


def check_version() -> str:
    """The installed version of Flower; refuses one that fedkoopman was not tested with."""
    remedy = f"pip install 'flwr=={TESTED[-1]}.*', or a newer fedkoopman"
    try:
        found = version("flwr")
    except PackageNotFoundError:
        raise InputError("Flower is not installed: pip install 'fedkoopman[deploy]'") from None
    if ".".join(found.split(".")[:2]) not in TESTED:
        raise InputError(
            f"Flower {found} is installed, and fedkoopman was tested with "
            f"{' and '.join(TESTED)}: {remedy}"
        )
    return found
