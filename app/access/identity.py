"""The user of the page, and their role. `control/operations` checks again on every call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import streamlit as st

OPERATOR: Final = "operator"
VIEWER: Final = "viewer"
ROLE_CLAIM: Final = "role"
READ_ONLY: Final = "Read-only: ask for the operator role."


@dataclass(frozen=True, slots=True)
class User:
    """The name that the audit shows, and a role."""

    name: str
    role: str
    can_sign_out: bool = False
    must_sign_in: bool = False

    @property
    def may_write(self) -> bool:
        return self.role == OPERATOR

    @property
    def label(self) -> str:
        """Name and role, the role once."""
        return self.name if self.name.endswith(self.role) else f"{self.name} · {self.role}"

    @property
    def explanation(self) -> str:
        if self.can_sign_out:
            return "Signed in. " + ("May change the cluster." if self.may_write else READ_ONLY)
        return "Signed in with a key of this machine's `ebbline login`: the operator."


def user_of(claims: Mapping[str, Any]) -> User:
    """The signed-in user, a viewer without the role's claim. Without an ``[auth]`` section the local operator.

    Streamlit says ``is_logged_in`` only when that section exists.
    """
    if "is_logged_in" not in claims:
        return User("local operator", OPERATOR)
    if claims["is_logged_in"] is not True:
        return User("not signed in", VIEWER, must_sign_in=True)
    name = str(claims.get("email") or claims.get("name") or claims.get("sub") or "unknown")
    role = OPERATOR if claims.get(ROLE_CLAIM) == OPERATOR else VIEWER
    return User(name[:100], role, can_sign_out=True)


def current_user() -> User:
    return user_of(st.user.to_dict())
