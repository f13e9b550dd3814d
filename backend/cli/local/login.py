"""`ebbline login`: a link that signs a browser in to the dashboard, made on the machine that has the data folder."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from backend.cli.local.local_settings import LocalDataOption, identity_of, refuse, settings_beside_up


def login(
    data: LocalDataOption = None,
    end_sessions: Annotated[
        bool, typer.Option("--end-sessions", help="First sign out every browser that is signed in.")
    ] = False,
) -> None:
    """Print a link that signs one browser in to the dashboard, once, within 15 minutes."""
    from backend.data_folder.dashboard_login import KEY_ASKED_FOR_S, PROVIDER_HINT, DashboardLogin, login_url
    from backend.data_folder.data_folder import DataFolder, DataFolderError
    from backend.supervisor.children.process_health import provider_signs_in

    settings = settings_beside_up(data_dir=data)
    try:
        identity_of(settings)
        sign_in = DashboardLogin(DataFolder(settings.data_dir).run)
        if end_sessions:
            sign_in.end_sessions()
        if provider_signs_in(settings.app_url):
            print(settings.dashboard_url)
            print(PROVIDER_HINT, file=sys.stderr)
            return
        key = sign_in.new_key(time.time(), KEY_ASKED_FOR_S)
    except DataFolderError as error:
        refuse(error)
    except OSError as error:
        refuse(
            f"The folder {settings.data_dir} takes no key ({error.strerror}): be the account that runs `ebbline up`."
        )
    print(login_url(settings.dashboard_url, key))
    print(f"It works once, within {KEY_ASKED_FOR_S // 60} minutes.", file=sys.stderr)
