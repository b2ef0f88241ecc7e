"""Signing in to the page: a token in a form becomes a cookie, and a form's own token proves that the page sent it.

The cookie names nobody and keeps nothing: a moment, a random number, and a signature of both. Its key is made of the
token's hash and of a secret in the store, so a token that is taken out of the hashes file takes its sessions along,
every process and replica knows every session, and neither the file nor the store alone lets anybody in. The API does
not look at cookies.
"""

import hashlib
import hmac
import secrets
import time
from urllib.parse import urlsplit

from flask import Response, request

from responder.web.app import identity, services
from responder.web.auth import LOCAL, Identity, Refused, Role, hash_token

COOKIE = "gpu_responder_session"
LASTS_SECONDS = 12 * 3600
"""A night on call."""
STATUS = "page"
"""The name under which the store keeps the secret."""


def visitor() -> Identity | None:
    """Who asks for the page: by cookie, or by the headers that the API takes; None: nobody who may read.

    Raises Refused for a header that is wrong.
    """
    access = services().access
    if access.open:
        return LOCAL
    if request.headers.get("Authorization"):
        return access.identify(request.environ, Role.VIEWER)
    cookie = request.cookies.get(COOKIE, "")
    said, _, signature = cookie.rpartition(".")
    until = said.partition(".")[0]
    if not until.isascii() or not until.isdigit() or len(until) > 15 or int(until) < time.time():
        return None
    secret, proof = _secret(), _bytes(signature)
    found = access.signed_by(lambda known: hmac.compare_digest(_signed(secret + known, said).encode(), proof))
    return found if found is not None and found.may(Role.VIEWER) else None


def sign_in(token: str, response: Response) -> None:
    """Give the answer the token's cookie. Raises Refused, and counts that as the API does."""
    environ = {**request.environ, "HTTP_AUTHORIZATION": f"Bearer {token}"}
    services().access.identify(environ, Role.VIEWER)
    said = f"{int(time.time()) + LASTS_SECONDS}.{secrets.token_urlsafe(16)}"
    signature = _signed(_secret() + bytes.fromhex(hash_token(token)), said)
    response.set_cookie(
        COOKIE,
        f"{said}.{signature}",
        max_age=LASTS_SECONDS,
        httponly=True,
        samesite="Strict",
        secure=_by_tls(),
    )


def sign_out(response: Response) -> None:
    """Take the cookie away."""
    response.delete_cookie(COOKIE, httponly=True, samesite="Strict", secure=_by_tls())


def form_token() -> str:
    """What a form of this page carries: nobody who cannot read the page can know it."""
    who = request.cookies.get(COOKIE, "") or f"{identity().role}/{identity().name}"
    return _signed(_secret(), f"form {who}")


def check_form() -> None:
    """Raise Refused unless the form was made by this page, for this session."""
    if not hmac.compare_digest(_bytes(request.form.get("csrf", "")), form_token().encode()):
        raise Refused(403, "this form is not of your session any more: reload the page and send it again")


def _secret() -> bytes:
    store = services().store
    kept = store.statuses().get(STATUS)
    if kept is None:
        store.put_status(STATUS, {"key": secrets.token_hex(32)})
        # Of two processes that came here at once, the later one's is in force for both.
        kept = store.statuses()[STATUS]
    return bytes.fromhex(kept.body["key"])


def _signed(key: bytes, text: str) -> str:
    return hmac.new(key, _bytes(text), hashlib.sha256).hexdigest()


def _bytes(text: str) -> bytes:
    """What came from outside for compare_digest, which takes no text beyond ASCII."""
    return text.encode("utf-8", "surrogatepass")


def _by_tls() -> bool:
    """True also behind a proxy that ends TLS: the browser says by what it came."""
    return request.is_secure or urlsplit(request.headers.get("Origin", "")).scheme == "https"
