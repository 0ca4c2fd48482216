"""The HTTP server: `create_app` in `oscine.server.app` makes one of models; the only part that knows HTTP."""
