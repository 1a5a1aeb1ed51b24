"""The two apps that Flower starts when its own commands are used.

    flower-supernode --insecure --superlink HOST:PORT --node-config 'socket="/run/site/agent.sock"'
    flwr run DIRECTORY-OF-THIS-PACKAGE/flower/app NAME --run-config 'settings="/srv/serve.json"'

They do what `fedkoopman join` and `fedkoopman serve` do, in a new process for each message. A
site's data stay behind its agent, and each machine runs the code of its own installation.
"""

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.superlink.grid import HttpGrid

from fedkoopman.deploy.flower.courier import ask_agent, body_of, content_of
from fedkoopman.errors import InputError

client_app = ClientApp()
server_app = ServerApp()


@client_app.query()
def forward(message: Message, context: Context) -> Message:
    """Give a message to the site agent, and its answer back."""
    path = context.node_config.get("socket")
    if not isinstance(path, str) or not path:
        raise InputError("no agent is named: --node-config 'socket=\"/path/to/agent.sock\"'")
    return Message(content_of(ask_agent(Path(path), body_of(message.content))), reply_to=message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Run the server loop with settings that `fedkoopman serve` wrote."""
    from fedkoopman.deploy.server.loop import run_on

    settings = context.run_config.get("settings")
    if not isinstance(settings, str) or not settings:
        raise InputError("no settings are named: --run-config 'settings=\"/path/serve.json\"'")
    if not isinstance(grid, HttpGrid):
        raise InputError("the server loop runs on Flower's deployment runtime only")
    run_on(grid, Path(settings))
