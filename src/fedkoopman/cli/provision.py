"""`fedkoopman provision`: keys, certificates and one sealed kit per site."""

from pathlib import Path
from typing import Annotated

import typer

from fedkoopman.cli.closing import Facts
from fedkoopman.cli.options import argument, option, whole
from fedkoopman.cli.process import tell_next

EXAMPLE = """
fedkoopman init swings --example pendulum
fedkoopman provision swings/study.toml --sites lab-a,lab-b,lab-c --host learn.example.org
"""


def provision(
    study: Annotated[Path, argument("STUDY.toml", "A study file.")],
    sites: Annotated[
        str | None,
        option(
            "NAME,NAME",
            "Sites to enrol, in the order of sites.files; those enrolled before stay as they "
            "are. Otherwise the names in the study's site files, if they are on this machine.",
        ),
    ] = None,
    fleet: Annotated[
        Path | None, option("DIR", "The fleet's directory; otherwise fleet beside the study.")
    ] = None,
    host: Annotated[
        list[str] | None,
        option("NAME", "Name or address by which sites reach the server; may be repeated."),
    ] = None,
    revoke: Annotated[
        list[str] | None, option("NAME", "A site that may no longer take part; may be repeated.")
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Make a new server certificate, of the same authority.")
    ] = False,
    days: Annotated[
        int, option("N", "Days that a new server certificate holds.", parser=whole(1, 3650))
    ] = 365,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No keys and no TLS: for trying it on one machine.")
    ] = False,
) -> Facts:
    """Make keys, certificates and a sealed kit per site; again, to add, revoke or renew."""
    from fedkoopman.deploy.provisioning.provision import provision as make
    from fedkoopman.paths import folder_name, shown

    names = None if sites is None else [name.strip() for name in sites.split(",")]
    done = make(
        study,
        names,
        fleet=fleet,
        hosts=host or (),
        insecure=insecure,
        revoke=revoke or (),
        renew=renew,
        days=days,
    )
    facts = {
        "fleet": done.fleet,
        "server": done.server,
        "sites": [{"name": one.name, "revoked": one.revoked} for one in done.roster.sites],
        "codes": done.codes,
        "done": done.said,
    }
    for line in done.said:
        typer.echo(line)
    for name, code in done.codes.items():
        typer.echo(f"unlock code of {name}: {code}")
    if done.codes:
        kept = shown(done.fleet / "codes.txt")
        typer.echo(
            "give each site its kit, and send its code another way, such as by telephone; codes "
            f"are kept in {kept}"
        )
    if not done.said:
        typer.echo(f"{shown(done.fleet)} is complete: nothing to do")
    if revoke and not done.codes:
        return facts  # no new site joins, and a running server continues
    typer.echo(f"at a site, beside its kit: fedkoopman join site.toml --server {done.server}")
    elsewhere = () if fleet is None else ("--fleet", fleet)
    tell_next("serve", study, *elsewhere, "--out", Path("runs") / folder_name(done.study.name))
    return facts
