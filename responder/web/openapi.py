"""stub"""

from flask import Blueprint

openapi = Blueprint("openapi", __name__, url_prefix="/api/v1")
